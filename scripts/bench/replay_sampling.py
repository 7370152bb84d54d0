"""Speed of drawing a batch from a full replay, beside Stable-Baselines3's where it is installed."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from scripts.bench.learning import milliseconds
from scripts.bench.timing import Section, interleave

OBSERVATION, ACTION = 17, 6
"""Widths of HalfCheetah-v5."""
WIDE_OBSERVATION = 82
"""Width of a legged robot's observations with some history."""
LEAST = 2.0
"""Bar of a sample's speed in multiples of Stable-Baselines3's."""
_WORLDS = 100
_OURS, _PEER = "ours", "stable-baselines3"


def measure_sampling(
    rows: int, batch_sizes: tuple[int, ...], *, rounds: int, repeats: int
) -> Iterator[tuple[Section, str]]:
    """A table for each batch size, with a line about the bar.

    Args:
        rows: Transitions in the replay, which is full of them.
        batch_sizes: Transitions per sample.
        rounds: Turns of each contender.
        repeats: Samples of one turn.
    """
    several = filled_replay(rows, n_step=3)
    samplers: dict[str, Callable[[int], object]] = {
        _OURS: filled_replay(rows).sample,
        "ours, 3 steps": several.sample,
        "ours, by priority": filled_replay(rows, config=ReplayConfig(priority=0.6)).sample,
    }
    if importlib.util.find_spec("stable_baselines3"):
        samplers[_PEER] = _stable_baselines(rows).sample
    for size in batch_sizes:
        section = interleave(
            f"replay sample, {rows:,} rows of {several.num_bytes / rows:.0f} bytes, batch {size:,}",
            "ms per sample",
            {
                name: milliseconds(lambda s=sample, b=size: s(b), repeats)
                for name, sample in samplers.items()
            },
            rounds=rounds,
        )
        yield section, _verdict(section)


def measure_steps(
    rows: int, batch_sizes: tuple[int, ...], *, rounds: int, repeats: int
) -> Iterator[Section]:
    """Samples of one and of five steps, compiled and by PyTorch operations.

    Args:
        rows: Transitions in every replay, which is full of them.
        batch_sizes: Transitions per sample.
        rounds: Turns of each contender.
        repeats: Samples of one turn.
    """
    for width in (OBSERVATION, WIDE_OBSERVATION):
        samplers = {
            f"{n_step} step{'s' * (n_step > 1)}, {name}": filled_replay(
                rows, width, n_step=n_step, compile=compile
            ).sample
            for n_step in (1, 5)
            for name, compile in (("compiled", True), ("PyTorch operations", False))
        }
        for size in batch_sizes:
            yield interleave(
                f"replay sample, {rows:,} rows, observation {width}, batch {size:,}",
                "ms per sample",
                {
                    name: milliseconds(lambda s=sample, b=size: s(b), repeats)
                    for name, sample in samplers.items()
                },
                rounds=rounds,
            )


def _verdict(section: Section) -> str:
    ratio = {row.name: row.ratio for row in section.rows}
    if _PEER not in ratio:
        return f"{_PEER} is absent; install it with: pip install 'robot_rl[bench]'"
    verdict = "reached" if ratio[_PEER] >= LEAST else "missed"
    return f"bar of {LEAST:g} times {_PEER}: {verdict} ({ratio[_PEER]:.1f})"


def filled_replay(rows: int, observation: int = OBSERVATION, **settings: Any) -> ReplayBuffer:
    """A full replay of made-up transitions of one vector."""
    spec = EnvSpec(
        num_envs=_WORLDS, device=torch.device("cpu"), action_size=ACTION, control_dt=0.05,
        groups={"actor": GroupSpec(shape=(observation,))},
    )  # fmt: skip
    replay = ReplayBuffer(spec, ("actor",), capacity=rows, gamma=0.99, **settings)
    obs = {"actor": torch.randn(_WORLDS, observation)}
    none = torch.zeros(_WORLDS, dtype=torch.bool)
    step = EnvStep(
        obs=obs, next_obs=obs, reward=torch.randn(_WORLDS), terminated=none, truncated=none,
        success=none, valid=~none, action=torch.rand(_WORLDS, ACTION), intervened=none,
    )  # fmt: skip
    for _ in range(replay.num_steps):
        replay.add(obs, step)
    return replay


def _stable_baselines(rows: int) -> Any:
    """Its buffer for one environment, its fastest, with every array written once."""
    from gymnasium.spaces import Box

    buffers = importlib.import_module("stable_baselines3.common.buffers")
    observation = Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    peer = buffers.ReplayBuffer(
        rows, observation, Box(-1.0, 1.0, (ACTION,), np.float32), device="cpu"
    )
    for name in ("observations", "next_observations", "actions", "rewards"):
        getattr(peer, name)[:] = np.random.default_rng(0).random(dtype=np.float32)
    for name in ("dones", "timeouts"):
        getattr(peer, name)[:] = 0
    peer.full = True
    return peer
