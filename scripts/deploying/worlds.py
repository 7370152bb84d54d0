"""What stands behind the robot's loop: a simulated robot, somebody else's node, or nobody."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from deploying.leaving import Leaving
from deploying.options import DeployOptions
from deploying.plan import Deployment
from hardware.control.acts import Acts
from hardware.control.clock import Clock
from hardware.control.fields_mail import FieldsSender
from hardware.drivers.driver import StampedDriver
from hardware.drivers.fake import FakeDriver
from hardware.drivers.neighbour import NeighbourDriver
from robot_rl.core.robot_command import RobotCommand
from sim.twin import Twin

_MAX_AGE = 0.2
"""Of a sample, times the patience [s]; the loop's watch speaks long before."""
_NODE_SECONDS = 60.0
"""How long somebody else's node is waited for; its own process gives up earlier, in words."""


class Driven:
    """A driver, and what it has to tell between two ticks."""

    def __init__(self, plan: Deployment[DeployOptions], robot: StampedDriver) -> None:
        """Open the mailbox of the world, where the robot lives in one of ours."""
        self.robot = robot
        """What the loop drives."""
        widths = plan.world_widths
        self._world = FieldsSender(plan.mailboxes.world, widths) if widths else None
        self._still = {name: np.zeros((1, width)) for name, width in widths.items()}
        given = {f"goal/{name}": value for name, value in plan.goals.items()}
        self._still |= {name: value for name, value in given.items() if name in widths}

    def between_ticks(self, acts: Acts) -> None:
        """Tell the neighbours of the world, and the loop of who else commands the robot."""
        if isinstance(self.robot, NeighbourDriver):
            acts.publishers = max(acts.publishers, self.robot.publishers)
        if self._world is not None:
            self._world.send(self._values(), self.robot.stamp)

    def hear(self, setpoint: RobotCommand) -> None:
        """What the policy asks for: a simulated world's rewards look at it."""
        if isinstance(self.robot, Twin):
            self.robot.hear(setpoint)

    def close(self) -> None:
        """Let go of the robot, where its process has not come to that, and remove the mailbox."""
        self.robot.close()
        if self._world is not None:
            self._world.close()

    def _values(self) -> Mapping[str, np.ndarray]:
        """Of a simulated world; a fake robot has none, so its goals and inputs are still."""
        if not isinstance(self.robot, Twin):
            return self._still
        goals = {f"goal/{name}": value for name, value in self.robot.goal.items()}
        return goals | {f"sensed/{name}": value for name, value in self.robot.sensed.items()}


@contextmanager
def make_driver(
    plan: Deployment[DeployOptions], clock: Clock, leaving: Leaving
) -> Iterator[Driven]:
    """The driver that the options name.

    Args:
        plan: The deployment.
        clock: Of the loop.
        leaving: SIGTERM only asks as soon as mailboxes are open.
    """
    options = plan.options
    max_age = _MAX_AGE * options.patience
    twin = plan.make_twin(options.seed) if options.driver == "twin" else None  # may take a while
    leaving.with_care()
    if twin is not None:
        robot: StampedDriver = twin
    elif options.driver == "fake":
        robot = FakeDriver(
            plan.robot, clock, habits=options.habits, max_age=max_age, seed=options.seed
        )
    else:
        robot = NeighbourDriver(
            plan.robot, clock, measured=plan.mailboxes.measured, sent=plan.mailboxes.sent,
            max_age=max_age, patience=_NODE_SECONDS * options.patience, waiting=leaving.give_up,
        )  # fmt: skip
    driven = Driven(plan, robot)
    try:
        yield driven
    finally:
        driven.close()
