"""`scripts/deploy.py`: robot, topics and policy in processes of their own, over real ROS 2."""

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.control.safety import SafetyState
from hardware.ros.compat import look_around, message
from hardware.ros.session import RosSession
from tests.scripts.tiny_run import SCRIPTS

pytestmark = [
    pytest.mark.skipif(look_around().rclpy is None, reason="ROS 2 is not installed"),
]
PATIENT = 40.0
"""Nobody promises a test machine that a policy is on time."""


@pytest.fixture
def deploying(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import importlib

    names = ("operator", "plan", "processes")
    return SimpleNamespace(**{n: importlib.import_module(f"deploying.{n}") for n in names})


@pytest.fixture
def deployed(deploying, go2_bundle, domain) -> Iterator[Callable[..., Any]]:
    """Start a deployment, and end it whatever happens."""
    started: list[Any] = []

    def start(**options: Any) -> Any:
        values = {"bundle": str(go2_bundle), "patience": PATIENT, "domain": domain, **options}
        started.append(
            deploying.operator.Operator(deploying.plan.DeployOptions(**values), say=lambda _: None)
        )
        return started[-1]

    yield start
    for operator in started:
        operator.stop()


def left_behind(domain: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f".{domain}." in name]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_policy_stands_the_robot_and_everything_ends(command, go2_bundle, domain):
    answer = command(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "seconds=2"
    )
    assert answer.code == 0, answer.err
    told = answer.out.splitlines()
    assert told[0] == "robot process is up; arming"
    assert any(line.startswith("policy  ") for line in told)
    assert told[-1] == "stopping softly"
    assert left_behind(domain) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_shadow_moves_nothing(deployed, domain):
    operator = deployed(mode="shadow")
    operator.arm()
    operator.watch(1.0)
    assert operator.status.safety is SafetyState.READY
    operator.stop()
    assert left_behind(domain) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_robot_holds_when_the_policy_is_killed(deploying, deployed):
    operator = deployed()
    operator.arm()
    operator.hand_over()
    operator.processes["policy"].kill()
    with pytest.raises(deploying.operator.DeploymentError, match=r"policy -> hold: command_late"):
        operator.watch(60.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_anybody_can_stop_it_and_nobody_moves_it_before_a_reset(deploying, deployed, domain):
    operator = deployed()
    operator.arm()
    operator.hand_over()
    trigger = message("std_srvs", "Trigger")
    somebody = RosSession("somebody", namespace="/go2", domain=domain)
    try:
        answer = somebody.call(trigger, "loop/estop", trigger.Request(), timeout=30)
        assert answer.success, answer.message
        with pytest.raises(deploying.operator.DeploymentError, match=r"'estop'.*estop_pressed"):
            operator.watch(30.0)
        with pytest.raises(deploying.operator.DeploymentError, match="the robot is in 'estop'"):
            operator.hand_over()
    finally:
        somebody.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_robot_holds_when_somebody_else_commands_too(deploying, deployed, domain):
    operator = deployed()
    operator.arm()
    operator.hand_over()
    somebody = RosSession("somebody", namespace="/go2", domain=domain)
    try:
        somebody.publisher("joint_command", message("sensor_msgs", "JointState"))
        with pytest.raises(
            deploying.operator.DeploymentError, match=r"second_publisher .2 send commands"
        ):
            operator.watch(30.0)
    finally:
        somebody.close()


@pytest.mark.slow
def test_bundle_of_another_robot_is_refused(refused, go2_bundle):
    said = refused("deploy", f"bundle={go2_bundle}", "robot=go1")
    assert "made for robot 'go2'" in said
    assert "name go1" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "which policy? bundle=runs/<run>/bundle"),
        (["bundle=nowhere"], "nowhere/provenance.json does not say"),
        (["bundle=x", "driver=twinn"], "driver 'twinn' is unknown (did you mean 'twin'?)"),
        (["bundle=x", "mode=shadows"], "did you mean 'shadow'"),
        (["bundle=x", "patience=0.5"], "patience must be >= 1, got 0.5"),
        (["bundle=x", "speed=3"], "option 'speed' is unknown"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_a_sentence(refused, here, arguments, told):
    assert told in refused("deploy", *arguments)


def test_help_says_what_the_stop_is_not(command):
    answer = command("deploy", "--help")
    assert answer.code == 0
    assert "no safety-rated emergency stop" in " ".join(answer.out.split())
    assert max(map(len, answer.out.splitlines())) <= 100
