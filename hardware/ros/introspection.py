"""Facts of a node for the standard tools of ROS 2: parameters and the state of a lifecycle node.

`ros2 param list | get | describe` shows the options in force; none can be changed while a robot
moves. `ros2 lifecycle get` shows the safety state of the loop in the words of a lifecycle node:

| lifecycle | safety state |
|---|---|
| unconfigured | the robot process has not ticked yet |
| inactive | passive, hold, ready: nobody is in charge |
| activating | arming |
| active | policy, human |
| deactivating | safe_stop |
| errorprocessing | estop |
| finalized | the robot process has ended |

It is a mirror: `change_state` is refused, as only the loop itself knows every reason to refuse.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import SafetyState
from hardware.ros.compat import message, rclpy
from hardware.ros.session import RosSession

_SILENCE = 1.0
"""Age of a status after which there is no robot process any more [s]."""
_SIM_TIME = "use_sim_time"
_STATES = {
    # name: number in lifecycle_msgs/State
    "unconfigured": 1, "inactive": 2, "active": 3, "finalized": 4, "activating": 13,
    "deactivating": 14, "errorprocessing": 15,
}  # fmt: skip
_MIRRORED = {
    SafetyState.ARMING: "activating",
    SafetyState.POLICY: "active",
    SafetyState.HUMAN: "active",
    SafetyState.SAFE_STOP: "deactivating",
    SafetyState.ESTOP: "errorprocessing",
}


@dataclass(frozen=True, kw_only=True)
class NodeParameter:
    """One parameter, read-only."""

    name: str
    value: bool | int | float | str | list[float]
    description: str
    bounds: tuple[float, float] | None = None
    """Least and largest value; None where there are none."""


def offer_parameters(session: RosSession, parameters: Iterable[NodeParameter]) -> None:
    """Declare parameters of a node, and the services that show them."""
    kind: Any = message("rcl_interfaces", "ParameterDescriptor")
    for one in parameters:
        shown = kind(name=one.name, description=one.description, read_only=True)
        if one.bounds is not None:
            whole = isinstance(one.value, int)
            name, number = ("IntegerRange", int) if whole else ("FloatingPointRange", float)
            bound: Any = message("rcl_interfaces", name)()
            bound.from_value, bound.to_value = (number(end) for end in one.bounds)
            (shown.integer_range if whole else shown.floating_point_range).append(bound)
        session.node.declare_parameter(one.name, one.value, shown)
    session.node.add_on_set_parameters_callback(_refuse)
    rclpy("parameter_service").ParameterService(session.node)


def _refuse(changes: list[Any]) -> Any:
    """All of a node's changes, also of what rclpy declares by itself."""
    reason = "options of a deployment are fixed while it runs; start it anew with others"
    if any(change.name == _SIM_TIME for change in changes):
        reason = (
            "use_sim_time: the loop, its monitors and every stamp run on the clock of the "
            "computer, for a simulated robot too; ages of measurements decide about stops"
        )
    kind: Any = message("rcl_interfaces", "SetParametersResult")
    return kind(successful=False, reason=reason)


def lifecycle_of(status: RobotStatus | None, now: float, *, begun: bool = False) -> str:
    """Lifecycle state that a loop's newest status stands for.

    Args:
        status: None before the first tick, and after an orderly end.
        now: Clock of the loop [s].
        begun: A status has been seen: without one now, the robot process has ended.
    """
    if status is None:
        return "finalized" if begun else "unconfigured"
    if now - status.time > _SILENCE:
        return "finalized"
    return _MIRRORED.get(status.safety, "inactive")


def mirror_lifecycle(session: RosSession, current: Callable[[], str]) -> None:
    """Offer the services of a lifecycle node, read-only.

    Args:
        session: Of the node.
        current: State in which the node is, see `lifecycle_of`.

    Raises:
        RosError: ROS 2 lacks lifecycle_msgs.
    """
    state: Any = message("lifecycle_msgs", "State")

    def get_state(request: Any, response: Any) -> Any:
        del request
        response.current_state = state(id=_STATES[current()], label=current())
        return response

    def get_states(request: Any, response: Any) -> Any:
        del request
        response.available_states = [state(id=id_, label=name) for name, id_ in _STATES.items()]
        return response

    def refuse(request: Any, response: Any) -> Any:
        asked = request.transition.label or request.transition.id
        session.node.get_logger().warning(
            f"lifecycle transition '{asked}' is refused: this node only mirrors the robot's "
            "safety state; use the services ~/arm, ~/policy, ~/hold, ~/estop and ~/reset_estop"
        )
        response.success = False
        return response

    def nothing(request: Any, response: Any) -> Any:
        del request
        return response  # no transition may be asked for

    for name, kind, answer in (
        ("get_state", "GetState", get_state),
        ("get_available_states", "GetAvailableStates", get_states),
        ("get_available_transitions", "GetAvailableTransitions", nothing),
        ("change_state", "ChangeState", refuse),
    ):
        session.service(message("lifecycle_msgs", kind), f"~/{name}", answer)
