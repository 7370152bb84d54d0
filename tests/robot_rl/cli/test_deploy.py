"""`robot-rl deploy`: robot, topics and policy in processes of their own, over real ROS 2."""

import fcntl
import json
import math
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from hardware.control.ipc import ArraySubscriber, StatusSubscriber
from hardware.control.safety import SafetyState
from hardware.controllers import rotations
from hardware.ros.compat import message
from hardware.ros.message_parts import put_stamp
from hardware.ros.session import RosSession
from policies.zoo.catalog import bundle_folder
from robot_rl.cli.deployment.operator import DeploymentError, Operator
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.main import main
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import clean_environ
from robot_rl.core.robot import RobotSpec
from scripts.bench.deployment.scripted import (
    write_constant_policy,
    write_rates_policy,
    write_reaching_policy,
)
from tests.robot_rl.cli.deployments import (
    PATIENT,
    WITHOUT_ROS,
    Witness,
    bring_to_policy,
    call,
    left_behind,
    running,
    session,
    status_of,
    within,
)
from tests.robot_rl.cli.tiny_run import python

pytestmark = [
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.timeout(400),
]
FACTOR = 10.0
"""Patience where time-outs are looked at: they are of 0.6 s and 1.2 s."""
MARGIN = 0.02
"""By how much a safe command may come later than the time-out [s]."""
STOPPED = (SafetyState.HOLD, SafetyState.SAFE_STOP)
HARMLESS = 1e-9
GARBLED = {
    "lengths": "a message has 12 joint names and 5 values", "nan": "q is [[",
    "names": "a message lacks ['FL_hip_joint']",
    "gains": "gain set 'stiffest' is unknown", "stale": "newest command is 36",
}  # fmt: skip
"""Faults of commands, and the words of the robot for each."""


class Sender:
    """Another publisher of commands, at a given rate."""

    def __init__(self, domain: int, make: Callable[[Any], None], pause: float = 0.0) -> None:
        self.sent = 0
        self._session = RosSession("stranger", namespace="/go2", domain=domain)
        self._kind = message("sensor_msgs", "JointState")
        self._publisher = self._session.publisher("joint_command", self._kind)
        self._make, self._pause, self._over = make, pause, threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._session.close()

    def _work(self) -> None:
        while not self._over.wait(self._pause) if self._pause else not self._over.is_set():
            packed = self._kind()
            put_stamp(packed.header, self._session.now())
            self._make(packed)
            self._publisher.publish(packed)
            self.sent += 1


def commands(spec: RobotSpec, gains: str, fault: str = "") -> Callable[[Any], None]:
    """The default pose, which would be followed, or something that must not be."""

    def make(packed: Any) -> None:
        packed.header.frame_id = gains
        packed.name = spec.joint_names
        packed.position = array("d", [joint.default_position for joint in spec.joints])
        match fault:
            case "lengths":
                packed.position = array("d", [0.0] * 5)
            case "nan":
                packed.position[3] = float("nan")
            case "names":
                packed.name = ["wheel", *spec.joint_names[1:]]
            case "gains":
                packed.header.frame_id = "stiffest"
            case "stale":
                packed.header.stamp.sec -= 3600

    return make


def main_code(*words: str) -> int:
    """Exit code of a command of a second terminal, which runs in this process."""
    try:
        main(words)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def age_at(trip: str) -> float:
    """Age of the newest command when the loop acted, by the loop's own clock [s]."""
    found = re.search(r"newest command is (\d+) ms old", trip)
    assert found, trip
    return int(found[1]) * 1e-3


@pytest.fixture(scope="class")
def deployment(go2_bundle, domain) -> Iterator[Operator]:
    with running(domain, bundle=go2_bundle, patience=FACTOR) as operator:
        yield operator


