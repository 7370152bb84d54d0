"""Demonstrations of a person on the twin of an arm, as episodes of a data set.

They are made in the environment that `robot-rl learn` learns in, with a person in the policy's
place: an action is what the loop followed, whatever the stick said.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from configs.schema import RunConfig, component_of
from hardware.learning.hardware_env import Phase
from hardware.learning.lockstep import LockstepPort
from hardware.teleop.input_device import HostDevice, open_device
from hardware.teleop.robot_port import LoopPort
from hardware.teleop.simulated_person import (
    PegRule,
    PersonConfig,
    PersonRule,
    PersonView,
    SimulatedPerson,
)
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import RobotState
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec

RULES: dict[str, Callable[[], PersonRule]] = {"peg": PegRule}
"""Tasks that a simulated person knows."""
_LABEL_SECONDS = 2.0
"""Time after an episode in which its label is waited for [s]."""
_TAKE_OVER_SECONDS = 60.0
"""Longest wait for a person to take the robot over [s]."""


class Person(Protocol):
    """Whoever holds a device in front of the twin."""

    def begin(self, now: float) -> None:
        """An episode begins."""
        ...

    def tick(self, view: PersonView, now: float) -> None:
        """Hold the device; 50 times a second."""
        ...

    def take_label(self, now: float) -> tuple[str, float] | None:
        """Key that was pressed and the time of the press; once."""
        ...


class PersonAtDevice:
    """A real person with a device of this computer, who watches the twin elsewhere."""

    def __init__(self, device: HostDevice, teleoperator: Teleoperator) -> None:
        self._device, self._hand = device, teleoperator
        self._label: tuple[str, float] | None = None

    def begin(self, now: float) -> None:
        """Forget the label of the episode before."""
        self._label = None

    def tick(self, view: PersonView, now: float) -> None:
        """Hand on what the device says, and do what its buttons ask for."""
        self._hand.set_intent(self._device.poll(now), now)
        for act in self._device.take_acts():
            if act == "take_over":
                self._hand.take_over(now)
            elif act == "mark":
                self._hand.interventions.mark(now)
            else:
                self._label = act, now

    def take_label(self, now: float) -> tuple[str, float] | None:
        """`success`, `fail` or `discard`, once."""
        label, self._label = self._label, None
        return label


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
        self._env = made.lockstep_env(seed)
        port = self._env.port
        assert isinstance(port, LockstepPort)
        self._port = port
        target = made.person_target()
        self._hand = Teleoperator(
            LoopPort(port.loop, state=self._measured, send=port.human.put), target,
            limits=made.narrowed[1], followed=lambda: port.loop.executed.setpoint,
        )  # fmt: skip
        self._task = component_of(config.task).name
        self._waits = person != "simulated"
        self._name = f"teleoperation {person.partition(':')[0]}"
        self._person: Person
        if self._waits:
            self._person = PersonAtDevice(open_device(person), self._hand)
        else:
            if self._task not in RULES:
                known = unknown_name("task of a simulated person", self._task, RULES)
                raise ConfigError(f"{known}; with person=gamepad:<path> you do any task of an arm")
            speeds = (target.config.linear_speed, target.config.angular_speed)
            self._person = SimulatedPerson(
                self._hand, RULES[self._task](), skill, alone=True, seed=seed, speeds=speeds
            )
        self._robot = made
        self._ticks, self._every = 0, round(TELEOP_PERIOD / made.period)
        self._label: tuple[str, float] | None = None
        self._wall = time.monotonic() - port.now()
        port.on_tick = self._tick

    @property
    def spec(self) -> DatasetSpec:
        """Content of the episodes."""
        spec = self._env.spec
        return DatasetSpec(
            groups={"actor": spec.groups["actor"].shape[0]}, action_size=spec.action_size,
            control_dt=spec.control_dt, robot=self._robot.narrowed[0].identity(),
        )  # fmt: skip

    def record(self, number: int) -> Demonstration:
        """One episode, from the start that belongs to a number and from the take-over on.

        Raises:
            ConfigError: Nobody takes the robot over.
        """
        env, still = self._env, torch.zeros(1, self._env.spec.action_size)
        end = self._port.now() + _TAKE_OVER_SECONDS
        obs = self._begin(number)
        steps: list[tuple[Obs, EnvStep]] = []
        while not (steps and bool(steps[-1][1].ended)):
            step = env.step(still)
            if steps or bool(step.intervened):
                steps.append((obs, step))
            obs = step.obs
            if not steps and bool(step.ended):  # nobody came in time
                if self._port.now() > end:
                    said = self._hand.status(self._port.now())["refusal"] or "nobody asked for it"
                    raise ConfigError(
                        f"the robot was not taken over in {_TAKE_OVER_SECONDS:g} s: {said}"
                    )
                obs = self._begin(number)
        self._await_label()
        label = self._label[0] if self._label else ""
        return Demonstration(episode=self._episode(steps, number), label=label)

    def _begin(self, number: int) -> Obs:
        """Begin an episode at the start that belongs to a number."""
        obs = self._env.reset(seed=number)
        self._hand.forget_path()
        self._person.begin(self._port.now())
        self._label = None
        return obs

    def close(self) -> None:
        """Let go of the robot and the device."""
        self._hand.close()
        self._env.close()

    def _measured(self) -> tuple[RobotState | None, float]:
        readings = self._port.read()
        return readings.state, readings.state_stamp

    def _await_label(self) -> None:
        """Wait for a key that is pressed after the end; the reset goes on meanwhile."""
        end = self._port.now() + _LABEL_SECONDS
        still = torch.zeros(1, self._env.spec.action_size)
        while self._label is None and self._port.now() < end:
            if self._env.phase is Phase.running:  # the next episode is not this one's
                break
            self._env.step(still)

    def _tick(self) -> None:
        """Let the person act 50 times a second, before a tick of the loop."""
        now = self._port.now()
        if self._ticks % self._every == 0:
            readings = self._port.read()
            if readings.state is not None:
                over = self._env.phase is not Phase.running
                seen = PersonView(state=readings.state, sensed=readings.sensed, over=over)
                self._person.tick(seen, now)
            self._hand.tick(now)
            self._label = self._person.take_label(now) or self._label
        self._ticks += 1
        if self._waits:
            time.sleep(max(0.0, self._wall + now - time.monotonic()))

    def _episode(self, steps: list[tuple[Obs, EnvStep]], number: int) -> Episode:
        taken = [step for _, step in steps]
        seen = [obs["actor"] for obs, _ in steps] + [taken[-1].next_obs["actor"]]
        control_ns = round(1e9 * self._env.spec.control_dt)

        def column(pick: Callable[[EnvStep], torch.Tensor]) -> np.ndarray:
            return torch.cat([pick(step) for step in taken]).numpy()

        return Episode(
            obs={"actor": torch.cat(seen).numpy()},
            action=column(lambda step: step.action), reward=column(lambda step: step.reward),
            terminated=column(lambda step: step.terminated),
            truncated=column(lambda step: step.truncated),
            success=column(lambda step: step.success), valid=column(lambda step: step.valid),
            intervened=column(lambda step: step.intervened),
            policy_version=np.zeros(len(taken), np.int64),
            stamp_ns=control_ns * np.arange(len(taken) + 1, dtype=np.int64),
            task=self._task, source=f"{self._name} {number}",
        )  # fmt: skip
