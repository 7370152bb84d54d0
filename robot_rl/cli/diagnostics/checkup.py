"""What stands in the way of a deployment: findings, each with what to do about it."""

import time
from collections.abc import Callable, Iterator

from hardware.control.ipc import StatusSubscriber, channel_path
from hardware.control.realtime import release_realtime, request_realtime
from hardware.ros.compat import choose_installation, inspect_environment
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.diagnostics.findings import Finding, Level
from robot_rl.cli.diagnostics.graph import examine_graph
from robot_rl.core.errors import RobotRLError


def examine(plan: Deployment, *, listen: float) -> Iterator[Finding]:
    """Look at everything, cheap things first; later ones are left out where they have no ground.

    Args:
        plan: The deployment; its bundle may be empty.
        listen: How long to listen to the robot's topics [s], beside 4 s for finding them.
    """
    yield (ros := _tried("ROS 2", _ros))
    yield from _rights()
    if not plan.options.bundle:
        yield Finding(Level.warning, "no bundle was named: nothing is compared with one",
                      "add bundle=runs/<run>/bundle")  # fmt: skip
        return
    yield (bundle := _tried("bundle", lambda: _bundle(plan)))
    if bundle.level is Level.fault:
        return
    yield _process(plan)
    if plan.options.driver == "ros2":
        yield (wiring := _tried("topics", lambda: _wiring(plan)))
        if wiring.level is Level.fault:
            return
    if ros.level is not Level.fault:
        yield from examine_graph(plan, listen)


def _ros() -> str:
    found = choose_installation(inspect_environment())
    rmw = found.rmw or (found.implementations or ["unknown"])[0]
    return f"ROS 2 {found.distro} from {found.origin.value} in {found.rclpy.parent}, {rmw}"


def _bundle(plan: Deployment) -> str:
    spec = plan.runner.spec
    return (
        f"the bundle is for '{spec.robot.name}' at {1 / spec.control_dt:g} Hz; its recorded "
        "sequences were replayed"
    )


def _wiring(plan: Deployment) -> str:
    wiring = plan.wiring
    return f"commands go to {wiring.topics['command']} as {wiring.form}"


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(Level.good, look())
    except RobotRLError as error:
        return Finding(Level.fault, f"{what}: {error}")


def _rights() -> Iterator[Finding]:
    """Rights of this process; given back at once."""
    try:
        for right in request_realtime():
            if right.granted:
                yield Finding(Level.good, f"{right.name}: {right.detail}")
            else:
                yield Finding(Level.warning, f"{right.name} is refused", right.detail)
    finally:
        release_realtime()


def _process(plan: Deployment) -> Finding:
    """Whether another robot process has the robot."""
    receiver = StatusSubscriber(plan.channels.status)
    try:
        status = receiver.newest()
    finally:
        receiver.close()
    if status is None:
        return Finding(Level.good, "no other robot process runs this robot")
    age = time.monotonic() - status.time
    if age < 1.0:
        return Finding(
            Level.fault, f"a robot process runs this robot already, in '{status.safety.value}'",
            "stop it, or choose another namespace= or domain=",
        )  # fmt: skip
    return Finding(
        Level.warning, f"a robot process died {age:.0f} s ago without tidying up",
        f"nothing needs to be done; the next one takes over {channel_path(plan.channels.status)}",
    )  # fmt: skip
