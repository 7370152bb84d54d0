"""The offline-to-online proof: WSRL, Cal-QL with its data, and RLPD from the same stored episodes.

Fixed before any of it was run: task, data, networks, updates, steps, conditions and bars below;
found with other seeds, on data of the same kind. One edition before, whose actor and temperature
took larger steps online, was stopped when seed 0 had fallen to 0.74 of its offline phase.
docs/proofs/switch.md tells what each setting is there for.
"""

from statistics import mean

import numpy as np

from scripts.proofs.pages.record import GroupResult, ProofRecord
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof
from scripts.proofs.proving.stages import Preparation, collect_once

_BOX = "goals in the box"
_DATA = "data/reach_of_mixed_quality"
_TASK = ("task=reach", "robot=panda")
_OFFLINE, _WSRL, _RETAIN, _RLPD = "offline", "WSRL", "Cal-QL with its data", "RLPD"
_AT_ONCE = "WSRL, penalty ends at once"
_COLLECTED = (*_TASK, "starts=training")
_MIXTURE = (
    (*_COLLECTED, "episodes=300", "noise=0.1", "noise_seconds=1", "seed=1"),
    (*_COLLECTED, "episodes=200", "noise=0.1", "noise_seconds=inf", "seed=2"),
    (*_COLLECTED, "episodes=200", "noise=0.3", "noise_seconds=inf", "seed=3"),
    (*_COLLECTED, "episodes=100", "expert=random", "seed=4"),
)
"""60,000 transitions: a hand that comes to rest, two that never do, and random actions."""
_SMALL = (
    *_TASK, "num_envs=8", "learner.gamma=0.95", "learner.n_step=1", "learner.batch_size=256",
    "learner.actor.hidden=[64,64]", "learner.critic.hidden=[64,64]", "learner.critic.members=10",
    "learner.actor.layer_norm=true", "learner.critic.layer_norm=true",
    "learner.actor.normalize=true", "learner.critic.normalize=true",
    "learner.critic_lr=1.0e-3", "learner.init_temperature=0.1", "learner.tau=0.01",
    "training.updates_per_step=8", "training.replay_capacity=20_000",
    "training.evaluation_interval=2_000", "training.evaluation_episodes=128",
)  # fmt: skip
"""The same networks, batches and updates per step for all."""
_STORED = ("training.prior.run={runs}/" + _DATA,)
_STEPS = ("training.total_steps=20_000",)
_UPDATES, _WARM_UP = 20_000, 5_000
_CAL_QL = (
    "learner=wsrl", *_SMALL, "learner.conservatism.weight=1.0", "learner.conservatism.actions=4",
    "learner.conservatism.next_actions=4", f"learner.lr_schedule.decay={_UPDATES}",
    "learner.lr_schedule.end=0.1", "learner.freeze_normalizers=true",
    "learner.target_entropy_per_action=-2.0", f"training.warm_up_steps={_WARM_UP}",
)  # fmt: skip
"""Step sizes fall to a tenth while offline and stay there."""
_OFFLINE_RATES = ("learner.actor_lr=1.0e-3", "learner.temperature_lr=2.0e-2")
_ONLINE_RATES = ("learner.actor_lr=1.0e-4", "learner.temperature_lr=1.0e-4")
"""Those of configs/learner/wsrl.yaml; of these too the schedule has left a tenth."""

