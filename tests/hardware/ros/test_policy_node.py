"""A policy behind topics sees and does what it saw and did in simulation."""

import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.twin_builder import build_twin
from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import message
from hardware.ros.message_parts import put_stamp
from hardware.ros.policy_node import PolicyNode, gains_of
from hardware.ros.session import RosSession
from hardware.ros.state_messages import StateTopic, state_topics
from policies.bundle import load_bundle
from policies.runner import PolicyRunner
from robot_rl.core import quaternion
from robot_rl.core.errors import ShapeError
from robot_rl.core.robot_command import RobotCommand
from scripts.bench.deployment.scripted import observed_size, write_bundle
from sim.twin import Twin
from tests.compositions import composed
from tests.matrices import some
from tests.policies.conftest import SmallPolicy

TASKS = {
    "hover": ["robot=crazyflie"], "hover by rates": ["robot=crazyflie", "robot.action=body_rates"],
    "hover with an X500": ["robot=x500"], "lift": ["robot=panda"], "reach": ["robot=ur5e"],
    "motion": ["robot=go2"], "velocity": ["robot=go2"], "velocity of a G1": ["robot=g1"],
}  # fmt: skip
STEPS = 8


@dataclass
class Robot:
    """A twin that publishes what it measures, as a robot's driver would."""

    twin: Twin
    session: RosSession

    def __post_init__(self) -> None:
        self.topics: list[StateTopic] = state_topics(self.twin.spec)
        self.kinds = {t.name: message(t.package, t.message) for t in self.topics}
        self.publishers = {
            t.name: self.session.publisher(t.name, self.kinds[t.name]) for t in self.topics
        }
        numbers = message("std_msgs", "Float64MultiArray")
        stamped = message("sensor_msgs", "JointState")
        self.goals = {
            name: (self.session.publisher(f"goal/{name}", numbers, latched=True), numbers)
            for name in self.twin.goal
        }
        self.sensed = {
            name: (self.session.publisher(f"sensed/{name}", stamped), stamped)
            for name in self.twin.sensed
        }

    def wait_for_the_policy(self, *more: Any) -> None:
        """Wait until it listens to all measurements, and to more."""
        sent = (*self.publishers.values(), *more)
        self.session.wait_until(lambda: all(p.get_subscription_count() for p in sent), "the policy")

    def publish(self, stamp: int) -> None:
        state = {name: np.asarray(value) for name, value in self.twin.read().fields.items()}
        for topic in self.topics:
            packed = self.kinds[topic.name]()
            topic.pack(state, packed, stamp)
            self.publishers[topic.name].publish(packed)
        for name, (publisher, kind) in self.goals.items():
            packed = kind()
            packed.data = [float(value) for value in self.twin.goal[name][0]]
            publisher.publish(packed)
        for name, (publisher, kind) in self.sensed.items():
            packed = kind()
            packed.position = [float(value) for value in self.twin.sensed[name][0]]
            put_stamp(packed.header, stamp)
            publisher.publish(packed)


def make_bundle(task: str, folder: Path) -> tuple[Twin, PolicyRunner, PolicyRunner]:
    """A twin, and an untrained policy for it twice."""
    config = composed([f"task={task.partition(' ')[0]}", *TASKS[task]]).config
    twin = build_twin(config, seed=3)
    twin.connect()
    policy = SmallPolicy(observed_size(config, twin), config.robot.action_map(config.task).size)
    write_bundle(folder, config, twin, policy)
    first, second = (
        load_bundle(folder, robot=twin.spec, control_dt=twin.control_dt, num_robots=1)
        for _ in range(2)
    )
    return twin, first, second


