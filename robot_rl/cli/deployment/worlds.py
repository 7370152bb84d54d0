"""What stands behind the robot's loop: a simulated robot, somebody else's node, or nobody."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hardware.control.clock import Clock
from hardware.control.ipc import ArrayPublisher
from hardware.control.robot_loop import OperatorRequests, StampedDriver
from hardware.drivers.fake_driver import FakeDriver
from hardware.drivers.ipc_driver import IpcDriver
from robot_rl.cli.deployment.parts import DeploymentParts
from robot_rl.cli.deployment.process_signals import Leaving
from robot_rl.core.robot_command import RobotCommand

if TYPE_CHECKING:
    from sim.twin import Twin

_MAX_AGE = 0.2
"""Of a sample, times the patience [s]; the loop's watch speaks long before."""
_NODE_SECONDS = 60.0
"""How long somebody else's node is waited for; its own process gives up earlier, in words."""


class Driven:
    """A driver, and what it has to tell between two ticks."""

    def __init__(
        self, parts: DeploymentParts, robot: StampedDriver, twin: "Twin | None" = None
    ) -> None:
        """Open the channel of the world, where the robot lives in one of ours.

        Args:
            parts: Of the deployment.
            robot: What the loop drives.
            twin: The same, if it is a simulated robot.
        """
        self.robot = robot
        """What the loop drives."""
        self._twin = twin
        widths = parts.world_widths
        self._world = ArrayPublisher(parts.channels.world, widths) if widths else None
        self._still = {name: np.zeros((1, width)) for name, width in widths.items()}
        given = {f"goal/{name}": value for name, value in parts.goals.items()}
        self._still |= {name: value for name, value in given.items() if name in widths}

    def between_ticks(self, requests: OperatorRequests) -> None:
        """Tell the neighbours of the world, and the loop of who else commands the robot."""
        if isinstance(self.robot, IpcDriver):
            requests.publishers = max(requests.publishers, self.robot.publishers)
        if self._world is not None:
            self._world.send(self._values(), self.robot.stamp)

    def on_setpoint(self, setpoint: RobotCommand) -> None:
        """What the policy asks for: a simulated world's rewards look at it."""
        if self._twin is not None:
            self._twin.on_setpoint(setpoint)

    def close(self) -> None:
        """Let go of the robot, where its process has not come to that, and remove the channel."""
        self.robot.close()
        if self._world is not None:
            self._world.close()

    def _values(self) -> Mapping[str, np.ndarray]:
        """Of a simulated world; a fake robot has none, so its goals and inputs are still."""
        if self._twin is None:
            return self._still
        goals = {f"goal/{name}": value for name, value in self._twin.goal.items()}
        return goals | {f"sensed/{name}": value for name, value in self._twin.sensed.items()}


@contextmanager
def make_driver(parts: DeploymentParts, clock: Clock, leaving: Leaving) -> Iterator[Driven]:
    """The driver that the options name.

    Args:
        parts: Of the deployment.
        clock: Of the loop.
        leaving: SIGTERM only asks as soon as channels are open.
    """
    options = parts.options
    max_age = _MAX_AGE * options.patience
    twin = _make_twin(parts) if options.driver == "twin" else None  # may take a while
    leaving.with_care()
    if twin is not None:
        robot: StampedDriver = twin
    elif options.driver == "fake":
        robot = FakeDriver(
            parts.robot, clock, faults=options.faults, max_age=max_age, seed=options.seed
        )
    else:
        robot = IpcDriver(
            parts.robot, clock, measured=parts.channels.measured, sent=parts.channels.sent,
            max_age=max_age, patience=_NODE_SECONDS * options.patience, waiting=leaving.give_up,
        )  # fmt: skip
    driven = Driven(parts, robot, twin)
    try:
        yield driven
    finally:
        driven.close()


def _make_twin(parts: DeploymentParts) -> "Twin":
    import torch

    from robot_rl.cli.deployment.plan import Deployment

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    twin = Deployment(parts.options).make_twin(parts.options.seed)
    twin.valued = False  # whoever looks at rewards says so
    return twin