@pytest.fixture
def witnessed(deployment) -> Iterator[tuple[Operator, Witness]]:
    bring_to_policy(deployment)
    witness = Witness(deployment.parts)
    yield deployment, witness
    witness.close()
    assert max(witness.excess.values()) < HARMLESS, witness.excess


@pytest.mark.slow
class TestOneDeployment:
    """A standing go2 to which one thing after the other happens, each from a policy in charge."""

    def test_names_of_gains_are_told_to_who_comes_late(self, witnessed, domain):
        operator, _ = witnessed
        with session("somebody", domain) as somebody:
            newest = somebody.newest("gain_sets", message("std_msgs", "String"), latched=True)
            told = json.loads(newest.wait(somebody, "the gain sets", timeout=60).data)
        assert [*told] == operator.parts.gain_names
        assert told[operator.parts.gain_names[0]]["stiffness"]["FL_hip_joint"] == 40.0

    def test_anybody_can_stop_it_and_nobody_moves_it_before_a_reset(self, witnessed, domain):
        operator, _ = witnessed
        answer = call(domain, "estop")
        assert answer.success, answer.message
        assert not operator.watch(1.0)
        assert status_of(operator).safety is SafetyState.ESTOP
        with pytest.raises(DeploymentError, match="the robot is in 'estop'"):
            operator.hand_over()

    def test_what_a_person_stopped_goes_on_when_the_person_says_so(self, witnessed):
        operator, _ = witnessed
        which = [f"namespace={operator.plan.namespace}", f"domain={operator.plan.domain}"]
        for command, ends_in in (("hold", SafetyState.HOLD), ("estop", SafetyState.ESTOP)):
            assert main_code(command, *which) == 0
            operator.watch(1.0)
            assert status_of(operator).safety is ends_in
            if ends_in is SafetyState.ESTOP:
                assert main_code("reset", *which) == 0
            assert main_code("arm", *which) == 0
            assert within(30, lambda: main_code("policy", *which) == 0)
            operator.watch(0.5)
            assert status_of(operator).safety is SafetyState.POLICY

    def test_second_deployment_of_the_robot_is_refused_and_disturbs_nobody(self, witnessed):
        operator, _ = witnessed
        options = operator.plan.options
        with pytest.raises(DeploymentError, match="a robot process runs /go2 in ROS domain"):
            Operator(options, say=lambda _: None)
        operator.watch(1.0)
        assert status_of(operator).safety is SafetyState.POLICY

    def test_robot_holds_when_somebody_else_commands_too(self, witnessed, domain):
        operator, _ = witnessed
        with session("somebody", domain) as somebody:
            somebody.publisher("joint_command", message("sensor_msgs", "JointState"))
            with pytest.raises(DeploymentError, match=r"second_publisher .2 send commands"):
                operator.watch(30.0)

    def test_stopped_policy_is_stopped_for_and_does_not_take_over_again(self, witnessed):
        operator, witness = witnessed
        policy, limits = operator.processes["policy"].pid, operator.parts.limits
        os.kill(policy, signal.SIGSTOP)
        try:
            for safety, cause, after in (
                (SafetyState.HOLD, "policy -> hold: command_late", limits.command_late),
                (SafetyState.SAFE_STOP, "hold -> safe_stop: ", limits.command_lost),
            ):
                assert within(30, lambda of=safety: witness.entered(of) is not None)
                status = witness.entered(safety)
                assert status.trip.startswith(cause)
                assert after <= age_at(status.trip) + 1e-3 <= after + MARGIN
        finally:
            os.kill(policy, signal.SIGCONT)
        before = witness.newest_command
        assert within(30, lambda: witness.newest_command > before), "it sends commands again"
        ticks = status_of(operator).ticks
        assert within(30, lambda: status_of(operator).ticks > ticks + 200)
        assert status_of(operator).safety is SafetyState.SAFE_STOP

    def test_flooded_commands_hold_the_robot_and_it_can_still_be_stopped(self, witnessed, domain):
        operator, _ = witnessed
        parts = operator.parts
        with Sender(domain, commands(parts.robot, parts.gain_names[0])) as sender:
            begin = time.monotonic()
            assert within(30, lambda: status_of(operator).safety in STOPPED)
            trip = status_of(operator).trip
            assert "second_publisher" in trip or "command_" in trip
            call(domain, "estop")
            assert within(30, lambda: status_of(operator).safety is SafetyState.ESTOP)
            rate = sender.sent / (time.monotonic() - begin)
        assert rate > 200, "this was no flood: a policy of this robot sends 50 a second"

    def test_robot_holds_when_the_policy_is_killed(self, witnessed):  # the last: it stays dead
        operator, _ = witnessed
        operator.processes["policy"].kill()
        with pytest.raises(DeploymentError, match=r"policy -> hold: command_late"):
            operator.watch(60.0)