@pytest.mark.slow
@pytest.mark.parametrize("task", some(["lift"], [task for task in TASKS if task != "lift"]))
def test_observation_and_action_are_those_of_the_simulation(task, sessions, tmp_path):
    twin, runner, direct = make_bundle(task, tmp_path / "bundle")
    robot = Robot(twin, sessions("driver"))
    node = PolicyNode(sessions("policy"), runner)
    messages = CommandMessages(twin.spec, gains_of(runner.spec), runner.spec.action_map.kind)
    heard = robot.session.newest(node.topic, message(messages.package, messages.message))
    robot.session.wait_until(lambda: heard.publishers == 1 == node.listeners, "the policy")
    others = [publisher for publisher, _ in (*robot.goals.values(), *robot.sensed.values())]
    robot.wait_for_the_policy(*others)
    for _ in range(STEPS):
        stamp = robot.session.now()
        robot.session.wait_until(partial(_has_all, node, robot, stamp), "all topics")
        node.rehearse()  # of which nobody hears
        tick = node.tick()
        assert tick.command is not None, tick.waits_for
        expected = direct.act(twin.read(), twin.goal, twin.sensed)
        np.testing.assert_allclose(
            runner.last_observation, direct.last_observation, atol=1e-6, rtol=0
        )
        np.testing.assert_allclose(runner.last_action, direct.last_action, atol=1e-6, rtol=0)
        command, answered = messages.unpack(heard.wait(robot.session, "a command"))
        assert answered == stamp, "a command says which measurement it answers"
        for name, value in vars(expected).items():
            if value is not None:
                np.testing.assert_allclose(getattr(command, name), value, atol=1e-6, rtol=1e-6)
        for _ in range(twin.steps_per_control):
            twin.write(command)


def _has_all(node: PolicyNode, robot: Robot, stamp: int) -> bool:
    """Whether everything has come; published again until it has, as streams may lose a sample."""
    robot.publish(stamp)
    inputs = node.inputs
    inputs.poll()
    same = all(
        np.allclose(inputs.state[name], value, atol=1e-9)
        for name, value in robot.twin.read().fields.items()
    )
    sent = {name: robot.twin.goal[name] for name in robot.goals}
    goals = all(np.allclose(inputs.goal[name], value) for name, value in sent.items())
    sensed = all(np.allclose(inputs.sensed[name], v) for name, v in robot.twin.sensed.items())
    return inputs.stamp == stamp and same and goals and sensed


@pytest.mark.slow
def test_policy_waits_and_says_for_what_and_its_gait_clock_runs_until_somebody_sends_one(
    sessions, tmp_path
):
    twin, runner, _ = make_bundle("velocity", tmp_path / "bundle")
    robot = Robot(twin, sessions("driver"))
    goals = {name: robot.goals.pop(name) for name in ("clock", "velocity_b")}
    node = PolicyNode(sessions("policy"), runner, shadow=True)
    assert node.topic == "shadow/joint_command"

    def tell(name: str, values: list[float]) -> None:
        publisher, kind = goals[name]
        told = kind()
        told.data = values
        publisher.publish(told)
        robot.session.wait_until(lambda: name in _heard_goals(node), name)

    waits = node.tick()
    assert waits.command is None
    assert "joint_states, imu/data" in waits.waits_for
    assert "goal/velocity_b" in waits.waits_for
    robot.wait_for_the_policy()
    tell("velocity_b", [0.4, 0.0, 0.0])
    old = robot.session.now() - 2_000_000_000
    robot.session.wait_until(partial(_has_all, node, robot, old), "measurements")
    assert "too old: joint_states (2." in node.tick().waits_for
    cycle = runner.spec.clocks["clock"].period / runner.spec.control_dt
    for step in range(5):
        stamp = robot.session.now()
        robot.session.wait_until(partial(_has_all, node, robot, stamp), "measurements")
        assert node.tick().command is not None
        angle = 2 * np.pi * step / cycle
        np.testing.assert_allclose(node.inputs.goal["clock"], [[np.sin(angle), np.cos(angle)]])
    tell("clock", [0.6, 0.8])
    assert node.tick().command is not None
    np.testing.assert_array_equal(node.inputs.goal["clock"], [[0.6, 0.8]])
    with pytest.raises(ShapeError, match="goal 'velocity_b' has 2 numbers, the policy takes 3"):
        PolicyNode(sessions("other"), runner, goals={"velocity_b": np.zeros((1, 2))})


