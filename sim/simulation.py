"""What a task may ask of the simulated worlds, whichever engine runs them."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.robot_state import RobotState
from sim.curriculum import RangeCurriculum
from sim.task import InitialState


class Simulation(Protocol):
    """N worlds with one robot each. States are live views: read them again after every step."""

    @property
    def num_worlds(self) -> int:
        """N."""
        ...

    @property
    def device(self) -> torch.device:
        """Where every tensor lives."""
        ...

    @property
    def robot(self) -> RobotSpec:
        """The robot in every world."""
        ...

    @property
    def control_dt(self) -> float:
        """Time that one `step` simulates [s]."""
        ...

    @property
    def true_state(self) -> RobotState:
        """The true state: for rewards, terminations and critics."""
        ...

    @property
    def measured(self) -> RobotState:
        """What the robot's sensors say, with noise and latency: for actors."""
        ...

    @property
    def sensed(self) -> Mapping[str, Tensor]:
        """What a robot measures beside its own state, with noise and latency: for actors."""
        ...

    @property
    def privileged(self) -> Mapping[str, Tensor]:
        """What only a simulator knows, for critics: name -> (N, width), scaled to about one."""
        ...

    @property
    def fault(self) -> Tensor:
        """(N,) bool: the engine gave this world up; sticky until the world is reset."""
        ...

    @property
    def curriculum(self) -> RangeCurriculum | None:
        """What widens the ranges of drawn parameters; None where they are whole."""
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
            rows: Worlds to reset.
            start: True states.
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
