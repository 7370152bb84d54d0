"""A simulated robot behind the door of a real one: what a driver reads and writes is one world.

Time passes with `write`: one physics step each, whoever calls it and when. A robot process that
ticks at the physics' rate therefore simulates in real time, and a test that ticks as fast as it can
gets the same motion bit for bit. The world has no idea of episodes: a robot that has fallen lies
there until somebody begins anew.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import RobotCommand, with_opening
from robot_rl.core.robot_driver import safe_command
from robot_rl.core.seeding import derive_seed
from sim.reward_terms import RewardedStep
from sim.simulation import Simulation
from sim.task import RewardTerms, Task

Command = TypeVar("Command", bound=RobotCommand)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of the episode so far."""

    steps: int
    """Control steps since it began."""
    total_return: float
    """Undiscounted sum of rewards."""
    reward: float
    """Reward of the newest of these steps."""
    terminated: bool
    """The task ended it; what happened since does not count."""
    success: bool
    """True if it would count as a success if it ended now, by its time limit or by the task."""


class Twin:
    """One simulated robot as a `RobotDriver`, and the task that it would be trained for."""

    def __init__(
        self,
        simulation: Simulation,
        task: Task,
        *,
        action_map: ActionMap,
        initial_action: float,
        steps_per_control: int,
        seed: int,
        hold: Callable[[], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Join the parts; `connect` begins the first episode.

        Args:
            simulation: One world that simulates one physics step at a time.
            action_map: Of the policies that are trained for the task; turns commands into the
                actions that rewards look at.
            initial_action: Every entry of the "last action" at an episode's start.
            hold: Puts the robot back to where it is held, as in a gantry, after every step until a
                policy asks for something: on two feet it cannot stand by its motors alone.
            now: Clock of whoever reads and writes [s].

        Raises:
            SpecMismatchError: There is more than one world.
        """
        if simulation.num_worlds != 1:
            raise SpecMismatchError(
                f"a twin is one robot, but the simulation has {simulation.num_worlds} worlds"
            )
        self.simulation = simulation
        self.task = task
        self.spec = simulation.robot
        """The robot in the world."""
        self.period = simulation.control_dt
        """Time that a `write` simulates [s]."""
        self.control_dt = self.period * steps_per_control
        """Time of a control step of the task [s]."""
        self._action_map = action_map
        self._initial_action = initial_action
        self.steps_per_control = steps_per_control
        """Physics steps per control step of the task."""
        self._seed, self._hold = seed, hold
        self._generator = torch.Generator(device=simulation.device)
        self._all = EnvSelection(torch.ones(1, dtype=torch.bool, device=simulation.device))
        still = torch.zeros(1, action_map.size, device=simulation.device)
        self._reward = RewardTerms(task, simulation.true_state, still)
        weights = self._reward.ordered(task.reward_weights(0))
        self._weights = torch.tensor(weights, device=simulation.device)
        self._now = now
        self._stamp = -math.inf
        self.frozen = False
        """While true the world stands still whatever is written; it is measured all the same."""
        self.valued = True
        """True if the task evaluates what is done, for `outcome`; costs as much as the physics."""
        self._connected = False

    @property
    def stamp(self) -> float:
        """When what `read` gives was measured, by the clock [s].

        A `write` moves the world a period on, to where a real robot is a period later: that is when
        the next sample counts as measured, or now for those who cannot wait.
        """
        return min(self._stamp, self._now())

    @stamp.setter
    def stamp(self, stamp: float) -> None:
        """Let the sample be as old as that, until the next `write`: as if sensors had paused."""
        self._stamp = stamp

    @property
    def goal(self) -> Mapping[str, np.ndarray]:
        """Present goals, by name, each (1, width)."""
        return {name: _to_numpy(value) for name, value in self.task.goal.items()}

    @property
    def sensed(self) -> Mapping[str, np.ndarray]:
        """Measurements beside the robot's own state, by name, each (1, width)."""
        return {name: _to_numpy(value) for name, value in self.simulation.sensed.items()}

    @property
    def outcome(self) -> Outcome:
        """Result of the episode so far."""
        return Outcome(
            steps=int(self._step), total_return=self._return, reward=self._newest_reward,
            terminated=self._terminated, success=self._success,
        )  # fmt: skip

    def connect(self) -> None:
        """Begin the first episode; later calls do nothing."""
        if not self._connected:
            self.begin(self._seed)
            self._connected = True

    def begin(self, seed: int) -> None:
        """Begin an episode at the start that a training world with this seed begins at."""
        self._generator.manual_seed(derive_seed(seed, "episodes"))
        self.simulation.reseed(seed)
        start = self.task.start(self._all, self._generator)
        self.simulation.reset(self._all, start, self._generator)
        size = self._action_map.size
        self._last_action = torch.full(
            (1, size), self._initial_action, device=self.simulation.device
        )
        self._step = torch.zeros(1, dtype=torch.int64, device=self.simulation.device)
        self._physics_steps = 0
        self._stamp = self._now()
        self.applied = self.safe_command()
        """The command that was applied last."""
        self._heard: RobotCommand | None = None
        self._return, self._terminated, self._success = 0.0, False, False
        self._newest_reward = 0.0
        self._stands = bool(self.spec.rotors)
        self._held = self._hold is not None
        self._keep_held()

    def read(self) -> RobotState:
        """Readings of the sensors, (1, width) each; copies."""
        return RobotState(
            {name: _to_numpy(value) for name, value in self.simulation.measured.fields.items()}
        )

    def write(self, command: RobotCommand) -> RobotCommand:
        """Apply a command for one physics step.

        Returns:
            The command that was applied: the one before, where this one is not finite, as motors
            that check what they get would have it.
        """
        applied = command if _is_finite(command) else self.applied
        self.applied = applied
        self._stamp = self._now() + self.period
        if self.frozen:
            return applied
        if self._stands and not self._lifts(applied):
            return applied
        self._stands = False
        self.simulation.step(_to_torch(applied, self.simulation.device))
        self._keep_held()
        self._physics_steps += 1
        if self._physics_steps % self.steps_per_control == 0:
            self._judge(applied)
        return applied

    def on_setpoint(self, setpoint: RobotCommand) -> None:
        """Setpoint of the policy, before limits and laws make another command of it.

        Rewards of this control step look at it; without it they look at what is written. A robot
        that is held is let go.
        """
        self._heard = setpoint
        self._held = False

    def stop(self) -> None:
        """The robot's safe command for one step: joints damped, rotors still."""
        if self._connected:
            self.write(self.safe_command())

    def close(self) -> None:
        """Stop; nothing is held beyond memory."""
        self.stop()

    def safe_command(self) -> RobotCommand:
        """Joints that are damped and nothing else, or rotors that stand still."""
        return safe_command(self.spec)

    def _lifts(self, command: RobotCommand) -> bool:
        """A drone stands where it is until its rotors are switched on: the sky has no ground."""
        lift = getattr(command, "speed", getattr(command, "thrust", 0.0))
        return bool(np.any(np.asarray(lift) > 0))

    def _keep_held(self) -> None:
        if self._held and self._hold is not None:
            self._hold()

    def _judge(self, command: RobotCommand) -> None:
        """Let the task go on, and value the control step that is over."""
        self._step += 1
        self.task.advance(self._step)
        if not self.valued:
            return
        given = command if self._heard is None else self._heard
        action = self._last_action  # stays while a law flies that follows no policy
        if self._action_map.makes(given):
            whole = _to_torch(given, self.simulation.device)
            whole = with_opening(whole, self._action_map.opening(self._last_action))
            action = self._action_map.from_command(whole)
            action = torch.nan_to_num(action, nan=0.0).clamp(-1.0, 1.0)
        self._heard = None
        outcome = self.task.evaluate(
            self.simulation.true_state, action, self._last_action, self._step
        )
        terms = self._reward.stack(outcome, lambda: RewardedStep(
            true_state=self.simulation.true_state, action=action, last_action=self._last_action,
            goal=self.task.goal, episode_step=self._step,
        ))  # fmt: skip
        self._last_action = action
        reward = float((terms @ self._weights)[0])
        self._newest_reward = reward
        if not self._terminated:
            self._return += reward
            ended = outcome.terminated
            self._success = bool(outcome.succeeded(ended, ~ended)[0])
            self._terminated = bool(outcome.terminated[0]) or bool(self.simulation.fault[0])


def _is_finite(command: RobotCommand) -> bool:
    values = (getattr(command, entry.name) for entry in fields(command))
    return all(bool(np.isfinite(value).all()) for value in values if value is not None)


def _to_numpy(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy().astype(np.float64)


def _to_torch(command: Command, device: torch.device) -> Command:
    values: dict[str, Any] = {}
    for entry in fields(command):
        value = getattr(command, entry.name)
        values[entry.name] = (
            None if value is None else torch.tensor(value, dtype=torch.float32, device=device)
        )
    return type(command)(**values)
