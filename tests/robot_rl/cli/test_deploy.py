"""`robot-rl deploy`: robot, topics and policy in processes of their own, over real ROS 2."""

import fcntl
import os
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from hardware.control.ipc import StatusSubscriber
from hardware.control.safety import SafetyState
from hardware.ros.compat import inspect_environment, message
from hardware.ros.session import RosSession
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import clean_environ
from tests.robot_rl.cli.deployments import PATIENT, left_behind
from tests.robot_rl.cli.linear_policies import write_holding_policy
from tests.robot_rl.cli.tiny_run import ROOT

pytestmark = [
    pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed"),
]


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


class Heard:
    """What somebody on the robot's topics hears."""

    def __init__(self, session: RosSession, topics: Mapping[str, str]) -> None:
        self._session = session
        self._newest = {
            topic: session.newest(
                topic, message(*kind.split("/")), latched=topic.startswith("goal/")
            )
            for topic, kind in topics.items()
        }

    def wait(self, topic: str) -> Any:
        return self._newest[topic].wait(self._session, topic, timeout=60.0)

    def position(self, topic: str) -> np.ndarray:
        """Of a pose, with or without more around it, [m]."""
        pose = self.wait(topic).pose
        point = getattr(pose, "pose", pose).position
        return np.array([point.x, point.y, point.z])


@pytest.fixture
def listening(domain) -> Iterator[Callable[[str, Mapping[str, str]], Heard]]:
    """Hear topics of a robot until the test is over."""
    sessions: list[RosSession] = []

    def start(robot: str, topics: Mapping[str, str]) -> Heard:
        sessions.append(RosSession("listener", namespace=f"/{robot}", domain=domain))
        return Heard(sessions[-1], topics)

    yield start
    for session in sessions:
        session.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_arm_goes_to_the_goal_and_stays_up_when_it_is_stopped(
    deployed, listening, reach_bundle, domain
):
    """Gravity is compensated in a Panda: without stiffness it does not fall."""
    operator = deployed(bundle=str(reach_bundle))
    heard = listening("panda", {
        "ee_pose": "geometry_msgs/PoseStamped", "joint_states": "sensor_msgs/JointState",
        "goal/end_effector_position_b": "std_msgs/Float64MultiArray",
    })  # fmt: skip
    operator.arm()
    goal = np.array(heard.wait("goal/end_effector_position_b").data)
    before = np.linalg.norm(heard.position("ee_pose") - goal)
    operator.hand_over()
    operator.watch(8.0)
    after = np.linalg.norm(heard.position("ee_pose") - goal)
    assert operator.status.safety is SafetyState.POLICY
    held = np.array(heard.wait("joint_states").position[:7])
    operator.stop()
    stopped = np.array(heard.wait("joint_states").position[:7])
    assert after < 0.03 < before
    np.testing.assert_allclose(stopped, held, atol=0.05)
    assert left_behind(domain) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_arm_whose_task_has_a_pose_of_its_own_is_armed_there(deployed, listening, tmp_path):
    """From the default pose every first target of such a policy was a jump, and refused."""
    operator = deployed(bundle=str(write_holding_policy(tmp_path / "peg", "peg")), arm_at="policy")
    heard = listening("panda", {"joint_states": "sensor_msgs/JointState"})
    operator.arm()
    middle = np.array(operator.parts.arming_pose)
    assert operator.plan.detour == pytest.approx(np.abs(middle - operator_default(operator)).max())
    assert operator.plan.detour > operator.parts.limits.first_command_jump
    armed = np.array(heard.wait("joint_states").position[:7])
    np.testing.assert_allclose(armed, middle, atol=0.02)
    operator.hand_over()
    operator.watch(2.0)
    assert operator.status.safety is SafetyState.POLICY
    asked = np.array(heard.wait("joint_states").position[:7])
    np.testing.assert_allclose(asked, middle + 0.4 / 3, atol=0.03)


