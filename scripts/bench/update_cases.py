"""Gradient steps per second of learner presets, beside other libraries where they have them.

Method and peers as in `updates.py`. Where SBX computes something else than the preset, one more
contender of ours computes what SBX does, and that one is held against the bar.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise

from configs.compose import compose
from configs.schema import RunConfig
from robot_rl.cli.components import make_learner
from robot_rl.learners.optimization import Precision
from scripts.bench.timing import Bar, Section, interleave
from scripts.bench.updates import (
    COMPILED,
    EAGER,
    SIZES,
    Size,
    env_spec,
    floor_note,
    flops_per_update,
    matmul_rate,
    measure_updates,
    one_processor,
    own_updates,
    start_peers,
)

LIKE_SBX = "ours, compiled, as SBX"
PEER_BAR = 1.5
"""Of ours beside the faster peer."""
EAGER_BAR = 2.0
"""Of ours beside our own PyTorch operations, where no peer is installed."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A preset at one size."""

    preset: str
    """Of `configs/learner/`."""
    size: Size
    """Batch, and both hidden layers unless `own_networks`; updates divisible by the actor's
    interval, so that every turn has as many of its steps."""
    own_networks: bool = False
    """Hidden layers are the preset's."""
    peers: tuple[str, ...] = ()
    """Libraries that have it, of `PEERS`."""
    peer_options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Options of `update_server.py` that make the preset of a peer."""
    like_sbx: tuple[str, ...] = ()
    """Overrides with which the preset computes what SBX computes."""
    difference: str = ""
    """Said of the contender with these overrides."""


_FAST = Size(batch=1024, obs=48, action=12, updates=20)
CASES = (
    Case(
        preset="rlpd", size=Size(batch=256, updates=40), peers=("SBX",),
        peer_options={"critics": 10, "layer-norm": 1, "policy-delay": 20},
        like_sbx=("learner.target.members=0", "learner.actor_value=min"),
        difference="target of all ten critics, not of two drawn; the actor ascends the smallest",
    ),
    Case(
        preset="td3", size=Size(batch=256), peers=("SBX", "Stable-Baselines3"),
        peer_options={"algorithm": "TD3", "policy-delay": 2},
        like_sbx=("learner.delay_targets=false", "learner.actor_value=min"),
        difference="targets move in every update; the actor ascends the smaller critic",
    ),
    Case(preset="fast_sac", size=_FAST),
    Case(preset="fast_sac", size=replace(_FAST, updates=8), own_networks=True),
)  # fmt: skip
"""Presets beside SAC's defaults, which `updates.py` measures."""


def measure_cases(
    names: Sequence[str], *, rounds: int, python: str | None = None, quick: bool = False
) -> Iterator[tuple[Section, list[str]]]:
    """Tables with their bars, one after another.

    Args:
        names: `sac`, in the sizes of `updates.py`, or presets of `CASES`.
        rounds: Turns of each contender.
        python: Interpreter that has the peers; None tries the present one.
        quick: Tiny sizes.
    """
    for name in names:
        if name == "sac":
            for size in [Size(batch=256, width=16, updates=2)] if quick else SIZES:
                yield measure_updates(size, rounds=rounds, python=python)
        cases = [case for case in CASES if case.preset == name]
        for case in cases[:1] if quick else cases:
            small = replace(case.size, batch=64, width=16, updates=20)
            one = replace(case, size=small) if quick else case
            yield measure_case(one, rounds=rounds, python=python)


def measure_case(
    case: Case, *, rounds: int, python: str | None = None
) -> tuple[Section, list[str]]:
    """One table; who is absent, and the ratios with their bar.

    Args:
        case: Preset and size.
        rounds: Turns of each contender.
        python: Interpreter that has the peers; None tries the present one.
    """
    ours: dict[str, tuple[str, ...]] = {COMPILED: (), EAGER: ("learner.compile=false",)}
    with ExitStack() as stack, one_processor():
        contenders, told = start_peers(
            stack, case.peers, case.size, python=python, options=case.peer_options
        )
        peers = list(contenders)
        if "SBX" in peers:
            ours[LIKE_SBX] = case.like_sbx
            told.append(f"{LIKE_SBX}: {case.difference}")
        widest = max(pairwise(case_config(case).learner.critic.hidden), key=math.prod)
        rate = matmul_rate((case.size.batch, *widest), Precision.fp32)
        notes: dict[str, Callable[[float], str]] = {}
        for name, changes in ours.items():
            config = case_config(case, *changes)
            learner = make_learner(config, env_spec(case.size))
            contenders[name] = own_updates(learner, case.size)
            notes[name] = _note(
                learner.update_method, floor_note(flops_per_update(config.learner, case.size), rate)
            )
        section = interleave(_title(case), "updates/s", contenders, rounds=rounds, notes=notes)
    return section, [*told, *(bar.verdict(section) for bar in _bars(section, peers))]


def case_config(case: Case, *overrides: str) -> RunConfig:
    """The run whose learner is measured."""
    size = case.size
    width = f"[{size.width},{size.width}]"
    networks = [f"learner.actor.hidden={width}", f"learner.critic.hidden={width}"]
    return compose(
        # A task would bring changes of its own.
        ["env=gymnasium", f"learner={case.preset}", f"learner.batch_size={size.batch}",
         *([] if case.own_networks else networks), *overrides]
    ).config  # fmt: skip


def _note(method: str, floor: Callable[[float], str]) -> Callable[[float], str]:
    return lambda rate: f"{method}; {floor(rate)}"


def _bars(section: Section, peers: list[str]) -> list[Bar]:
    """Ratios; a bar where ours computes what the faster peer does, or else beside PyTorch."""
    fastest, least = EAGER, EAGER_BAR
    if peers:
        fastest, least = max(peers, key=section.median), PEER_BAR
    bars: list[Bar] = []
    for other in (*peers, EAGER):
        same = LIKE_SBX if other == "SBX" else COMPILED
        asked = least if other == fastest else None
        bars.append(Bar(ours=same, other=other, least=asked))
        if same != COMPILED:
            bars.append(Bar(ours=COMPILED, other=other, least=None))
    return bars


def _title(case: Case) -> str:
    learner = case_config(case).learner
    actor, critic = ("-".join(map(str, part.hidden)) for part in (learner.actor, learner.critic))
    return (
        f"{case.preset}, observation {case.size.obs}, action {case.size.action}, actor {actor}, "
        f"{learner.critic.members} critics {critic}, one step of the actor in "
        f"{learner.actor_interval} updates, batch {case.size.batch}, one thread"
    )
