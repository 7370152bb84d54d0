"""The offline-to-online proof: WSRL, Cal-QL with its data, and RLPD from the same stored episodes.

Fixed before any of it was run: task, data, networks, updates, steps, conditions and bars below.
"""

import os
from statistics import mean

import numpy as np

from proofs.pages.record import GroupResult, ProofRecord, SeedResult
from proofs.pages.results import Bar
from proofs.proving.flights import Condition
from proofs.proving.plan import Column, Group, Proof
from proofs.proving.stages import Preparation, call, train_one
from proofs.proving.training import TrainingJob
from robot_rl.datasets.files.manifest import is_dataset

_BOX = "goals in the box"
_DATA = "data/reach_half_trained"
_TASK = ("task=reach", "robot=panda")
_BEHAVIOUR = (
    *_TASK, "num_envs=64", "training.total_steps=120_000", "training.random_steps=3_000",
    "training.replay_capacity=60_000", "training.evaluation_interval=60_000",
    "training.evaluation_episodes=64",
)  # fmt: skip
"""Whose newest 60,000 transitions are the data: an arm in the middle of its training."""
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
    "learner.conservatism.actions=4", "learner.conservatism.next_actions=4",
    f"training.warm_up_steps={_WARM_UP}",
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
    """Train the arm whose experience is the data, and convert it; each once.

    Raises:
        ProofError: It failed.
    """
    folder = given.runs / _DATA
    if is_dataset(folder):
        return
    job = TrainingJob(
        label="offline_to_online, data", overrides=_BEHAVIOUR, seed=1000,
        runs=given.runs / "behaviour",
    )  # fmt: skip
    run = train_one(job, given.say, "trains the arm whose experience is the data")
    # Under another name until it is whole: a killed conversion is begun anew.
    partial = folder.with_name(f"{folder.name}_{os.getpid()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    call("data", "convert", str(run.path), str(partial))
    partial.rename(folder)


def _group(name: str, about: str, *overrides: str) -> Group:
    return Group(
        name=name, about=about, overrides=(*overrides[:1], *_SMALL, *overrides[1:]), seeds=5,
        trials=(_BOX,), bears_bars=True,
    )  # fmt: skip


OFFLINE_TO_ONLINE = Proof(
    name="offline_to_online",
    title="Offline to online",
    about="A Panda arm learns from 60,000 transitions of another arm's training, then in 20,000 "
    "steps of its own. Steps count the 20,000 updates of the offline phase, where there is one. "
    "An episode of 3 s succeeds if the mean distance over its last 0.5 s is below 2 cm.",
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
