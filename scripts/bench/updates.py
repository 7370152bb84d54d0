"""Gradient steps of SAC per second: ours beside Stable-Baselines3 and SBX, and beside the floor.

Every contender has networks of the same size, no normaliser, and its transitions at hand, and runs
on one and the same processor. Time is that of the process: what other programs take from the
processor does not count.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.mlp import OneDnnMatmul
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.learner import Learner
from robot_rl.core.process import clean_environ
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import ActorObjective
from robot_rl.learners.optimization import BF16_UNITS, Precision
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.td3 import TD3Config
from scripts.bench.timing import Bar, Section, digits, interleave

PEERS = {"SBX": "sbx", "Stable-Baselines3": "sb3"}
"""Contender to its name in `update_server.py`."""
COMPILED, COMPILED_BF16 = "ours, compiled", "ours, compiled, bf16"
EAGER, EAGER_BF16 = "ours, PyTorch", "ours, PyTorch, bf16"
BARS = {
    # (batch, width): ours, other, least ratio
    (256, 64): [(COMPILED, "SBX", 1.5)],
    (256, 256): [(COMPILED, "SBX", 1.3)],
    (1024, 256): [(COMPILED, "SBX", 1.15)],
}  # fmt: skip
_MEMBERS = 2
_CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Size:
    """Subject of the measurement."""

    batch: int
    """Transitions per update."""
    width: int = 256
    """Units of both hidden layers."""
    obs: int = 17
    """Width of the observation; HalfCheetah-v5's."""
    action: int = 6
    """Width of the action; HalfCheetah-v5's."""
    updates: int = 100
    """Updates in one turn."""


SIZES = (
    Size(batch=256, width=64, obs=82, action=4, updates=500),  # hover's
    Size(batch=256),
    Size(batch=1024, updates=40),
)


def measure_updates(
    size: Size, *, rounds: int, python: str | None = None
) -> tuple[Section, list[str]]:
    """One table with its bars, and who is absent.

    Args:
        size: Batch and width.
        rounds: Turns of each contender.
        python: Interpreter that has the peers; None tries the present one.
    """
    with ExitStack() as stack, one_processor():
        contenders, absent = start_peers(stack, PEERS, size, python=python)
        for name, settings in _OURS.items():
            contenders[name] = own_updates(own_learner(size, **settings), size)
        layer = (size.batch, size.width, size.width)
        flops = flops_per_update(own_config(size), size)
        rates = {kind: matmul_rate(layer, kind) for kind in Precision}
        section = interleave(
            f"SAC, observation {size.obs}, action {size.action}, networks {size.width}-"
            f"{size.width}, batch {size.batch}, one thread",
            "updates/s",
            contenders,
            rounds=rounds,
            notes={
                name: floor_note(flops, rates[settings.get("precision", Precision.fp32)])
                for name, settings in _OURS.items()
            },
        )
    bars = [
        Bar(ours=ours, other=other, least=least).verdict(section)
        for ours, other, least in BARS.get((size.batch, size.width), [])
        if other in contenders
    ]
    return section, [bf16_units(), *absent, *bars]


def start_peers(
    stack: ExitStack,
    names: Iterable[str],
    size: Size,
    *,
    python: str | None,
    options: Mapping[str, object] | None = None,
) -> tuple[dict[str, Callable[[], float]], list[str]]:
    """Updates per second of peers, by name, and a line for each that is absent.

    Args:
        stack: Ends them.
        names: Of `PEERS`.
        size: Batch and width.
        python: Interpreter that has the peers; None tries the present one.
        options: Of `update_server.py`, beside the size; None takes its defaults.
    """
    started: dict[str, Callable[[], float]] = {}
    absent: list[str] = []
    for name in names:
        try:
            peer = PeerUpdates(PEERS[name], size, python or sys.executable, options or {})
            started[name] = stack.enter_context(peer).rate
        except FileNotFoundError:
            absent.append(f"{name} is absent: pip install 'robot_rl[bench]', or peers_python=")
    return started, absent


_OURS: dict[str, dict[str, Any]] = {
    COMPILED: {},
    COMPILED_BF16: {"precision": Precision.bf16},
    EAGER: {"compile": False},
    EAGER_BF16: {"precision": Precision.bf16, "compile": False},
}


def bf16_units() -> str:
    """Instructions of the processor for products in bf16."""
    known = torch.cpu.get_capabilities()
    found = [name for name in BF16_UNITS if known.get(name)]
    return f"bf16 units of this processor: {', '.join(found) or 'none'}"


def env_spec(size: Size, device: torch.device = _CPU) -> EnvSpec:
    """An environment with one observation group that is never stepped."""
    return EnvSpec(
        num_envs=1, device=device, groups={"actor": GroupSpec(shape=(size.obs,))},
        action_size=size.action, control_dt=0.05,
    )  # fmt: skip


def own_learner(size: Size, *, device: torch.device = _CPU, **settings: Any) -> Learner:
    """Our SAC as the peers have it by default; settings as in its config."""
    return SAC(own_config(size, **settings), env_spec(size, device), seed=0)