@pytest.mark.slow
def test_robot_process_that_is_stopped_is_shown_as_one_that_does_not_answer(go2_bundle, domain):
    lines: list[str] = []
    options = {"driver": "fake", "patience": PATIENT}
    with (
        running(domain, bundle=go2_bundle, say=lines.append, **options) as operator,
        session("somebody", domain) as somebody,
    ):
        kind = message("diagnostic_msgs", "DiagnosticStatus")
        safety = somebody.newest("safety/state", kind, latched=True)
        newest = somebody.newest("/diagnostics", message("diagnostic_msgs", "DiagnosticArray"))
        bring_to_policy(operator)
        operator.watch(0.2)
        robot = operator.processes["robot"].pid
        assert robot is not None
        del lines[:]
        os.kill(robot, signal.SIGSTOP)
        begin = time.monotonic()
        try:
            operator.watch(0.5)
            assert "the robot process has not answered for 0." in lines[-1], lines
            operator.watch(1.2)
            found = re.search(
                r"has not answered for (\d\.\d) s; before:  policy +state +(\d+)\.", lines[-1]
            )
            assert found, lines
            silent = time.monotonic() - begin
            assert silent - 0.6 < float(found[1]) <= silent + 0.05, "of the last line"
            assert 1e3 * (float(found[1]) - 0.06) < float(found[2]), "the state is as old as that"
            told = safety.wait(somebody, "the state of safety")
            assert told.level == b"\x03"
            assert "the robot process has not answered for" in told.message
            (of_loop,) = newest.wait(somebody, "diagnostics").status
            assert of_loop.level == b"\x03"
            answer = call(domain, "policy")
            assert not answer.success
            assert "has not answered" in answer.message
        finally:
            os.kill(robot, signal.SIGCONT)
        assert within(30, lambda: status_of(operator).safety in STOPPED)
        stopped = [state.value for state in STOPPED]
        assert within(30, lambda: (got := safety.take()) is not None and got.message in stopped)


