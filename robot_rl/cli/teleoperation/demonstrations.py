"""Demonstrations of a person on the twin of an arm, as episodes of a data set.

They are made in the environment that `robot-rl learn` learns in, with a person in the policy's
place: an action is what the loop followed, whatever the stick said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from configs.schema import RunConfig, component_of
from hardware.learning.hardware_env import Phase
from hardware.teleop.input_device import open_device
from hardware.teleop.simulated_person import PersonConfig
from hardware.teleop.teleoperator import Teleoperator
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.cli.teleoperation.twin_person import (
    Person,
    PersonAtDevice,
    PersonAtTwin,
    simulated_person,
)
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.meaning import meaning_of_groups
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec

_LABEL_SECONDS = 2.0
"""Time after an episode in which its label is waited for [s]."""
_TAKE_OVER_SECONDS = 60.0
"""Longest wait for a person to take the robot over [s]."""


@dataclass(kw_only=True)
class Demonstration:
    """An episode, and what the person said about it."""

    episode: Episode
    """Steps from the take-over to the end."""
    label: str
    """Last key of the person: `success`, `fail`, `discard`, or empty."""


class DemonstrationRecorder:
    """A robot that learns, a person who leads it instead of a policy, and their episodes."""

    def __init__(
        self, config: RunConfig, robot: TwinRobotConfig, *, person: str, skill: PersonConfig,
        seed: int,
    ) -> None:  # fmt: skip
        """Set up the twin and the person.

        Args:
            robot: Actions, rewards and resets; those of `robot-rl learn`, which learns from this.
            person: `simulated`, or a device as of `open_device`: then time is that of the wall.
            skill: Of a simulated person.
            seed: Of everything that is drawn.

        Raises:
            ConfigError: There is no such person, or a simulated one does not know the task.
            DeviceGoneError: The device cannot be opened.
        """
        made = TwinRobot(config, robot)
        made.check_gripper()
        self._env = made.lockstep_env(seed)
        self._task, self._robot = component_of(config.task).name, made
        self._name = f"teleoperation {person.partition(':')[0]}"
        paced = person != "simulated"
        sit_down: Callable[[Teleoperator], Person]
        if paced:
            sit_down = partial(PersonAtDevice, open_device(person))
        else:
            sit_down = simulated_person(config, made, skill, alone=True, seed=seed)
        self._person = PersonAtTwin(self._env, made, sit_down, paced=paced)

    @property
    def spec(self) -> DatasetSpec:
        """Content of the episodes."""
        return episode_spec(self._robot, self._env.spec)

    def record(self, number: int) -> Demonstration:
        """One episode, from the start that belongs to a number and from the take-over on.

        Raises:
            ConfigError: Nobody takes the robot over.
        """
        env, still = self._env, torch.zeros(1, self._env.spec.action_size)
        end = self._now() + _TAKE_OVER_SECONDS
        obs = self._begin(number)
        steps: list[tuple[Obs, EnvStep]] = []
        while not (steps and bool(steps[-1][1].ended)):
            step = env.step(still)
            if steps or bool(step.intervened):
                steps.append((obs, step))
            obs = step.obs
            if not steps and bool(step.ended):  # nobody came in time
                if self._now() > end:
                    said = self._person.hand.status(self._now())["refusal"] or "nobody asked for it"
                    raise ConfigError(
                        f"the robot was not taken over in {_TAKE_OVER_SECONDS:g} s: {said}"
                    )
                obs = self._begin(number)
        self._await_label()
        label = self._person.label[0] if self._person.label else ""
        episode = episode_of(
            steps, control_dt=env.spec.control_dt, task=self._task, source=self.source(number)
        )
        return Demonstration(episode=episode, label=label)

    def source(self, number: int) -> str:
        """Text in a data set that says where the episode of a number comes from."""
        return f"{self._name} {number}"

    def _begin(self, number: int) -> Obs:
        """Begin an episode at the start that belongs to a number."""
        obs = self._env.reset(seed=number)
        self._person.begin()
        return obs

    def close(self) -> None:
        """Let go of the robot and the device."""
        self._person.close()
        self._env.close()

    def _now(self) -> float:
        return self._env.port.now()

    def _await_label(self) -> None:
        """Wait for a key that is pressed after the end; the reset goes on meanwhile."""
        end = self._now() + _LABEL_SECONDS
        still = torch.zeros(1, self._env.spec.action_size)
        while self._person.label is None and self._now() < end:
            if self._env.phase is Phase.running:  # the next episode is not this one's
                break
            self._env.step(still)


def episode_spec(robot: TwinRobot, spec: EnvSpec) -> DatasetSpec:
    """Content of the episodes of a robot that learns, in its environment of this spec."""
    return DatasetSpec(
        groups={"actor": spec.groups["actor"].shape[0]}, action_size=spec.action_size,
        control_dt=spec.control_dt, robot=robot.narrowed[0].identity(),
        images={name: camera.shape for name, camera in robot.cameras.items()},
        meaning=meaning_of_groups(spec.meaning, ["actor"]),
    )  # fmt: skip


def episode_of(
    steps: Sequence[tuple[Obs, EnvStep]], *, control_dt: float, task: str, source: str
) -> Episode:
    """An episode out of its steps, each with the observation before it."""
    taken = [step for _, step in steps]
    seen = [*(obs for obs, _ in steps), taken[-1].next_obs]
    control_ns = round(1e9 * control_dt)

    def column(pick: Callable[[EnvStep], torch.Tensor]) -> np.ndarray:
        return torch.cat([pick(step) for step in taken]).numpy()

    return Episode(
        obs={"actor": torch.cat([obs["actor"] for obs in seen]).numpy()},
        images={
            name.removeprefix(IMAGE_PREFIX): torch.cat([obs[name][:, -1] for obs in seen]).numpy()
            for name in seen[0]
            if name.startswith(IMAGE_PREFIX)
        },
        action=column(lambda step: step.action), reward=column(lambda step: step.reward),
        terminated=column(lambda step: step.terminated),
        truncated=column(lambda step: step.truncated),
        success=column(lambda step: step.success), valid=column(lambda step: step.valid),
        intervened=column(lambda step: step.intervened),
        policy_version=np.zeros(len(taken), np.int64),
        stamp_ns=control_ns * np.arange(len(taken) + 1, dtype=np.int64),
        task=task, source=source,
    )  # fmt: skip
