"""Learner, actor, robot and person of a run in one process, on a logical clock, without a link.

    every `online.publish_seconds`: control periods -> store -> updates -> weights

Actor and learner are those of `robot-rl learn`; what lies between them there is replaced by
function calls. Time stands still while the learner computes: the number of updates per step is what
the config says on any machine, and two calls give the same numbers.
"""

import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from configs.schema import RunConfig
from hardware.learning.hardware_env import HardwareEnv
from hardware.teleop.simulated_person import PersonConfig
from robot_rl.cli.components import make_learner
from robot_rl.cli.learned_reward import episode_augmenter
from robot_rl.cli.learning.actor import Actor
from robot_rl.cli.learning.operator import NoConsole
from robot_rl.cli.learning.parts import make_acting_learner
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.cli.teleoperation.twin_person import PersonAtTwin, simulated_person
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.link.client import Answer
from robot_rl.link.records import Frame, Record, encode
from robot_rl.link.store import ExperienceStore
from robot_rl.link.weights import Arrays, Weights
from robot_rl.training.online import OnlineTrainer
from robot_rl.training.storage.checkpoint import CheckpointStore


class DirectRecords:
    """An actor's records in memory until they are stored, in a store of the same process."""

    quota_bytes = 1 << 30
    """Bytes that may wait."""
    full = ""
    """There is always room: all is stored between two versions of the weights."""

    def __init__(self, store: ExperienceStore) -> None:
        """Begin a session."""
        self.session = uuid.uuid4().hex
        """Of this actor."""
        self._store, self._waiting, self._stored = store, list[bytes](), 0
        store.begin(self.session, "robot")

    @property
    def num_bytes(self) -> int:
        """Bytes that wait."""
        return sum(map(len, self._waiting))

    @property
    def unacknowledged(self) -> int:
        """Records that are not stored."""
        return len(self._waiting)

    def append(self, record: Record) -> int:
        """Take a record, and return its number in the session."""
        number = self._stored + len(self._waiting)
        if isinstance(record, Frame):
            record = replace(record, session=self.session, seq=number)
        self._waiting.append(encode(record))
        return number

    def hand_over(self) -> None:
        """Store what waits."""
        self._stored = self._store.append(self.session, self._stored, self._waiting)
        self._waiting = []


class DirectLink:
    """Weights of a learner in the same process; nobody has wishes."""

    connected, trouble = True, ""
    """The learner is there."""

    def __init__(self) -> None:
        """Begin without weights."""
        self.newest: Weights | None = None
        """Newest version."""
        self.learner: Mapping[str, Any] = {}
        """Metrics that are shown to nobody."""

    def publish(self, arrays: Arrays) -> int:
        """Make a copy of these the next version, and return its number."""
        version = 1 + (self.newest.version if self.newest else 0)
        kept = {name: one.copy() for name, one in arrays.items()}
        self.newest = Weights(version=version, arrays=kept)
        return version

    def ask(
        self, wish: str, do: str, arguments: Mapping[str, Any], *, lasting: bool = False
    ) -> None:
        """Leave a wish out: there is no console that it could come from."""

    def answers(self) -> list[Answer]:
        """No answers."""
        return []


class LockstepLearning:
    """A run on a simulated robot; `run` brings it to its end."""

    def __init__(
        self, config: RunConfig, robot: TwinRobotConfig, folder: Path, *, experience: Path,
        person: PersonConfig | None, record: Callable[[Mapping[str, float]], None],
        record_steps: int,
    ) -> None:  # fmt: skip
        """Join the parts.

        Args:
            folder: Gets `checkpoints`.
            experience: Folder of the log of all steps.
            person: Skill of the simulated person who helps; None for nobody.
            record: Takes metrics.
            record_steps: Steps between two records.

        Raises:
            ConfigError: The robot cannot be led so, or nobody knows how to help in the task.
        """
        with ExitStack() as parts:
            made, seed = TwinRobot(config, robot), derive_seed(config.seed, "lockstep") >> 32
            env = parts.enter_context(closing(made.lockstep_env(seed)))
            if person is not None:
                helper = simulated_person(config, made, person, alone=False, seed=seed)
                parts.enter_context(closing(PersonAtTwin(env, made, helper)))
            store = parts.enter_context(closing(ExperienceStore(experience)))
            link, self._records = DirectLink(), DirectRecords(store)
            self.learner = make_learner(config, env.spec)
            """Learns; acts in trials."""
            self.trainer = OnlineTrainer(
                config.training, config.online, spec=env.spec, learner=self.learner, store=store,
                checkpoints=CheckpointStore(folder / "checkpoints", keep_last=1),
                publish=link.publish, record=record, interval_seconds=torch.inf, seed=config.seed,
                augment=episode_augmenter(config, env.spec),
            )  # fmt: skip
            """Counts steps and updates."""
            self._actor = Actor(
                env, make_acting_learner(config, env.spec, seed), self._records, link,
                config=config.online, console=NoConsole(),
            )  # fmt: skip
            self._parts = parts.pop_all()
        self._record_steps = record_steps
        self._periods = max(1, round(config.online.publish_seconds / env.spec.control_dt))

    def run(self) -> None:
        """Learn from `training.offline`, then on the robot until `training.total_steps`; save.

        Raises:
            NonFiniteError: A value was NaN or infinite.
        """
        trainer, recorded = self.trainer, 0
        trainer.learn_offline()
        trainer.begin()
        trainer.publish()
        self._actor.start()
        while not trainer.finished:
            for _ in range(self._periods):
                self._actor.tick()
            self._records.hand_over()
            while trainer.take():
                pass
            while trainer.learn():
                pass
            trainer.publish()
            if trainer.steps >= recorded + self._record_steps or trainer.finished:
                recorded = trainer.steps
                trainer.log()
        trainer.save()

    def close(self) -> None:
        """Let go of robot and store."""
        self._parts.close()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An episode of a policy alone."""

    success: bool
    """It met the task's rule."""
    seconds: float
    """Its length [s]."""
    broken: bool
    """It ended early without success: the task ended it, or the robot was stopped."""


def try_policy(env: HardwareEnv, learner: Learner, episodes: int, seed: int) -> list[Trial]:
    """Trials of a learner's policy, without exploration and without a person.

    Args:
        seed: Of the starts; the same seed has the same ones.
    """
    trials: list[Trial] = []
    for number in range(episodes):
        obs = env.reset(seed=derive_seed(seed, f"trial {number}"))
        learner.begin(torch.ones(1, dtype=torch.bool))
        while True:
            with torch.no_grad():
                step = env.step(learner.act(obs, explore=False))
            if bool(step.ended):
                break
            obs = step.obs
        success = bool(step.success)
        early = bool(step.terminated) or not bool(step.valid)
        trials.append(
            Trial(
                success=success, seconds=env.steps * env.spec.control_dt,
                broken=early and not success,
            )
        )  # fmt: skip
    return trials
