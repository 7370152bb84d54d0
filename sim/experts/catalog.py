"""Catalog of the tasks that have a scripted expert: one line each."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from robot_rl.core.errors import ConfigError, DeviceError
from sim.env import SimEnv
from sim.experts.arms import DrawerExpert, LiftExpert, PegExpert, ReachExpert
from sim.robots.multirotor_expert import MultirotorExpert
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.arms.drawer import DrawerTask
from sim.tasks.arms.lift import LiftTask
from sim.tasks.arms.peg import PegTask
from sim.tasks.arms.reach import ReachTask
from sim.tasks.flights.hover import HoverTask
from sim.tasks.flights.tracking import TrackingTask


class Expert(Protocol):
    """Rules over the true state; remembers nothing, so that any state is as good as another."""

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        ...


class FlightExpert:
    """Flies to the goal of a flight task."""

    def __init__(self, simulation: MultirotorSimulation, task: Any, action_map: object) -> None:
        """Read the envs and their goals; refuses actions that are not rotor speeds."""
        self._pilot, self._task = MultirotorExpert(simulation), task

    def act(self) -> Tensor:
        """Rotor speeds of all envs, (N, 4), in [-1, 1]."""
        return self._pilot.act(self._task.goal)


_EXPERTS: dict[str, tuple[type, Callable[..., Expert]]] = {
    "reach": (ReachTask, ReachExpert),
    "lift": (LiftTask, LiftExpert),
    "peg": (PegTask, PegExpert),
    "drawer": (DrawerTask, DrawerExpert),
    "hover": (HoverTask, FlightExpert),
    "tracking": (TrackingTask, FlightExpert),
}
"""Name of a task -> its class, and who does it."""


def scripted_expert(env: SimEnv) -> Expert:
    """The expert of the envs' task.

    Raises:
        ConfigError: The task has none, or it does not move the robot as the actions do.
        DeviceError: The envs do not live on the CPU.
    """
    if env.spec.device.type != "cpu":
        raise DeviceError(
            f"a scripted expert was asked for in envs on {env.spec.device}; experts plan on the "
            "CPU: use device=cpu"
        )
    for task, make in _EXPERTS.values():
        if type(env.task) is task:
            return make(env.simulation, env.task, env.action_map)
    raise ConfigError(
        f"a scripted expert was asked for, but {type(env.task).__name__} has none; tasks that have "
        f"one: {', '.join(_EXPERTS)}"
    )
