"""Demonstrations of a person on the twin of an arm, as episodes of a data set.

A person moves the target of a Cartesian impedance; an action is the displacement of that target in
a control period, as a share of the largest: along x, y, z, then the rotation vector, base axes. So
it is what the robot followed that is stored, whatever the stick said.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from configs.schema import RunConfig, component_of
from hardware.control.safety import SafetyState
from hardware.controllers import rotations
from hardware.teleop.input_device import HostDevice, open_device
from hardware.teleop.simulated_person import (
    PegRule,
    PersonConfig,
    PersonRule,
    PersonView,
    SimulatedPerson,
)
from hardware.teleop.targets import PoseTarget
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.cli.teleoperation.twin_session import TwinSession
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import ObservationInputs, ObservationMap
from robot_rl.core.robot_command import PoseCommand
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec

RULES: dict[str, Callable[[], PersonRule]] = {"peg": PegRule}
"""Tasks that a simulated person knows."""
ACTION_SIZE = 6
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


@dataclass
class _Steps:
    """Columns of an episode while it goes on."""

    obs: list[np.ndarray] = field(default_factory=list[np.ndarray])
    action: list[np.ndarray] = field(default_factory=list[np.ndarray])
    reward: list[float] = field(default_factory=list[float])
    stamp: list[int] = field(default_factory=list[int])
    version: list[int] = field(default_factory=list[int])


class DemonstrationRecorder:
    """A twin, a person, and the episodes that they make."""

    def __init__(self, config: RunConfig, *, person: str, skill: PersonConfig, seed: int) -> None:
        """Set up the twin and the person.

        Args:
            person: `simulated`, or a device as of `open_device`: then time is that of the wall.
            skill: Of a simulated person.
            seed: Of everything that is drawn.

        Raises:
            ConfigError: There is no such person, or a simulated one does not know the task.
            DeviceGoneError: The device cannot be opened.
        """
        self._session = TwinSession(config, seed=seed)
        self._target = PoseTarget()
        self._hand = Teleoperator(
            self._session.port, self._target, followed=lambda: self._session.followed
        )
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
            speeds = (self._target.config.linear_speed, self._target.config.angular_speed)
            self._person = SimulatedPerson(
                self._hand, RULES[self._task](), skill, alone=True, seed=seed, speeds=speeds
            )
        twin = self._session.twin
        scale = twin.control_dt * np.array(
            [self._target.config.linear_speed] * 3 + [self._target.config.angular_speed] * 3
        )
        self._scale = scale
        self._observed = ObservationMap(config.task.actor, self._inputs(np.zeros((1, 6))))
        self._tick, self._over = 0, False
        self._wall = time.monotonic() - self._session.clock.now()

    @property
    def spec(self) -> DatasetSpec:
        """Content of the episodes."""
        twin = self._session.twin
        return DatasetSpec(
            groups={"actor": self._observed.size}, action_size=ACTION_SIZE,
            control_dt=twin.control_dt, robot=twin.spec.identity(),
        )  # fmt: skip

    def record(self, number: int) -> Demonstration:
        """One episode, from the start that belongs to a number.

        Raises:
            ConfigError: Nobody takes the robot over.
        """
        session, twin = self._session, self._session.twin
        session.begin(number)
        self._hand.port = session.port
        self._hand.forget_path()
        self._person.begin(session.clock.now())
        self._await_person()
        steps, last = _Steps(), np.zeros((1, ACTION_SIZE))
        label: tuple[str, float] | None = None
        self._look(steps, last)
        while not (twin.outcome.terminated or twin.outcome.steps >= twin.task.episode_steps):
            before, total = self._followed(), twin.outcome.total_return
            for _ in range(session.ticks_per_control):
                self._tick_once()
            last = self._action(before)
            steps.action.append(last[0])
            steps.reward.append(twin.outcome.total_return - total)
            label = self._person.take_label(session.clock.now()) or label
            if session.loop.safety is not SafetyState.HUMAN:
                break
            self._look(steps, last)
        if len(steps.obs) == len(steps.action):  # the person lost the robot in the last step
            self._look(steps, last)
        label = label or self._await_label()
        said = label[0] if label else ""
        return Demonstration(episode=self._episode(steps, number), label=said)

    def close(self) -> None:
        """Let go of the device."""
        self._hand.close()

    def _await_person(self) -> None:
        """Let the world stand still until the person has the robot."""
        session = self._session
        session.twin.frozen = True
        end = session.clock.now() + _TAKE_OVER_SECONDS
        while session.loop.safety is not SafetyState.HUMAN:
            self._tick_once()
            if session.clock.now() > end:
                said = self._hand.status(session.clock.now())["refusal"] or "nobody asked for it"
                raise ConfigError(
                    f"the robot was not taken over in {_TAKE_OVER_SECONDS:g} s: {said}"
                )
        session.twin.frozen = False

    def _await_label(self) -> tuple[str, float] | None:
        """Key that is pressed after the end, while the world stands still."""
        session, self._over = self._session, True
        session.twin.frozen = True
        end, label = session.clock.now() + _LABEL_SECONDS, None
        while label is None and session.clock.now() < end:
            self._tick_once()
            label = self._person.take_label(session.clock.now())
        self._over = False
        return label

    def _tick_once(self) -> None:
        """A period of the loop, before it every 20 ms the person's hand."""
        session, clock = self._session, self._session.clock
        every = round(TELEOP_PERIOD / session.twin.period)
        if self._tick % every == 0:
            twin = session.twin
            view = PersonView(state=twin.read(), sensed=twin.sensed, over=self._over)
            self._person.tick(view, clock.now())
            self._hand.tick(clock.now())
        self._tick += 1
        if self._waits:
            time.sleep(max(0.0, self._wall + clock.now() - time.monotonic()))
        session.tick()

    def _inputs(self, last_action: np.ndarray) -> ObservationInputs:
        twin = self._session.twin
        return ObservationInputs(
            state=twin.read(), goal=twin.goal, last_action=last_action, sensed=twin.sensed
        )

    def _look(self, steps: _Steps, last_action: np.ndarray) -> None:
        observed: Any = self._observed.update(self._inputs(last_action))
        steps.obs.append(np.asarray(observed[0], np.float32))
        steps.stamp.append(round(1e9 * self._session.clock.now()))

    def _followed(self) -> PoseCommand:
        followed = self._session.followed
        assert isinstance(followed, PoseCommand)  # a person leads, and nobody sends anything else
        return followed

    def _action(self, before: PoseCommand) -> np.ndarray:
        """Displacement of the followed target since then, (1, 6), in [-1, 1]."""
        after = self._followed()
        back = rotations.conjugate(rotations.quaternion(before.orientation_w))
        turn = rotations.multiply(rotations.quaternion(after.orientation_w), back)
        way = np.concatenate([
            after.position_w[0] - before.position_w[0], rotations.rotation_vector(turn)
        ])  # fmt: skip
        return np.clip(way / self._scale, -1.0, 1.0)[None]

    def _episode(self, steps: _Steps, number: int) -> Episode:
        count, outcome = len(steps.action), self._session.twin.outcome
        last = np.arange(count) == count - 1
        return Episode(
            obs={"actor": np.stack(steps.obs)},
            action=np.array(steps.action, np.float32),
            reward=np.array(steps.reward, np.float32),
            terminated=last & outcome.terminated,
            truncated=last & (not outcome.terminated),
            success=last & outcome.success,
            valid=np.ones(count, bool),
            intervened=np.ones(count, bool),
            policy_version=np.zeros(count, np.int64),
            stamp_ns=np.array(steps.stamp, np.int64),
            task=self._task,
            source=f"{self._name} {number}",
        )
