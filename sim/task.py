"""What a task is: starts, goals, rewards, ends and success over any `Simulation`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import ClockSpec
from robot_rl.core.robot_state import RobotState


class Task(Protocol):
    """A task reads the true state and says what it is worth; it never steps the worlds."""

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Names of the K reward terms."""
        ...

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Keys of `metrics`."""
        ...

    @property
    def episode_steps(self) -> int:
        """Control steps until an episode is truncated."""
        ...

    @property
    def goal(self) -> Mapping[str, Tensor]:
        """What is asked for now, by name, each (N, width), read by observation terms."""
        ...

    def reward_weights(self, world_steps: int) -> list[float]:
        """Weights of the K terms after so many steps of all worlds together: the curriculum."""
        ...

    def start(self, rows: EnvSelection, generator: torch.Generator) -> "InitialState":
        """Draw new goals for the picked worlds and the states to begin from."""
        ...

    def advance(self, episode_step: Tensor) -> None:
        """Move the goals on to the step that was just simulated.

        Args:
            episode_step: (N,) int64, control steps since each episode's start.
        """
        ...

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> "StepOutcome":
        """Value the step that was just simulated.

        Args:
            true_state: True state after the step.
            action: Accepted action of the step, (N, A).
            last_action: Accepted action of the step before, (N, A).
            episode_step: (N,) int64, steps since each episode's start, this one included.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Goals and running sums of all worlds."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


@runtime_checkable
class ClockedTask(Protocol):
    """A task some of whose goals are clocks."""

    @property
    def clocks(self) -> Mapping[str, ClockSpec]:
        """By the name of the goal, (N, 2)."""
        ...


@runtime_checkable
class BeginsAnywhereTask(Protocol):
    """A task whose episodes may begin in the middle of others.

    Its goals stay where they are, and `start` sets all else that it remembers.
    """

    begins_anywhere: bool
    """True."""


def clocks_of(task: Task) -> dict[str, ClockSpec]:
    """The clocks among a task's goals."""
    return dict(task.clocks) if isinstance(task, ClockedTask) else {}


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """Where episodes begin."""

    robot: RobotState
    """True state of the robot, fields (count, width)."""
    scene: Mapping[str, Tensor] = field(default_factory=dict)
    """Positions of the scene's joints and fixtures by name: (count, 7) for a free body or a fixture
    (position and quaternion wxyz, world) and (count, 1) for others; what is left out begins where
    the model has it."""


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """What a task says of a step."""

    reward_terms: Tensor
    """(N, K), unweighted."""
    terminated: Tensor
    """(N,) bool: the episode is over for good."""
    success: Tensor
    """(N,) bool: the episode would count as a success if it ended by its time limit."""
    metrics: Mapping[str, Tensor]
    """For logs, each (N,)."""
