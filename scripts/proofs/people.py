"""The proof of people: help by a simulated person while a twin's policy learns from few steps.

Robot minutes, demonstrations, networks, updates and trials were fixed before the table was run.
"""

import json
import math
from statistics import fmean

import numpy as np

from robot_rl.core.errors import CheckpointError
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.runs.run_folder import RunFolder
from scripts.proofs.pages.record import ProofRecord, SeedResult, TrialResult
from scripts.proofs.pages.results import Bar
from scripts.proofs.pages.tables import table
from scripts.proofs.people_run import TRIALS
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof
from scripts.proofs.proving.stages import Preparation, collect_once

_ALONE = "policy alone"
_DATA = "data/people_demonstrations"
_MINUTES, _STEPS_PER_MINUTE = 15, 600
"""Budget of a run in time of the robot, whose control period is 0.1 s."""
_UNAIDED, _HELPED = "rollout/unaided_success", "rollout/intervention_rate"
_ENOUGH = 0.9
"""Share of the last 20 episodes that a policy is timed to."""
_SHOWN = 3
"""Minutes between two columns of the table of help."""
_TWIN = ("twin.success_reward=1.0", "twin.translation=0.01", "twin.rotation=0.05")
_SEEN = (
    "{term: joint_velocity, scale: 0.5}",
    "{term: state/end_effector_orientation_b, scale: 20}",
    "{term: offset/hole_position, scale: 10}",
    "{term: offset/hole_position, scale: 200, clip: 2, history: 8}",
    "{term: sensed/hole_axis, scale: 10}",
    "{term: sensed/target_offset, scale: 50}",
)
"""Observed beside the way to the hole: how far the target is ahead, which is how hard the peg
pushes. Of the last centimetre eight frames: one measurement of the hole is 0.3 mm off, the hand's
0.5 mm, and there is half a millimetre of room. No last action: a clone repeats it."""
_TASK = (
    "task=peg", "task.kind=sparse", "device=cpu", "robot.decimation=20",
    f"task.actor=[{','.join(_SEEN)}]",
)  # fmt: skip
"""10 Hz, a centimetre per step and discount 0.97 are those of HIL-SERL's tasks."""
_ROBOT = (*_TASK, "task.episode_length=10", "num_envs=1", *_TWIN)
_DEMONSTRATIONS = (
    *_TASK, *_TWIN, "seconds=10", "episodes=20", "only_successes=true", "seed=1000",
)  # fmt: skip
_ONLINE = (
    *_ROBOT, "learner.gamma=0.97", "learner.critic.hidden=[128,128]",
    "learner.critic.normalize=true", "learner.critic.members=4", "learner.critic_lr=1e-3",
    "learner.actor.hidden=[128,128]", "learner.actor.normalize=true",
    "training.prior.run={runs}/" + _DATA, "training.prior.share=0.5",
    "training.replay_capacity=30_000", "online.start_steps=100", "online.publish_seconds=1",
    f"training.total_steps={_MINUTES * _STEPS_PER_MINUTE}", "record_steps=200",
)  # fmt: skip
"""Alike for all that learn on the robot: half of every batch are demonstrations."""
_SAC = (
    "training.updates_per_step=8", "learner.target.members=2", "learner.target.entropy=false",
    "learner.actor_interval=2", "learner.init_temperature=0.01",
    "learner.target_entropy_per_action=-1.5",
)  # fmt: skip
_NO_GRIPPER = "learner.gripper.commands=[]"

