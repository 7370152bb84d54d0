"""The hybrid proof: H2O with little real data and a simulator whose friction is half the real.

Fixed before any of it was run: gap, data, networks, updates, steps, conditions and bars below. The
gap was chosen by looking at policies of the simulator and of reality alone.
"""

from collections.abc import Sequence
from statistics import mean

from robot_rl.datasets.files.manifest import is_dataset
from robot_rl.training.reporting.statistics import bootstrap_interval
from scripts.proofs.pages.record import GroupResult, ProofRecord, SeedResult
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition
from scripts.proofs.proving.plan import Column, Group, Proof
from scripts.proofs.proving.stages import Preparation, collect_once, train_one
from scripts.proofs.proving.training import ProofError, TrainingJob

_REALITY, _SIMULATOR = "reality", "simulator"
_DATA = "data/reach_real"
_FRICTION = "task.randomization.joint_friction="
_SIMULATED, _REAL = f"{_FRICTION}[10.0,10.0]", f"{_FRICTION}[20.0,20.0]"
_STEPS, _UPDATES = 64_000, 16_000
_TASK = (
    "task=reach", "robot=panda", "task.critic=[]", "task.randomization.payload=[0.0,0.0]",
)  # fmt: skip
"""A real arm has no group for the critic, and nobody tells its friction."""
_NETWORKS = (
    "learner.gamma=0.95", "learner.batch_size=256", "learner.tau=0.01",
    "learner.actor_lr=1.0e-3", "learner.critic_lr=1.0e-3", "learner.actor.hidden=[64,64]",
    "learner.critic.hidden=[64,64]", "learner.actor.normalize=true",
    "learner.critic.normalize=true", "num_envs=16",
)  # fmt: skip
"""Alike for all; rates, temperature and targets are those of configs/learner/sac.yaml."""
_ONLINE = (
    "learner=h2o", *_TASK, *_NETWORKS, "learner.temperature_lr=1.0e-3",
    "learner.init_temperature=0.1", f"training.total_steps={_STEPS}",
    "training.random_steps=2_000", "training.updates_per_step=4", "training.replay_capacity=64_000",
    f"training.evaluation_interval={_STEPS}", "training.evaluation_episodes=64",
)  # fmt: skip
"""One evaluation, in the simulator and at the end: it chooses nothing."""
_PLAIN = "learner.dynamics_gap.weight=0.0"
_WITH_DATA = ("training.prior.run={runs}/" + _DATA, "training.prior.share=0.5")
_BEHAVIOUR = (
    *_ONLINE, _SIMULATED, _PLAIN, "training.total_steps=24_000",
    "training.evaluation_interval=24_000",
)  # fmt: skip
"""Whom the real arm is first moved by: a policy in the middle of its training in the simulator."""
_EPISODES = 100

CONDITIONS = (
    Condition(
        name=_REALITY,
        about="Coulomb friction of 20 N m in every joint, whose motors at the wrist have 12: three "
        "of seven joints stay where they are, the others rest two degrees beside their targets. "
        "Goals and starts that no training has drawn; they choose nothing.",
        overrides=(_REAL,),
    ),
    Condition(
        name=_SIMULATOR,
        about="10 N m in every joint, as the policies' own worlds have it.",
        overrides=(_SIMULATED,),
    ),
)


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    groups = record.groups
    ours = groups["H2O"].seeds
    gains = [
        Bar(
            what=f"success that H2O gains over {name}, lower end of the 95 % interval over seeds",
            value=_lowest_gain(ours, groups[name].seeds), limit=0.01, unit="%",
        )
        for name in ("simulator alone", "real data alone", "half and half")
    ]  # fmt: skip
    return [
        Bar(what="seeds", value=min(len(groups[name].seeds) for name in _COMPARED), limit=10),
        Bar(
            what="success of the simulator's own policies there, less in reality",
            value=_success(groups["simulator alone"], _SIMULATOR)
            - _success(groups["simulator alone"], _REALITY),
            limit=0.2, unit="%",
        ),
        *gains,
    ]  # fmt: skip


def _success(group: GroupResult, condition: str) -> float:
    return mean(seed.trials[condition].success for seed in group.seeds)


