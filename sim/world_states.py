"""What a simulated world is in: the simulation's state and the goals, to begin another episode in.

Everything else that an episode has begins as it always does: histories, delays, drawn parameters,
the record that success is judged by. So it is for tasks whose goals stay where they are.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim.task import BeginsAnywhereTask, Task

_GOAL = "goal."


class States(Protocol):
    """Takes states out of worlds."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Part -> width; raises ConfigError where worlds have more than can be set."""
        ...

    def take(self) -> dict[str, Tensor]:
        """All parts of all worlds, (N, W) float32, copied."""
        ...


@runtime_checkable
class ResumableSimulation(Protocol):
    """A simulation whose worlds can be put into states of others."""

    states: Any
    """`States`."""

    def resume(
        self, rows: EnvSelection, state: Mapping[str, Tensor], generator: torch.Generator
    ) -> None:
        """Put the picked worlds into states, (count, W) each; parameters are drawn anew."""
        ...


class WorldStates:
    """States of N worlds with a task."""

    def __init__(self, simulation: object, task: Task, *, has_curriculum: bool) -> None:
        """Join the parts.

        Args:
            simulation: The worlds.
            task: Theirs.
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
        if not isinstance(self._simulation, ResumableSimulation):
            raise ConfigError(
                f"{asked}, and {type(self._simulation).__name__} cannot be put into them; expected "
                "a robot with joints"
            )
        if not isinstance(self._task, BeginsAnywhereTask):
            raise ConfigError(
                f"{asked}, and {type(self._task).__name__} remembers more of an episode than its "
                "goals, or moves them; expected a task that begins anywhere: reach, lift, peg or "
                "drawer"
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
        assert isinstance(self._simulation, ResumableSimulation)
        goals = {_GOAL + name: goal.float().clone() for name, goal in self._task.goal.items()}
        return {**self._simulation.states.take(), **goals}

    def put(
        self, rows: EnvSelection, state: Mapping[str, Tensor], generator: torch.Generator
    ) -> None:
        """Put the picked worlds, whose task has just started, into states, (count, W) each."""
        assert isinstance(self._simulation, ResumableSimulation)
        for name, goal in self._task.goal.items():
            rows.put(goal, state[_GOAL + name])
        self._simulation.resume(rows, state, generator)