@pytest.mark.slow
def test_clean_stop_ends_without_a_question(go2_bundle, domain):
    words = [f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "seconds=1"]
    done = subprocess.run(
        [sys.executable, "-m", "robot_rl.cli", "deploy", *words, "driver=fake"],
        env=clean_environ(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, _, after = (done.stdout + done.stderr).partition("stopping softly")
    assert "the policy is in charge" in before
    assert after.strip() == "", "nothing of what ends asks whether something else is alive"


@pytest.mark.slow
def test_in_shadow_nothing_moves_and_nobody_takes_over_with_garbled_commands(go2_bundle, domain):
    """They are the only ones there, so nothing but the commands themselves is wrong."""
    with running(domain, bundle=go2_bundle, patience=FACTOR, mode="shadow") as operator:
        operator.arm()
        operator.watch(1.0)
        assert status_of(operator).safety is SafetyState.READY
        parts = operator.parts
        for how, told in GARBLED.items():
            make = commands(parts.robot, parts.gain_names[0], how)
            with Sender(domain, make, pause=0.002) as sender:
                assert within(30, lambda of=sender: of.sent > 200)
                begin = status_of(operator).ticks

                def refused(reason: str = f"policy_silent ({told}") -> bool:
                    call(domain, "policy")  # again: the bridge may not hear the sender yet
                    return reason in status_of(operator).refused

                assert within(60, refused), (how, status_of(operator))
                assert within(30, lambda first=begin: status_of(operator).ticks > first + 100)
                assert status_of(operator).safety is SafetyState.READY, how


class Heard:
    """Newest messages that somebody on the robot's topics hears."""

    def __init__(self, node: RosSession, topics: Mapping[str, str]) -> None:
        self._node = node
        self._newest = {
            topic: node.newest(topic, message(*kind.split("/")), latched=topic.startswith("goal/"))
            for topic, kind in topics.items()
        }

    def wait(self, topic: str) -> Any:
        return self._newest[topic].wait(self._node, topic, timeout=60.0)

    def joints(self) -> np.ndarray:
        return np.array(self.wait("joint_states").position[:7])

    def position(self, topic: str) -> np.ndarray:
        """Of a pose, with or without more around it, [m]."""
        pose = self.wait(topic).pose
        point = getattr(pose, "pose", pose).position
        return np.array([point.x, point.y, point.z])


def until_true(operator: Operator, ready: Callable[[], bool]) -> None:
    """Let the policy go on until something comes true."""
    end = time.monotonic() + 60.0
    while not ready():
        assert time.monotonic() < end
        operator.watch(0.3)
    assert status_of(operator).safety is SafetyState.POLICY


@pytest.mark.slow
def test_arm_goes_to_the_goal_and_stays_up_when_it_is_stopped(domain, tmp_path):
    """Gravity is compensated in a Panda: without stiffness it does not fall."""
    bundle = write_reaching_policy(tmp_path / "reach")
    given = {"end_effector_position_b": [0.45, 0.15, 0.45]}  # instead of what the world draws
    with (
        running(domain, bundle=bundle, goal=given) as operator,
        session("o", domain, "/panda") as node,
    ):
        heard = Heard(node, {
            "ee_pose": "geometry_msgs/PoseStamped", "joint_states": "sensor_msgs/JointState",
            "goal/end_effector_position_b": "std_msgs/Float64MultiArray",
        })  # fmt: skip
        operator.arm()
        goal = np.array(heard.wait("goal/end_effector_position_b").data)
        assert goal.tolist() == given["end_effector_position_b"]

        def distance() -> float:
            return float(np.linalg.norm(heard.position("ee_pose") - goal))

        assert distance() > 0.03
        operator.hand_over()
        until_true(operator, lambda: distance() < 0.03)
        held = heard.joints()
        operator.stop()
        np.testing.assert_allclose(heard.joints(), held, atol=0.05)


@pytest.mark.slow
def test_arm_whose_task_has_a_pose_of_its_own_is_armed_there(domain, tmp_path):
    """From the default pose every first target of such a policy was a jump, and refused."""
    bundle = write_constant_policy(tmp_path / "peg", 1 / 3, "task=peg", "robot=panda")
    plan = Deployment(DeployOptions(bundle=str(bundle), domain=domain))
    parts = plan.parts()
    middle = np.array(parts.arming_pose)
    low, high = np.array([joint.position_limit for joint in parts.robot.joints]).T
    default = np.array([joint.default_position for joint in parts.robot.joints])
    assert ((low <= middle) & (middle <= high)).all()
    assert plan.detour == pytest.approx(np.abs(middle - default).max())
    assert plan.detour > parts.limits.first_command_jump
    assert parts.stop.pose == parts.arming_pose
    options = DeployOptions(bundle=str(bundle), domain=domain, arm_at="robot")
    at_robot = Deployment(options).parts()
    assert (at_robot.arming_pose, at_robot.stop.pose) == ((), ())


@pytest.mark.slow
def test_robot_that_lies_is_armed_there_and_got_up(domain):
    """Arming stopped at its lean, and its first target, far from where it lay, was a jump."""
    with running(domain, bundle=bundle_folder("zoo:go2-stand-up"), seed=3) as operator:
        states = ArraySubscriber(operator.parts.channels.state, operator.parts.robot.state_widths)
        newest: list[float] = []
        assert operator.parts.limits.tilt == pytest.approx(math.pi)

        def up() -> float:
            """Cosine of the lean."""
            if (found := states.newer()) is not None:
                newest.append(
                    rotations.vertical(rotations.quaternion(found[0]["orientation_w"]))[2]
                )
            return newest[-1]

        operator.arm()
        before = up()
        operator.hand_over()
        until_true(operator, lambda: up() > 0.97)
        assert before < 0.9
    walks = str(bundle_folder("zoo:go2-velocity"))
    plan = Deployment(DeployOptions(bundle=walks, domain=domain))
    assert not plan.arms_in_place
    assert plan.limits().tilt < math.pi / 2


@pytest.mark.slow
def test_drone_hovers_by_body_rates_that_its_own_process_follows(domain, tmp_path):
    bundle = write_rates_policy(tmp_path / "rates")
    with running(domain, bundle=bundle) as operator, session("o", domain, "/crazyflie") as o:
        heard = Heard(o, {
            "odom": "nav_msgs/Odometry", "rates_thrust_setpoint": "geometry_msgs/TwistStamped",
        })  # fmt: skip
        operator.arm()
        operator.hand_over()
        operator.watch(5.0)
        away = np.linalg.norm(heard.position("odom"))
        thrust = heard.wait("rates_thrust_setpoint").twist.linear.z
        assert status_of(operator).safety is SafetyState.POLICY
    assert away < 0.15
    assert 0.3 < thrust < 0.6, "near the share of the largest thrust that carries it"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["ctrl-c", "closed terminal", "killed"])
def test_however_the_operator_ends_the_robot_stops_softly(go2_bundle, domain, end):
    """Signals reach the children too, nobody can write to a terminal that is gone, and an operator
    who is killed, as when memory is used up, says nothing to anybody."""
    options = DeployOptions(bundle=str(go2_bundle), domain=domain)
    status = StatusSubscriber(Deployment(options).channels.status)
    arguments = [f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "driver=fake"]
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
        match end:
            case "ctrl-c":
                os.write(ours, b"\x03")  # the kernel makes a SIGINT of it for everybody
            case "killed":
                process.kill()
            case _:
                os.close(ours)
        look_at = 0.0
        while time.monotonic() < look_at or alive(process.pid):
            if time.monotonic() >= look_at:  # finer than processes can be looked for
                look_at = time.monotonic() + 0.2
            seen += [one] if (one := status.newest()) else []
            process.poll()
            time.sleep(0.002)
    finally:
        status.close()
        for number in alive(process.pid):
            os.kill(number, signal.SIGKILL)
        if end != "closed terminal":
            os.close(ours)
    fading = [one.time for one in seen if one.safety is SafetyState.SAFE_STOP]
    assert fading, "the stop was hard"
    assert fading[-1] - fading[0] > 0.9, "stiffness fades for a second"
    assert process.wait() == (-signal.SIGKILL if end == "killed" else 0)
    assert left_behind(domain) == []


def alive(group: int) -> list[int]:
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()  # noqa: SIM115
        except (OSError, IndexError):
            continue
        if entry.isdigit() and int(fields[3]) == group and fields[0] != "Z":
            found.append(int(entry))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.full)])
