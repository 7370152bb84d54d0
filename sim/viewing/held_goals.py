"""A task whose goals a person may change: what was changed stays until the world is reset."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, ShapeError, unknown_name
from robot_rl.core.robot_state import RobotState
from sim.task import InitialState, StepOutcome, Task


class HeldGoals(Task):
    """A task, with goals that a person holds in some worlds.

    The task goes on moving its goals; a held entry is put back after each move, so that both the
    observation and the reward know it.
    """

    def __init__(self, task: Task) -> None:
        """Hold nothing yet."""
        self._task = task
        self.episode_steps = task.episode_steps
        self._held: dict[tuple[int, str], Tensor] = {}
        self._own: dict[tuple[int, str], Tensor] = {}  # what the task had put there

    def hold(self, world: int, name: str, values: Tensor) -> None:
        """Change a goal, at once and until the world's next reset.

        Args:
            world: Which.
            name: Entry of the goal.
            values: (width,).
        """
        if name not in self.goal:
            raise ConfigError(unknown_name("goal", name, self.goal))
        if values.shape != self.goal[name].shape[1:]:
            raise ShapeError(
                f"goal '{name}': expected {tuple(self.goal[name].shape[1:])}, "
                f"got {tuple(values.shape)}"
            )
        self._own.setdefault((world, name), self.goal[name][world].clone())
        self._held[world, name] = values.to(self.goal[name])
        self._put_back()

    @property
    def goal(self) -> Mapping[str, Tensor]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the task, held entries included."""
        return self._task.goal

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Of the task."""
        return self._task.reward_weights(env_steps)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Begin episodes; nothing is held in them."""
        for world, name in [key for key in self._held if rows.mask[key[0]]]:
            del self._held[world, name]
            # A task may count on a goal that it never sets again.
            self._task.goal[name][world] = self._own.pop((world, name))
        start = self._task.start(rows, generator)
        self._put_back()
        return start

    def advance(self, episode_step: Tensor) -> None:
        """Move the goals that nobody holds."""
        self._task.advance(episode_step)
        self._put_back()

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Value the step by the goals as they are."""
        return self._task.evaluate(true_state, action, last_action, episode_step)

    def state_dict(self) -> dict[str, Any]:
        """Of the task: a person's hand is not saved."""
        return self._task.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; nothing is held."""
        self._held.clear()
        self._own.clear()
        self._task.load_state_dict(state)

    def _put_back(self) -> None:
        for (world, name), values in self._held.items():
            self._task.goal[name][world] = values
