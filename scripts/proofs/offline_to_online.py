"""The offline-to-online proof: WSRL, Cal-QL with its data, and RLPD from the same stored episodes.

Fixed before any of it was run: task, networks, updates, steps, conditions and bars below. The data
and the weight of the conservatism were chosen with a seed that is none of these, by what the
offline phase made of them: a first edition (half of the data good, weight 5) made 8 %, which is too
little to lose anything at the switch.
"""

from statistics import mean

import numpy as np

from proofs.pages.record import GroupResult, ProofRecord, SeedResult
from proofs.pages.results import Bar
from proofs.proving.flights import Condition
from proofs.proving.plan import Column, Group, Proof
from proofs.proving.stages import Preparation, collect_once

_BOX = "goals in the box"
_DATA = "data/reach_mixed"
_TASK = ("task=reach", "robot=panda")
_COLLECTED = (*_TASK, "starts=training")
_MIXTURE = (
    (*_COLLECTED, "episodes=600", "noise=0.1", "noise_seconds=1", "seed=1"),
    (*_COLLECTED, "episodes=100", "noise=0.3", "noise_seconds=inf", "bursts=0.05", "seed=2"),
    (*_COLLECTED, "episodes=100", "expert=random", "seed=3"),
)
"""60,000 transitions of mixed quality: a hand that comes to rest, one that never does, and none."""
_SMALL = (
    *_TASK, "num_envs=8", "learner.gamma=0.95", "learner.n_step=1", "learner.batch_size=128",
    "learner.actor.hidden=[64,64]", "learner.critic.hidden=[64,64]", "learner.critic.members=4",
    "learner.actor.layer_norm=true", "learner.critic.layer_norm=true",
    "learner.actor.normalize=true", "learner.critic.normalize=true",
    "learner.actor_lr=1.0e-3", "learner.critic_lr=1.0e-3", "learner.temperature_lr=1.0e-3",
    "learner.init_temperature=0.1", "learner.tau=0.01",
    "training.prior.run={runs}/" + _DATA, "training.total_steps=20_000",
    "training.updates_per_step=8", "training.replay_capacity=20_000",
    "training.evaluation_interval=2_000", "training.evaluation_episodes=128",
)  # fmt: skip
"""The same networks, batches, steps and updates per step for all; rates and temperature are those
of configs/learner/sac.yaml."""
_UPDATES, _WARM_UP = 20_000, 2_000
_OFFLINE = (
    f"training.offline.updates={_UPDATES}", "training.offline.evaluation_interval=5_000",
    "learner.conservatism.weight=1.0", "learner.conservatism.actions=4",
    "learner.conservatism.next_actions=4", f"training.warm_up_steps={_WARM_UP}",
)  # fmt: skip

CONDITIONS = (
    Condition(
        name=_BOX,
        about="Goals, starts and ranges of the physical parameters as configured; goals and "
        "parameters that no training has drawn.",
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """What must hold: all seeds are there, and going online without the data loses nothing."""
    groups = record.groups
    wsrl, retain = (_success(groups[name]) for name in ("WSRL", "Cal-QL with its data"))
    return [
        Bar(what="seeds", value=min(len(group.seeds) for group in groups.values()), limit=5),
        Bar(what="WSRL, lowest success after warm-up over that of its offline phase, worst seed",
            value=float(np.min([_kept(seed) for seed in groups["WSRL"].seeds])), limit=0.8),
        Bar(what="WSRL, mean success beside its offline phase", value=wsrl,
            limit=_success(groups["offline only"]), unit="%"),
        Bar(what="WSRL, mean success beside Cal-QL with its data", value=wsrl, limit=retain,
            unit="%"),
    ]  # fmt: skip


def _success(group: GroupResult) -> float:
    return mean(seed.trials[_BOX].success for seed in group.seeds)


def _kept(seed: SeedResult) -> float:
    """What of the offline phase's success an evaluation after the warm-up shows at least."""
    offline = [value for step, value in seed.evaluations if step <= _UPDATES]
    online = [value for step, value in seed.evaluations if step > _UPDATES + _WARM_UP]
    if not offline or not online or offline[-1] == 0:
        return float("nan")
    return min(online) / offline[-1]


def prepare(given: Preparation) -> None:
    """Collect the data, once.

    Raises:
        ProofError: It failed.
    """
    folder = given.runs / _DATA
    folder.parent.mkdir(parents=True, exist_ok=True)
    collect_once(folder, *_MIXTURE)


def _group(name: str, about: str, *overrides: str) -> Group:
    return Group(
        name=name, about=about, overrides=(*overrides[:1], *_SMALL, *overrides[1:]), seeds=5,
        trials=(_BOX,), bears_bars=True,
    )  # fmt: skip


OFFLINE_TO_ONLINE = Proof(
    name="offline_to_online",
    title="Offline to online",
    about="A Panda arm learns from 60,000 stored transitions of mixed quality, then in 20,000 "
    "steps of its own. The data are 800 episodes: three quarters of the scripted hand, a "
    "little disturbed for its first of three seconds, an eighth much disturbed throughout, an "
    "eighth of random actions. Steps count the 20,000 updates of the offline phase, where there "
    "is one. An episode of 3 s succeeds if the mean distance over its last 0.5 s is below 2 cm.",
    groups=(
        _group(
            "WSRL", "Cal-QL offline, warm-up with its policy, then SAC without the data.",
            "learner=wsrl", *_OFFLINE, "training.prior.share=0.0",
        ),
        _group(
            "Cal-QL with its data", "The same offline phase; a quarter of every batch stays data.",
            "learner=wsrl", *_OFFLINE, "learner.conservatism.online=true",
            "training.prior.share=0.25",
        ),
        _group(
            "RLPD", "No offline phase; half of every batch is data.", "learner=rlpd",
            "training.prior.share=0.5", "training.random_steps=2_000", "learner.actor_interval=8",
        ),
        _group(
            "offline only", "The offline phase of the first two alone.", "learner=wsrl", *_OFFLINE,
            "training.total_steps=0",
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(title="distance", value=lambda one: one.metric("mean_distance"), unit="m"),
    ),
    curve="eval/success",
    bars=bars,
    expert=False,
    prepare=prepare,
    by_name_only=True,
)  # fmt: skip