def _lowest_gain(ours: Sequence[SeedResult], others: Sequence[SeedResult]) -> float:
    gains = [
        one.trials[_REALITY].success - other.trials[_REALITY].success
        for one, other in zip(ours, others, strict=True)
    ]
    return float(bootstrap_interval(gains)[0]) if len(gains) > 1 else float("nan")


def prepare(given: Preparation) -> None:
    """Train who moves the real arm first, and collect what comes of it; each once.

    Raises:
        ProofError: It failed.
    """
    folder = given.runs / _DATA
    job = TrainingJob(
        label="hybrid, behaviour", overrides=_BEHAVIOUR, seed=1000, runs=given.runs / "behaviour"
    )
    kept = folder.with_name(f"{folder.name}.identity")  # of the training behind the data
    if is_dataset(folder) and kept.is_file():
        if kept.read_text() == job.identity:
            return
        raise ProofError(
            f"{folder} was collected by a policy that was trained otherwise than today's; choose "
            f"another folder with runs=..., or remove {folder.name}* there"
        )
    run = train_one(job, given.say, "trains who moves the real arm first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(job.identity)
    collect_once(
        folder,
        (f"expert={run.path}:0.5,random:0.5", f"episodes={_EPISODES}", "seed=1", "noise=0.1",
         "noise_seconds=inf", _REAL),
    )  # fmt: skip


def _group(name: str, about: str, *overrides: str) -> Group:
    return Group(
        name=name, about=about, overrides=overrides, seeds=10, trials=(_REALITY,), bears_bars=True
    )


_COMPARED = ("H2O", "simulator alone", "half and half", "real data alone")

HYBRID = Proof(
    name="hybrid",
    title="Real data and a simulator that is not quite right",
    about="A Panda arm brings its end effector to a random point. The simulator gives every joint "
    "10 N m of friction, and reality, which is simulated too, 20. Reality is known by 100 episodes "
    "of 3 s, five minutes of an arm: half of them of a policy in the middle of its training in the "
    "simulator, with noise, half of them of chance. A policy that is perfect in the simulator asks "
    "for targets that its joints would reach there, and aims with a wrist that does not move in "
    "reality: it rests beside the goal. The data show what reality does, but hardly an arm that "
    "holds its goal, so that they are too poor to copy. An episode succeeds if the mean distance "
    "over its last 0.5 s is below 2 cm. Every policy is the last one of its training.",
    groups=(
        _group(
            "H2O", "Half of every batch is real, the other simulated and weighed.",
            *_ONLINE, _SIMULATED, *_WITH_DATA,
        ),
        Group(
            name="simulator alone",
            about="SAC in the simulator, without the data.",
            overrides=(*_ONLINE, _SIMULATED, _PLAIN, "training.prior.share=0.0"),
            seeds=10,
            trials=(_REALITY, _SIMULATOR),
            bears_bars=True,
        ),
        _group(
            "half and half", "SAC on the same halves as H2O, neither weighed nor kept low.",
            *_ONLINE, _SIMULATED, _PLAIN, *_WITH_DATA,
        ),
        _group(
            "real data alone", "IQL on the data, without a simulator.",
            "learner=iql", *_TASK, *_NETWORKS, _SIMULATED, _WITH_DATA[0],
            f"training.offline.updates={_UPDATES}", "training.offline.held_out=0.0",
            f"training.offline.evaluation_interval={_UPDATES}", "training.total_steps=0",
            "training.evaluation_episodes=64",
        ),
        Group(
            name="trained in reality",
            about="SAC with as many steps in reality: what could be reached.",
            overrides=(*_ONLINE, _REAL, _PLAIN, "training.prior.share=0.0"),
            seeds=3,
            trials=(_REALITY,),
        ),
    ),
    conditions=CONDITIONS,
    columns=(
        Column(title="success", value=lambda one: one.success, unit="%", higher_is_better=True),
        Column(title="distance", value=lambda one: one.metric("mean_distance"), unit="m"),
    ),
    curve="",
    bars=bars,
    prepare=prepare,
    by_name_only=True,
)  # fmt: skip
