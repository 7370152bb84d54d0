"""Interface between a task and its simulated envs on any engine, and states to reset into."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand
from sim.randomization import RangeCurriculum
from sim.task import InitialState, Task


class Simulation(Protocol):
    """N worlds with one robot each. States are live views: read them again after every step."""

    num_worlds: int
    """N."""
    device: torch.device
    """Device of every tensor."""
    robot: RobotSpec
    """The robot in every world."""
    control_dt: float
    """Time that one `step` simulates [s]."""
    true_state: RobotState
    """The true state: for rewards, terminations and critics."""
    measured: RobotState
    """Readings of the robot's sensors, with noise and latency: for actors."""
    sensed: Mapping[str, Tensor]
    """Measurements beside the robot's own state, with noise and latency: for actors."""
    fault: Tensor
    """(N,) bool: the engine gave this world up; sticky until the world is reset."""
    curriculum: RangeCurriculum | None
    """Curriculum of the drawn parameters; None where ranges are whole."""

    @property
    def privileged(self) -> Mapping[str, Tensor]:
        """Values that only a simulator knows, for critics, by name, (N, width), about one."""
        ...

    def sensor_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirrors of sensed and privileged values, by name; others have no mirror."""
        ...

    def check(self) -> None:
        """Raise what the engine left out of the simulation since the last call.

        Waits for the device; raises LimitError where there was no room for contacts.
        """
        ...

    def step(self, command: RobotCommand) -> None:
        """Simulate one control period."""
        ...

    def reset(self, rows: EnvSelection, start: InitialState, generator: torch.Generator) -> None:
        """Begin the picked worlds at given states with newly drawn physical parameters.

        Args:
            generator: Source of the drawn parameters; they may be drawn ahead, until `reseed`.
        """
        ...

    def reseed(self, seed: int) -> None:
        """Restart the stream of sensor noise."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future of the worlds."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


_GOAL = "goal."


class WorldStates:
    """States of N worlds with a task, to put them into those of others."""

    def __init__(self, simulation: Any, task: Task, *, has_curriculum: bool) -> None:
        """Join the parts.

        Args:
            simulation: Where that is possible, with `states`, which takes parts of all worlds, and
                `resume`, which puts the picked worlds into some.
            has_curriculum: Whether something follows successes, which episodes from the middle
                would mislead.
        """
        self._simulation, self._task = simulation, task
        self._has_curriculum = has_curriculum

    @property
    def widths(self) -> dict[str, int]:
        """Part -> width.

        Raises:
            ConfigError: Episodes of this task, or of this robot, cannot begin anywhere.
        """
        asked = "states of the simulation were asked for, to begin episodes in"
        if not hasattr(self._simulation, "states"):
            raise ConfigError(
                f"{asked}, and {type(self._simulation).__name__} cannot be put into them; expected "
                "a robot with joints"
            )
        if not self._task.begins_anywhere:
            raise ConfigError(
                f"{asked}, and {type(self._task).__name__} remembers more of an episode than its "
                "goals, or moves them; expected a task that begins anywhere: reach (without "
                "goal_marker), lift, peg, drawer, stand_up, cartpole or ball_in_cup"
            )
        if self._has_curriculum:
            raise ConfigError(
                f"{asked}, and a curriculum follows successes here, which episodes from the middle "
                "would mislead; expected worlds without one (curriculum.start=1)"
            )
        goals = {_GOAL + name: goal.shape[1] for name, goal in self._task.goal.items()}
        return {**self._simulation.states.widths, **goals}

    def take(self) -> dict[str, Tensor]:
        """All parts of all worlds, (N, W) float32, copied."""
        goals = {_GOAL + name: goal.float().clone() for name, goal in self._task.goal.items()}
        return {**self._simulation.states.take(), **goals}

    def put(
        self, rows: EnvSelection, state: Mapping[str, Tensor], generator: torch.Generator
    ) -> None:
        """Put the picked worlds, whose task has just started, into states, (count, W) each."""
        for name, goal in self._task.goal.items():
            rows.put(goal, state[_GOAL + name])
        self._simulation.resume(rows, state, generator)