@pytest.mark.slow
def test_a_clip_is_played_where_nobody_sends_its_goals(sessions, tmp_path):
    twin, runner, _ = make_bundle("motion", tmp_path / "bundle")
    robot = Robot(twin, sessions("driver"))
    publisher, kind = robot.goals["reference_joints"]
    robot.goals = {}
    node = PolicyNode(sessions("policy"), runner)
    robot.wait_for_the_policy()
    assert runner.spec.playback is not None
    rows = np.array(runner.spec.playback.goals["reference_joints"])
    for step in range(len(rows) + 3):
        stamp = robot.session.now()
        robot.session.wait_until(partial(_has_all, node, robot, stamp), "measurements")
        tick = node.tick()
        assert tick.command is not None, tick.waits_for
        row = rows[step % len(rows)]
        np.testing.assert_allclose(node.inputs.goal["reference_joints"], [row], err_msg=f"{step}")
    # It looks where the robot looked as it began, whatever its compass says.
    matrix = quaternion.rotation_matrix(node.inputs.state["orientation_w"])
    np.testing.assert_allclose(
        quaternion.heading(node.inputs.goal["orientation_matrix_w"]),
        quaternion.heading(matrix), atol=1e-6,
    )  # fmt: skip
    told = kind()
    told.data = [0.1] * 12
    publisher.publish(told)
    robot.session.wait_until(lambda: "reference_joints" in _heard_goals(node), "the goal")
    assert node.tick().command is not None
    np.testing.assert_array_equal(node.inputs.goal["reference_joints"], [[0.1] * 12])


@pytest.mark.slow
def test_policy_decides_nothing_on_measurements_of_two_senders_or_of_the_future(sessions, tmp_path):
    twin, runner, _ = make_bundle("velocity", tmp_path / "bundle")
    robot = Robot(twin, sessions("driver"))
    node = PolicyNode(sessions("policy"), runner)
    robot.wait_for_the_policy()

    def tick(lead: int = 0) -> str:
        stamp = robot.session.now() + lead
        robot.session.wait_until(partial(_has_all, node, robot, stamp), "measurements")
        tick = node.tick()
        assert (tick.command is None) is bool(tick.waits_for)
        return tick.waits_for

    assert tick() == ""
    ahead = tick(3_600_000_000_000)  # less what the messages took, which may be nothing in print
    told = r"measurements lie in the future: joint_states \((3599\.\d+|3600\.000) s"
    assert re.match(told, ahead)
    assert tick() == "", "the later ones count"
    topic = robot.topics[0]
    stranger = sessions("stranger")
    stranger.publisher(topic.name, robot.kinds[topic.name])
    robot.session.wait_until(lambda: stranger.node.count_publishers(topic.name) == 2, "both")
    end = time.monotonic() + 30
    while not (waits_for := tick()):
        assert time.monotonic() < end
    assert waits_for.startswith("2 publish /robot/joint_states: ros2 topic info -v")
    stranger.close()
    while tick():
        assert time.monotonic() < end


@pytest.mark.slow
def test_what_a_policy_would_have_done_is_not_remembered(sessions, tmp_path):
    """Until it is in charge every step is a first one: rotors that stood still did not obey."""
    twin, runner, direct = make_bundle("hover by rates", tmp_path / "bundle")
    robot = Robot(twin, sessions("driver"))
    kind = message("diagnostic_msgs", "DiagnosticStatus")
    safety = robot.session.publisher("safety/state", kind, latched=True)
    node = PolicyNode(sessions("policy"), runner)
    assert node.topic == "rates_thrust_setpoint"
    robot.wait_for_the_policy(safety)

    def tick(state: str, expected: RobotCommand) -> np.ndarray:
        told = kind()
        told.message = state
        safety.publish(told)
        time.sleep(0.2)  # nothing tells that it has come
        stamp = robot.session.now()
        robot.session.wait_until(partial(_has_all, node, robot, stamp), "measurements")
        command = node.tick().command
        for name, value in vars(expected).items():
            np.testing.assert_allclose(getattr(command, name), value, atol=1e-6, rtol=1e-6)
        return runner.last_observation.copy()

    command = direct.act(twin.read(), twin.goal, twin.sensed)
    first = direct.last_observation.copy()
    for _ in range(3):
        np.testing.assert_allclose(tick("ready", command), first, atol=1e-6)
    second = tick("policy", direct.act(twin.read(), twin.goal, twin.sensed))
    np.testing.assert_allclose(second, direct.last_observation, atol=1e-6)
    assert np.abs(second - first).max() > 1e-3, "the step at the hand-over was done"
    np.testing.assert_allclose(tick("hold", command), first, atol=1e-6)


def _heard_goals(node: PolicyNode) -> set[str]:
    node.inputs.poll()
    return node.inputs.sent_goals