def operator_default(operator) -> np.ndarray:
    return np.array([joint.default_position for joint in operator.parts.robot.joints])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_drone_hovers_by_body_rates_that_its_own_process_follows(
    deployed, listening, rates_bundle, domain
):
    operator = deployed(bundle=str(rates_bundle))
    heard = listening("crazyflie", {
        "odom": "nav_msgs/Odometry", "rates_thrust_setpoint": "geometry_msgs/TwistStamped",
    })  # fmt: skip
    operator.arm()
    operator.hand_over()
    operator.watch(6.0)
    away = np.linalg.norm(heard.position("odom"))
    thrust = heard.wait("rates_thrust_setpoint").twist.linear.z
    assert operator.status.safety is SafetyState.POLICY
    operator.stop()
    assert away < 0.15
    assert 0.3 < thrust < 0.6, "near the share of the largest thrust that carries it"
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
@pytest.mark.timeout(300)
@pytest.mark.parametrize("closed", [False, True])
def test_ctrl_c_and_a_closed_terminal_stop_softly(deploying, go2_bundle, domain, closed):
    """They reach the children too; and nobody can write to a terminal that is gone."""
    options = deploying.plan.DeployOptions(bundle=str(go2_bundle), domain=domain)
    status = StatusSubscriber(deploying.plan.Deployment(options).channels.status)
    arguments = [f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}"]
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli", "deploy", *arguments],
        env=clean_environ(), start_new_session=True, stdin=theirs, stdout=theirs, stderr=theirs,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    seen: list[Any] = []
    try:
        while not seen or seen[-1].safety is not SafetyState.POLICY:
            seen = [one] if (one := status.newest()) else []
            assert process.poll() is None
            with suppress(BlockingIOError):
                os.read(ours, 4096)
            time.sleep(0.002)
        if closed:
            os.close(ours)
        else:
            os.write(ours, b"\x03")  # the kernel makes a SIGINT of it for everybody
        while process.poll() is None:
            seen += [one] if (one := status.newest()) else []
            time.sleep(0.002)
    finally:
        status.close()
        process.kill()
        if not closed:
            os.close(ours)
    fading = [one.time for one in seen if one.safety is SafetyState.SAFE_STOP]
    assert fading, "the stop was hard"
    assert fading[-1] - fading[0] > 0.9, "stiffness fades for a second"
    assert process.returncode == 0
    assert left_behind(domain) == []


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
        (["bundle=x", "delay=0.1"], "'delay' is an option of driver=fake, but driver=twin"),
        (["bundle=x", "driver=fake", "command=positions"], "'command' is an option of driver=ros2"),
        (["bundle=x", "driver=fake", "dropout=2"], "dropout in [0, 1), got delay=0.0"),
        (["bundle=x", "mode=shadows"], "did you mean 'shadow'"),
        (["bundle=x", "arm_at=robots"], "pose to arm at 'robots' is unknown (did you mean 'robot'"),
        (["bundle=x", "patience=0.5"], "patience must be >= 1, got 0.5"),
        (["bundle=x", "domain=233"], "domain must lie in 0 to 232, or be -1 for that of the env"),
        (["bundle=x", "namespace=a b"], "namespace '/a b' is no name in ROS; expected words"),
        (["bundle=x", "speed=3"], "option 'speed' is unknown"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_a_sentence(refused, here, arguments, told):
    assert told in refused("deploy", *arguments)


def test_domain_of_the_environment_is_the_same_as_one_that_is_given(deploying, monkeypatch):
    """Of two deployments in one domain the second finds the channels of the first busy."""

    def plan(domain: int) -> Any:
        return deploying.plan.Deployment(
            deploying.plan.DeployOptions(bundle="x", namespace="go2", domain=domain)
        )

    for around, number in (("", 0), ("0", 0), ("7", 7)):
        monkeypatch.setenv("ROS_DOMAIN_ID", around)
        assert plan(-1).channels.robot == plan(number).channels.robot
        assert plan(-1).domain == number
    monkeypatch.setenv("ROS_DOMAIN_ID", "seven")
    with pytest.raises(ConfigError, match="ROS_DOMAIN_ID=seven stands in the environment"):
        _ = plan(-1).domain


def test_processes_beside_the_twin_need_no_simulator_and_no_torch():
    code = (
        "import sys, robot_rl.cli.deployment.processes, robot_rl.cli.deployment.recording\n"
        "print([n for n in ('torch', 'mujoco', 'warp', 'hydra', 'sim', 'configs') "
        "if n in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=clean_environ(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "[]"


def test_help_says_what_the_stop_is_not(command):
    answer = command("deploy", "--help")
    assert answer.code == 0
    assert "no safety-rated emergency stop" in " ".join(answer.out.split())
    assert max(map(len, answer.out.splitlines())) <= 100