CONDITIONS = (
    Condition(
        name=_BOX,
        about="Goals, starts and ranges of the physical parameters as configured; goals and "
        "parameters that no training has drawn.",
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars: all seeds are there, and going online without the data loses nothing."""
    groups = record.groups
    wsrl, rlpd = (_success(groups[name]) for name in (_WSRL, _RLPD))
    offline = groups[_OFFLINE]
    return [
        Bar(what="seeds", value=min(len(group.seeds) for group in groups.values()), limit=5),
        Bar(what="WSRL, lowest success after warm-up over that of its offline phase, worst seed",
            value=_kept(groups[_WSRL], offline), limit=0.8),
        Bar(what="WSRL, mean success beside its offline phase", value=wsrl,
            limit=_success(offline), unit="%"),
        Bar(what="WSRL, mean success beside RLPD, which keeps the data", value=wsrl, limit=rlpd,
            unit="%"),
    ]  # fmt: skip


def _success(group: GroupResult) -> float:
    return mean(seed.trials[_BOX].success for seed in group.seeds)


def _kept(online: GroupResult, offline: GroupResult) -> float:
    """Smallest share of the offline phase's success in evaluations after the warm-up."""
    ended = {seed.seed: seed.evaluations[-1:] for seed in offline.seeds}
    return float(np.min([_share(ended.get(s.seed, []), s.evaluations) for s in online.seeds]))


def _share(ended: list[tuple[float, float]], online: list[tuple[float, float]]) -> float:
    later = [value for step, value in online if step > _WARM_UP]
    if not ended or not later or ended[-1][0] != _UPDATES or ended[-1][1] == 0:
        return float("nan")
    return min(later) / ended[-1][1]


def prepare(given: Preparation) -> None:
    """Collect the data, once.

    Raises:
        ProofError: It failed.
    """
    folder = given.runs / _DATA
    folder.parent.mkdir(parents=True, exist_ok=True)
    collect_once(folder, *_MIXTURE)


def _group(name: str, about: str, *overrides: str, after: str = "") -> Group:
    return Group(
        name=name, about=about, overrides=overrides, seeds=5, trials=(_BOX,), bears_bars=True,
        teacher=after, teacher_field="training.start.run",
    )  # fmt: skip


OFFLINE_TO_ONLINE = Proof(
    name="offline_to_online",
    title="Offline to online",
    about="A Panda arm learns from 60,000 stored transitions of mixed quality, then in 20,000 "
    "steps of its own. The data are 800 episodes: three eighths of the scripted hand, a little "
    "disturbed for its first of three seconds, a quarter as much disturbed throughout, a quarter "
    "three times as much, an eighth of random actions. An episode of 3 s succeeds if the mean "
    "distance over its last 0.5 s is below 2 cm.",
    groups=(
        _group(
            _OFFLINE,
            "Cal-QL, 20,000 updates from the data alone: what the next three begin with. Its steps "
            "are updates.",
            *_CAL_QL, *_OFFLINE_RATES, *_STORED, f"training.offline.updates={_UPDATES}",
            "training.offline.evaluation_interval=5_000", "training.total_steps=0",
        ),
        _group(
            _WSRL,
            "5,000 steps of the offline policy, then SAC without the data; the penalty falls to "
            "nothing over 10,000 updates.",
            *_CAL_QL, *_ONLINE_RATES, *_STEPS, "learner.conservatism.fade_updates=10_000",
            after=_OFFLINE,
        ),
        _group(
            _AT_ONCE, "The same, but for a penalty that ends at the switch, as published.",
            *_CAL_QL, *_ONLINE_RATES, *_STEPS, after=_OFFLINE,
        ),
        _group(
            _RETAIN, "The same beginning; Cal-QL goes on, a quarter of every batch stays data.",
            *_CAL_QL, *_ONLINE_RATES, *_STEPS, *_STORED, "learner.conservatism.online=true",
            "training.prior.share=0.25", after=_OFFLINE,
        ),
        _group(
            _RLPD, "No offline phase; half of every batch is data.", "learner=rlpd", *_SMALL,
            *_STEPS, *_STORED, "learner.actor_lr=1.0e-3", "learner.temperature_lr=1.0e-3",
            "training.prior.share=0.5", "training.random_steps=2_000", "learner.actor_interval=8",
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(title="distance", value=lambda one: one.metric("mean_distance"), unit="m"),
    ),
    curve="eval/success",
    bars=bars,
    prepare=prepare,
    by_name_only=True,
)  # fmt: skip