CONDITIONS = (
    Condition(
        name=_ALONE,
        about="100 starts and holes that no training has drawn, without exploration and without a "
        "person; 10 s each. The network at the end of the training acts.",
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    rates = {
        name: fmean(seed.trials[_ALONE].success for seed in group.seeds)
        for name, group in record.groups.items()
    }
    helped = rates[_HIL]
    shares = [seed.more_evaluations[_HELPED] for seed in record.groups[_HIL].seeds]
    last = [curve[-1][1] if curve else math.nan for curve in shares]
    return [
        Bar(what="seeds", value=min(len(g.seeds) for g in record.groups.values()), limit=3),
        Bar(what="success of HIL-SERL", value=helped, limit=_ENOUGH, unit="%"),
        Bar(what="gain over RLPD without a person", value=helped - rates[_RLPD], limit=0.01,
            unit="%"),
        Bar(what="gain over the clone", value=helped - rates[_CLONE], limit=0.01, unit="%"),
        Bar(what="steps of its last 20 episodes that the person led, mean",
            value=fmean(last), limit=0.05, at_least=False, unit="%"),
    ]  # fmt: skip


def findings(record: ProofRecord) -> str:
    """Robot minutes to 90 % success, and the person's share of the steps over time."""
    learned = {name: group for name, group in record.groups.items() if name != _CLONE}
    first = [
        [name, *(_shown(minutes_to_success(seed)) for seed in group.seeds)]
        for name, group in learned.items()
    ]
    count = max(len(group.seeds) for group in learned.values())
    ends = range(_SHOWN, _MINUTES + 1, _SHOWN)
    shares = [
        [name, *(_share(group.seeds, end) for end in ends)] for name, group in learned.items()
    ]
    return "\n\n".join([
        "Minutes of the robot until 90 % of the last 20 episodes of the training succeeded without "
        "any help, exploration included; a dash where that was never so:",
        table(["method", *(f"seed {i}" for i in range(count))], first),
        "Share of the steps of the last 20 episodes in which the person led, mean over seeds "
        "(least to most):",
        table(["method", *(f"minute {end}" for end in ends)], shares),
    ])  # fmt: skip


def minutes_to_success(seed: SeedResult) -> float:
    """Minutes of the robot at the first record of enough success; NaN if there is none."""
    # Before 20 episodes have ended the window is shorter, and means little.
    steps = [step for step, rate in seed.more_evaluations[_UNAIDED] if rate >= _ENOUGH]
    late = [step for step in steps if step >= 2 * _STEPS_PER_MINUTE]
    return late[0] / _STEPS_PER_MINUTE if late else float("nan")


def _shown(minutes: float) -> str:
    return "-" if np.isnan(minutes) else f"{minutes:.1f}"


def _share(seeds: list[SeedResult], end: int) -> str:
    until = end * _STEPS_PER_MINUTE
    curves = [one.more_evaluations[_HELPED] for one in seeds]
    found = [
        [value for step, value in curve if step <= until]
        for curve in curves
        if curve and curve[-1][0] >= until
    ]
    last = [values[-1] for values in found if values]
    return f"{fmean(last):.0%} ({min(last):.0%} to {max(last):.0%})" if last else "-"


def read_trials(
    run: RunFolder, condition: Condition, *, episodes: int
) -> tuple[TrialResult, int]:  # fmt: skip
    """Trials that a run ended with, and its last step.

    Raises:
        CheckpointError: The run has none.
    """
    path = run.path / TRIALS
    if not path.is_file():
        raise CheckpointError(f"the finished run {run.path} has lost its {TRIALS}; train it again")
    trials = json.loads(path.read_bytes())
    wins = [one["seconds"] for one in trials if one["success"]]
    low, high = wilson_interval(len(wins), len(trials))
    described: dict[str, float | None] = dict.fromkeys(("mean", "median", "p95", "max"))
    if wins:
        described = {
            "mean": fmean(wins), "median": float(np.median(wins)), "max": max(wins),
            "p95": float(np.quantile(wins, 0.95)),
        }  # fmt: skip
    result = TrialResult(
        episodes=len(trials), success=len(wins) / len(trials), low=low, high=high,
        ended=fmean(one["broken"] for one in trials), metrics={"seconds": described},
    )  # fmt: skip
    return result, run.status().step


def prepare(given: Preparation) -> None:
    """Record the demonstrations of the simulated person, once.

    Raises:
        ProofError: It failed, or what is there was recorded otherwise.
    """
    folder = given.runs / _DATA
    folder.parent.mkdir(parents=True, exist_ok=True)
    collect_once(folder, _DEMONSTRATIONS, script="teleop")


def _group(name: str, about: str, *overrides: str) -> Group:
    return Group(
        name=name, about=about, overrides=overrides, seeds=3, trials=(_ALONE,), bears_bars=True,
        script="people_run",
    )  # fmt: skip


_CLONE, _RLPD, _EXPO = "behaviour cloning", "RLPD", "EXPO"
_HIL, _SILRI = "HIL-SERL with a person", "SiLRI with a person"

PEOPLE = Proof(
    name="people",
    title="Learning on a robot beside a simulated person",
    about="A Panda inserts a peg with half a millimetre of room, on its twin: loop, safety, limits "
    "and control law are those of the robot's process, and actions displace the end effector. Only "
    "success is paid. Everything runs in lockstep on a logical clock, not in real time, so that "
    "nothing is lost while a learner computes: latencies of a real link are not in it. All begin "
    f"with the same 20 demonstrations of a simulated person and have {_MINUTES} minutes of the "
    "robot, resets not counted. The person reacts after 0.3 s, takes over when the policy stalls "
    "or drifts, sometimes leads the wrong way at first, and gives back. They are simulated: what "
    "real people would do, and whether it would help as much, is not shown.",
    groups=(
        _group(
            _CLONE, "The demonstrations alone; steps are updates, and the robot does not move. Of "
            "more of them the error on demonstrations that were held out grew.",
            "learner=bc", *_ROBOT, "training.demonstrations.data={runs}/" + _DATA,
            "training.total_steps=200", "training.evaluation_interval=200",
            "training.evaluation_episodes=1", "learner.lr_schedule.decay=200",
        ),
        _group(
            _RLPD, "Nobody helps; the demonstrations are half of every batch.",
            "learner=rlpd", *_ONLINE, *_SAC,
        ),
        _group(
            _HIL, "The person helps; their steps join the demonstrations.",
            "learner=hil_serl", *_ONLINE, *_SAC, _NO_GRIPPER, "person=true",
        ),
        _group(
            _SILRI, "The person helps; the policy imitates where people agree. It begins with 500 "
            "updates on the demonstrations.",
            "learner=silri", *_ONLINE, "training.updates_per_step=4", _NO_GRIPPER,
            "learner.expert.normalize=true", "learner.multiplier.normalize=true", "person=true",
            "training.offline.updates=500",
        ),
        _group(
            _EXPO, "Nobody helps; a flow of the demonstrations, of 2,000 updates, is edited.",
            "learner=expo", *_ONLINE, "training.updates_per_step=4", "learner.actor.steps=4",
            "learner.next_candidates=2", "learner.edit.hidden=[128,128]",
            "learner.init_temperature=0.01", "training.offline.updates=2_000",
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(title="time to success", value=lambda one: one.metric("seconds"), unit="s"),
    ),
    curve="rollout/success",
    more_curves=(_UNAIDED, _HELPED),
    bars=bars,
    findings=findings,
    fly=read_trials,
    prepare=prepare,
    by_name_only=True,
)  # fmt: skip