def test_fake_robot_stands_and_starts_and_stops_leave_nothing(go2_bundle, domain, times):
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def leftovers() -> set[int]:
        """Ports of this domain in shared memory; other segments do not say whose they are."""
        lowest = 7400 + 250 * domain
        found = [re.search(r"fastdds_port(\d+)", name) for name in os.listdir("/dev/shm")]
        return {int(port[1]) for port in found if port and 0 <= int(port[1]) - lowest < 250}

    faults: dict[str, Any] = {"delay": 0.005, "noise": 1.0, "dropout": 0.1}
    with running(domain, bundle=go2_bundle, driver="fake", **faults) as first:
        first.arm()
        first.hand_over()
        first.watch(1.0)
    files, memory, threads = open_files(), leftovers(), threading.active_count()
    started = [first]
    for _ in range(times - 1):
        with running(domain, bundle=go2_bundle, driver="fake") as operator:
            started.append(operator)
            operator.arm()
    assert all([*one.exit_codes.values()] == [0, 0, 0] for one in started)
    assert open_files() <= files
    # The lock of a port stays, for whoever has the port next: those of one cycle serve all.
    assert len(leftovers() - memory) <= len(first.exit_codes), (memory, leftovers())
    assert threading.active_count() <= threads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["robot=go1"], "made for robot 'go2'"),
        (
            ["driver=fake", "goal={velocity_b:[1]}"],
            "goal 'velocity_b' takes 3 finite numbers, got [1]",
        ),
        (["driver=fake", "goal={speed:[1]}"], "goal 'speed' is unknown"),
    ],
)
def test_what_does_not_fit_the_bundle_is_refused(refused, go2_bundle, arguments, told):
    assert told in refused("deploy", f"bundle={go2_bundle}", *arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "which policy? bundle=runs/<run>/bundle"),
        (["bundle=nowhere"], "bundle 'nowhere' is not a folder"),
        (["bundle=x", "driver=twinn"], "driver 'twinn' is unknown (did you mean 'twin'?)"),
        (["bundle=x", "delay=0.1"], "'delay' is an option of driver=fake, but driver=twin"),
        (["bundle=x", "driver=fake", "dropout=2"], "dropout in [0, 1), got delay=0.0"),
        (["bundle=x", "arm_at=robots"], "pose to arm at 'robots' is unknown (did you mean 'robot'"),
        (["bundle=x", "domain=233"], "domain must lie in 0 to 232, or be -1 for that of the env"),
        (["bundle=x", "namespace=a b"], "namespace '/a b' is no name in ROS; expected words"),
        (["bundle=x", "record=."], "record=. exists already; name a new folder"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_a_sentence(refused, here, arguments, told):
    assert told in refused("deploy", *arguments)


def test_domain_of_the_environment_is_the_same_as_one_that_is_given(monkeypatch):
    """Of two deployments in one domain the second finds the channels of the first busy."""

    def plan(domain: int) -> Any:
        return Deployment(DeployOptions(bundle="x", namespace="go2", domain=domain))

    for around, number in (("", 0), ("0", 0), ("7", 7)):
        monkeypatch.setenv("ROS_DOMAIN_ID", around)
        assert plan(-1).channels.robot == plan(number).channels.robot
        assert plan(-1).domain == number
    monkeypatch.setenv("ROS_DOMAIN_ID", "seven")
    with pytest.raises(ConfigError, match="ROS_DOMAIN_ID=seven stands in the environment"):
        _ = plan(-1).domain


@pytest.mark.slow
def test_processes_beside_the_twin_need_no_simulator_and_no_torch_and_a_replay_no_ros_either():
    code = (
        "import sys, hardware.recording.replay, policies.bundle\n"
        "print([name for name in ('torch', 'rclpy', 'sensor_msgs') if name in sys.modules])\n"
        "import robot_rl.cli.deployment.processes, robot_rl.cli.deployment.recording\n"
        "print([name for name in ('torch', 'mujoco', 'warp', 'hydra', 'sim', 'configs') "
        "if name in sys.modules])"
    )
    assert python("-c", code, check=True).stdout.split() == ["[]", "[]"]
