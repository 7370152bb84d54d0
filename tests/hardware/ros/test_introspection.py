"""A node as standard tools see it: parameters and lifecycle state, and that neither changes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import SafetyState
from hardware.ros.compat import message
from hardware.ros.introspection import (
    NodeParameter,
    lifecycle_of,
    mirror_lifecycle,
    offer_parameters,
)
from hardware.ros.session import RosSession

PARAMETERS = (
    NodeParameter(name="driver", value="ros2", description="Driver of the robot."),
    NodeParameter(name="domain", value=7, description="ROS_DOMAIN_ID.", bounds=(0, 232)),
    NodeParameter(
        name="limits.tilt", value=1.2, description="Largest lean [rad].", bounds=(0.0, float("inf"))
    ),
    NodeParameter(name="limits.workspace_lower", value=[-1.0, -1.0, 0.0], description="Corner."),
)


def status_in(safety: SafetyState, at: float = 0.0) -> RobotStatus:
    return RobotStatus(
        time=at, ticks=1, safety=safety, conditions=frozenset(), trip="", refused="",
        state_age=0.0, clamped=0, replaced=0, missed=0,
    )  # fmt: skip


@contextmanager
def serving(session: RosSession) -> Iterator[None]:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            session.serve()
            time.sleep(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def ask(sessions) -> Iterator[Callable[..., Any]]:
    """Calls services of a node called loop, with parameters, that is in the state `active`."""
    node, asker = sessions("loop"), sessions("asker")
    offer_parameters(node, PARAMETERS)
    mirror_lifecycle(node, lambda: "active")

    def call(package: str, kind: str, name: str, **fields: Any) -> Any:
        service: Any = message(package, kind)
        return asker.call(service, f"/robot/loop/{name}", service.Request(**fields))

    with serving(node):
        yield call


@pytest.mark.slow
def test_parameters_are_listed_with_values_words_and_ranges(ask):
    names = [one.name for one in PARAMETERS]
    listed = ask("rcl_interfaces", "ListParameters", "list_parameters").result.names
    assert {*names} <= {*listed}
    values = ask("rcl_interfaces", "GetParameters", "get_parameters", names=names).values
    assert (values[0].string_value, values[1].integer_value) == ("ros2", 7)
    assert values[2].double_value == 1.2
    assert list(values[3].double_array_value) == [-1.0, -1.0, 0.0]
    shown = ask("rcl_interfaces", "DescribeParameters", "describe_parameters", names=names)
    assert all(one.read_only for one in shown.descriptors)
    assert [one.description for one in shown.descriptors] == [p.description for p in PARAMETERS]
    (domain,), (tilt,) = (
        shown.descriptors[1].integer_range,
        shown.descriptors[2].floating_point_range,
    )
    assert (domain.from_value, domain.to_value) == (0, 232)
    assert (tilt.from_value, tilt.to_value) == (0.0, float("inf"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("limits.tilt", {"type": 3, "double_value": 9.0}, "read-only"),
        ("use_sim_time", {"type": 1, "bool_value": True}, "clock of the computer"),
    ],
)
def test_nothing_can_be_set_and_a_sentence_says_why(ask, name, value, said):
    parameter: Any = message("rcl_interfaces", "Parameter")
    held: Any = message("rcl_interfaces", "ParameterValue")
    wanted = [parameter(name=name, value=held(**value))]
    (result,) = ask("rcl_interfaces", "SetParameters", "set_parameters", parameters=wanted).results
    assert not result.successful
    assert said in result.reason
    now = ask("rcl_interfaces", "GetParameters", "get_parameters", names=[name]).values[0]
    assert (now.double_value, now.bool_value) == ((1.2 if name != "use_sim_time" else 0.0), False)


@pytest.mark.slow
def test_the_lifecycle_is_shown_and_not_taken_from_others(ask):
    current = ask("lifecycle_msgs", "GetState", "get_state").current_state
    constants: Any = message("lifecycle_msgs", "State")
    assert (current.id, current.label) == (constants.PRIMARY_STATE_ACTIVE, "active")
    transition: Any = message("lifecycle_msgs", "Transition")
    wanted = transition(id=transition.TRANSITION_DEACTIVATE)
    assert not ask("lifecycle_msgs", "ChangeState", "change_state", transition=wanted).success
    states = ask("lifecycle_msgs", "GetAvailableStates", "get_available_states").available_states
    for one in states:
        (constant,) = (n for n in dir(constants) if n.endswith(f"_STATE_{one.label.upper()}"))
        assert getattr(constants, constant) == one.id
    none = ask("lifecycle_msgs", "GetAvailableTransitions", "get_available_transitions")
    assert list(none.available_transitions) == []


@pytest.mark.parametrize(
    ("safety", "expected"),
    [
        (SafetyState.PASSIVE, "inactive"), (SafetyState.READY, "inactive"),
        (SafetyState.HOLD, "inactive"), (SafetyState.ARMING, "activating"),
        (SafetyState.POLICY, "active"), (SafetyState.HUMAN, "active"),
        (SafetyState.SAFE_STOP, "deactivating"), (SafetyState.ESTOP, "errorprocessing"),
    ],
)  # fmt: skip
def test_each_safety_state_has_a_lifecycle_state(safety, expected):
    assert lifecycle_of(status_in(safety, at=5.0), now=5.5) == expected


def test_a_robot_process_that_is_not_there_is_said():
    assert lifecycle_of(None, now=3.0) == "unconfigured"
    assert lifecycle_of(None, now=3.0, begun=True) == "finalized"
    assert lifecycle_of(status_in(SafetyState.POLICY, at=5.0), now=6.5) == "finalized"
