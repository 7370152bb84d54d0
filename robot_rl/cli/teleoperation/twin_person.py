"""A person in front of a twin in the same process: at its loop's clock, 50 times a second."""

import time
from collections.abc import Callable
from typing import Protocol

from configs.schema import RunConfig, component_of
from hardware.learning.hardware_env import HardwareEnv, Phase
from hardware.learning.lockstep import LockstepPort
from hardware.teleop.input_device import HostDevice
from hardware.teleop.robot_port import LoopPort
from hardware.teleop.simulated_person import (
    PegRule,
    PersonConfig,
    PersonRule,
    PersonView,
    SimulatedPerson,
)
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.cli.learning.twin_robot import TwinRobot
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import RobotState

_RULES: dict[str, Callable[[], PersonRule]] = {"peg": PegRule}
"""Tasks that a simulated person knows."""


def person_rule(config: RunConfig, instead: str) -> PersonRule:
    """Rule by which a simulated person does the task of a run.

    Args:
        instead: Person who does any task, as it follows "with".

    Raises:
        ConfigError: They do not know the task.
    """
    task = component_of(config.task).name
    if task not in _RULES:
        known = unknown_name("task of a simulated person", task, _RULES)
        raise ConfigError(f"{known}; with {instead} you do any task of an arm")
    return _RULES[task]()


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
        self._clutch = False

    def begin(self, now: float) -> None:
        """Forget the label of the episode before."""
        self._label = None

    def tick(self, view: PersonView, now: float) -> None:
        """Hand on what the device says, and do what its buttons ask for."""
        intent = self._device.poll(now)
        self._hand.set_intent(intent, now)
        pressed, self._clutch = intent["clutch"] and not self._clutch, intent["clutch"]
        if pressed and not (self._device.takes_over or self._hand.status(now)["leads"]):
            self._hand.take_over(now)
        for act in self._device.take_acts():
            if act == "take_over":
                self._hand.take_over(now)
            elif act in ("success", "fail", "discard"):
                self._label = act, now

    def take_label(self, now: float) -> tuple[str, float] | None:
        """`success`, `fail` or `discard`, once."""
        label, self._label = self._label, None
        return label


def simulated_person(
    config: RunConfig, robot: TwinRobot, skill: PersonConfig, *, alone: bool, seed: int
) -> Callable[[Teleoperator], Person]:
    """A simulated person for a run's task, once they are given a teleoperator.

    Args:
        alone: There is no policy: they take the robot over at once and keep it.

    Raises:
        ConfigError: They do not know the task.
    """
    rule = person_rule(config, "person=gamepad:<path>")
    target = robot.person_target().config
    speeds = (target.linear_speed, target.angular_speed)
    return lambda hand: SimulatedPerson(hand, rule, skill, alone=alone, seed=seed, speeds=speeds)


class PersonAtTwin:
    """Lets a person act before the ticks of a twin's loop, from now on until `close`."""

    def __init__(
        self, env: HardwareEnv, robot: TwinRobot, make: Callable[[Teleoperator], Person], *,
        paced: bool = False,
    ) -> None:  # fmt: skip
        """Sit down at an environment of `TwinRobot.lockstep_env`.

        Args:
            robot: Of the environment.
            make: Makes the person, who holds this teleoperator.
            paced: Time is that of the wall.

        Raises:
            ConfigError: The robot has no end effector that a person could lead.
        """
        port = env.port
        assert isinstance(port, LockstepPort)
        self._env, self._port = env, port
        self.hand = Teleoperator(
            LoopPort(port.loop, state=self._measured, send=port.human.put), robot.person_target(),
            limits=robot.narrowed[1], followed=lambda: port.loop.executed.setpoint,
        )  # fmt: skip
        """Their means to move the robot."""
        self.label: tuple[str, float] | None = None
        """Newest key of the episode and the time of its press [s]; None before any."""
        self._person, self._paced = make(self.hand), paced
        self._ticks, self._every = 0, round(TELEOP_PERIOD / robot.period)
        self._episode = env.episode
        self._wall = time.monotonic() - port.now()
        port.on_tick = self._tick

    def begin(self) -> None:
        """An episode begins; done by itself where another one is seen to run."""
        self._episode, self.label = self._env.episode, None
        self.hand.forget_path()
        self._person.begin(self._port.now())

    def close(self) -> None:
        """Let go of the robot and the device."""
        self._port.on_tick = lambda: None
        self.hand.close()

    def _measured(self) -> tuple[RobotState | None, float]:
        readings = self._port.read()
        return readings.state, readings.state_stamp

    def _tick(self) -> None:
        """Let the person act 50 times a second, before a tick of the loop."""
        now = self._port.now()
        if self._env.episode != self._episode:
            self.begin()
        if self._ticks % self._every == 0:
            readings = self._port.read()
            if readings.state is not None:
                over = self._env.phase is not Phase.running
                seen = PersonView(state=readings.state, sensed=readings.sensed, over=over)
                self._person.tick(seen, now)
            self.hand.tick(now)
            self.label = self._person.take_label(now) or self.label
        self._ticks += 1
        if self._paced:
            time.sleep(max(0.0, self._wall + now - time.monotonic()))
