"""Time of learning from images: an update, and what drawing and shifting take beside it."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.images import ImageConfig, ImageEncoderKind
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from robot_rl.learners.images import random_shift
from robot_rl.learners.td3 import TD3, TD3Config
from scripts.bench.learning import milliseconds
from scripts.bench.timing import Section, interleave

SHAPES = ((48, 64, [2, 2, 2, 1], 256), (48, 128, [2, 2, 2, 1], 256), (84, 64, [2, 1, 1, 1], 1024))
"""Pixels, batch, strides and width of the networks: two for CPUs, and DrQ-v2's own."""
LARGEST_SHARE = 0.15
"""Bar: drawing and shifting as a part of a drawn update."""
_CAMERA = "image/side"
_STEPS = 1_000


def measure_image_updates(*, rounds: int, quick: bool) -> Iterator[tuple[Section, str]]:
    """A table for each shape, with a line about the bar.

    Args:
        rounds: Turns of each contender.
        quick: Tiny shapes.
    """
    torch.set_num_threads(1)
    for pixels, batch, strides, width in ((12, 4, [2, 1], 8),) if quick else SHAPES:
        replay, learner = (
            _filled_replay(pixels, 50 if quick else _STEPS),
            _learner(pixels, batch, strides, width),
        )
        section = interleave(
            f"DrQ-v2's update, {pixels} x {pixels} pixels, stack 3, batch {batch}, strides "
            f"{strides}, width {width}, one thread",
            "ms",
            {
                name: milliseconds(part, 1 if quick else 3)
                for name, part in _parts(replay, learner, batch).items()
            },
            rounds=rounds,
        )
        yield section, _verdict(section)


def _parts(replay: ReplayBuffer, learner: TD3, batch: int) -> dict[str, Callable[[], object]]:
    drawn, generator = replay.sample(batch), torch.Generator().manual_seed(0)

    def shift() -> None:
        for obs in (drawn.obs, drawn.next_obs):
            random_shift(obs[_CAMERA], learner.config.images.shift, generator)

    return {
        "update": lambda: learner.update(drawn),
        "draw": lambda: replay.sample(batch),
        "shift": shift,
    }


def _verdict(section: Section) -> str:
    """The shifts are a part of the update already."""
    update, draw, shift = map(section.median, ("update", "draw", "shift"))
    share = (draw + shift) / (draw + update)
    said = "kept" if share <= LARGEST_SHARE else "missed"
    bar = f"(bar {LARGEST_SHARE:.0%}: {said})"
    return f"  drawing and shifting are {share:.1%} of a drawn update {bar}"


def _spec(pixels: int) -> EnvSpec:
    camera = GroupSpec(shape=(3, pixels, pixels, 3), dtype=torch.uint8, stack=3)
    groups = {"actor": GroupSpec(shape=(4,)), _CAMERA: camera}
    return EnvSpec(
        num_envs=1, device=torch.device("cpu"), groups=groups, action_size=2, control_dt=0.1
    )


def _learner(pixels: int, batch: int, strides: list[int], width: int) -> TD3:
    config = TD3Config(
        batch_size=batch, n_step=3, actor_interval=1, target_actor=False, delay_targets=False,
        images=ImageConfig(
            encoder=ImageEncoderKind.conv, strides=strides, channels=[32] * len(strides)
        ),
        actor=DeterministicActorConfig(hidden=[width, width]),
        critic=QEnsembleConfig(hidden=[width, width]),
    )  # fmt: skip
    return TD3(config, _spec(pixels), seed=0)


def _filled_replay(pixels: int, steps: int) -> ReplayBuffer:
    """A ring of random frames, full."""
    spec = _spec(pixels)
    replay = ReplayBuffer(spec, tuple(spec.groups), capacity=steps, gamma=0.99, n_step=3)
    generator = torch.Generator().manual_seed(0)
    no = torch.zeros(1, dtype=torch.bool)

    def frame() -> Tensor:
        shape = (1, 1, pixels, pixels, 3)
        return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)

    stack = frame().expand(-1, 3, -1, -1, -1)
    for i in range(steps):
        moved = torch.cat([stack[:, 1:], frame()], dim=1)
        ended = torch.tensor([i % 100 == 99])
        after = {"actor": torch.zeros(1, 4), _CAMERA: moved}
        step = EnvStep(
            obs=after, next_obs=after, reward=torch.zeros(1), terminated=no, truncated=ended,
            success=no, valid=~no, action=torch.zeros(1, 2), intervened=no,
        )  # fmt: skip
        replay.add({"actor": torch.zeros(1, 4), _CAMERA: stack}, step)
        stack = frame().expand(-1, 3, -1, -1, -1) if bool(ended) else moved
    return replay