def own_config(size: Size, **settings: Any) -> SACConfig:
    """Hyperparameters of `own_learner`."""
    hidden = [size.width, size.width]
    return SACConfig(
        batch_size=size.batch,
        actor=GaussianActorConfig(hidden=hidden, normalize=False),
        critic=QEnsembleConfig(members=_MEMBERS, hidden=hidden, normalize=False),
        **settings,
    )


def own_updates(learner: Learner, size: Size) -> Callable[[], float]:
    """Updates per second of a learner of ours."""
    batch = random_batch(size)

    def measure() -> float:
        start = time.process_time()
        for _ in range(size.updates):
            learner.update(batch)
        return size.updates / (time.process_time() - start)

    return measure


class PeerUpdates:
    """A peer in an interpreter of its own."""

    def __init__(self, peer: str, size: Size, python: str, options: Mapping[str, object]) -> None:
        """Start it; raises FileNotFoundError where it is not installed."""
        sizes = {"obs": size.obs, "action": size.action, "width": size.width, "batch": size.batch,
                 "updates": size.updates}  # fmt: skip
        arguments = [f"--{name}={value}" for name, value in {**sizes, **options}.items()]
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("update_server.py")), peer, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=clean_environ({"OMP_NUM_THREADS": "1"}),
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        if self._stdout.readline().strip() != "ready":
            self.__exit__()
            raise FileNotFoundError(f"{python} cannot import {peer}")

    def __enter__(self) -> "PeerUpdates":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stdin.close()
        self._process.wait(timeout=30)

    def rate(self) -> float:
        """Updates per second."""
        self._stdin.write("\n")
        self._stdin.flush()
        return 1 / float(self._stdout.readline())


def flops_per_update(config: SACConfig | TD3Config, size: Size) -> float:
    """Of the matrix products that no implementation can leave out, on the mean over updates.

    Critics: a forward pass each of the targets that count, of the batch and of the actor's actions;
    gradients of weights and of the hidden layers once, of hidden layers and action once. Actor: two
    forward passes, gradients of weights and hidden layers. What belongs to the actor's step happens
    once in `actor_interval` updates.
    """
    soft = isinstance(config, SACConfig)
    inputs, hidden = size.obs + size.action, config.critic.hidden
    critic = _products([inputs, *hidden, max(1, config.values.atoms)])
    critic_inner = critic - inputs * hidden[0]
    actor = _products([size.obs, *config.actor.hidden, size.action * (2 if soft else 1)])
    actor_inner = actor - size.obs * config.actor.hidden[0]
    members = config.critic.members
    targets = (config.target.members if soft else 0) or members
    ascended = 1 if config.actor_value is ActorObjective.first else members
    critic_step = actor + targets * critic + members * (2 * critic + critic_inner)
    actor_step = (
        2 * actor + actor_inner + ascended * (critic + critic_inner + size.action * hidden[0])
    )  # fmt: skip
    return 2.0 * size.batch * (critic_step + actor_step / config.actor_interval)


def _products(widths: Sequence[int]) -> int:
    """Multiplications of a perceptron for one row."""
    return sum(a * b for a, b in pairwise(widths))


def matmul_rate(layer: tuple[int, int, int], precision: Precision) -> float:
    """Floating point operations per second of a layer's product, at its best.

    Args:
        layer: Rows, inputs and outputs.
        precision: Of the product.
    """
    rows, inputs, outputs = layer
    dtype = torch.float32 if precision is Precision.fp32 else torch.bfloat16
    x, weight = torch.randn(rows, inputs), torch.randn(inputs, outputs)
    return 2.0 * rows * inputs * outputs / _fastest(x.to(dtype), weight.to(dtype))


def _fastest(x: torch.Tensor, weight: torch.Tensor) -> float:
    """Seconds of one product by the faster library."""
    seconds: list[float] = []
    for fast in (False, True):
        with OneDnnMatmul(fast):
            seconds += [_seconds(lambda: x @ weight) for _ in range(5)]
    return min(seconds)


def _seconds(part: Callable[[], object], repeats: int = 50) -> float:
    part()
    start = time.process_time()
    for _ in range(repeats):
        part()
    return (time.process_time() - start) / repeats


def floor_note(flops: float, rate: float) -> Callable[[float], str]:
    """Sentence about updates per second beside those of their products alone.

    Args:
        flops: Floating point operations of one update.
        rate: Of them per second.
    """
    floor = rate / flops
    return lambda updates: (
        f"floor {digits(floor)}/s ({flops * 1e-9:.2f} GFLOP at {rate * 1e-9:.0f} GFLOP/s): "
        f"{updates / floor:.0%} of it"
    )


@contextmanager
def one_processor() -> Iterator[None]:
    """Hold this process and its children on one processor, where the system can."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if before:
        os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


def random_batch(size: Size, device: torch.device = _CPU) -> Batch:
    """Transitions of no env in particular."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device)

    rows = size.batch
    return Batch(
        obs={"actor": normal(rows, size.obs)}, next_obs={"actor": normal(rows, size.obs)},
        action=normal(rows, size.action).tanh(), reward=normal(rows),
        discount=torch.full((rows,), 0.99, device=device),
        weight=torch.ones(rows, device=device),
    )  # fmt: skip
