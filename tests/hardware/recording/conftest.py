"""A run of an untrained policy over real ROS 2, recorded."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from hardware.recording.recorder import Recorder
from hardware.ros.compat import inspect_environment
from hardware.ros.policy_node import PolicyNode
from hardware.ros.policy_step import STEP_TOPIC, PolicyStep
from hardware.ros.session import RosSession
from policies.bundle import bundle_digest
from tests.hardware.ros.conftest import patience, sessions  # noqa: F401 - fixtures
from tests.hardware.ros.test_policy_node import Robot, _has_all, make_bundle

if inspect_environment().rclpy is None:
    collect_ignore_glob = ["test_re*.py"]

STEPS = 8


@dataclass(frozen=True)
class Recorded:
    """A recording beside what really happened."""

    bag: Path
    bundle: Path
    steps: list[PolicyStep]


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recorded]:
    """Recordings by task, each made once."""
    return {}


@pytest.fixture
def recorded(recordings, tmp_path_factory, sessions) -> Callable[[str], Recorded]:  # noqa: F811
    """The recording of a task."""

    def make(task: str) -> Recorded:
        if task not in recordings:
            recordings[task] = record_steps(tmp_path_factory.mktemp(task), sessions, task)
        return recordings[task]

    return make


def record_steps(folder: Path, make: Callable[..., RosSession], task: str) -> Recorded:
    """Let a policy move a twin for some steps, and record it."""
    bundle, bag = folder / "bundle", folder / "bag"
    twin, runner, _ = make_bundle(task, bundle)
    robot = Robot(twin, make("driver"))
    recorder = Recorder(make("recorder"), runner.spec, bag, bundle_digest(bundle))
    node = PolicyNode(make("policy"), runner)
    robot.session.wait_until(partial(_all_hear, robot, node, recorder), "policy and recorder")
    steps: list[PolicyStep] = []
    for number in range(1, STEPS + 1):
        stamp = robot.session.now()
        robot.session.wait_until(partial(_has_all, node, robot, stamp), "all topics")
        command = node.tick().command
        assert command is not None
        # Copied as it was: its arrays belong to the policy, which goes on.
        steps.append(deepcopy(PolicyStep.of(number, number == 1, node.inputs, runner)))
        for _ in range(twin.steps_per_control):
            twin.write(command)
        recorder.poll()
    wanted = f"policy/step {STEPS}"
    robot.session.wait_until(lambda: recorder.poll() is None and wanted in recorder.line, wanted)
    assert recorder.close()
    return Recorded(bag, bundle, steps)


def _all_hear(robot: Robot, node: PolicyNode, recorder: Recorder) -> bool:
    """Whether everybody hears everybody; the recorder listens to the policy after the robot."""
    robot.publish(robot.session.now())
    recorder.poll()
    others = [publisher for publisher, _ in (*robot.goals.values(), *robot.sensed.values())]
    publishers = [*robot.publishers.values(), *others]
    heard = all(publisher.get_subscription_count() == 2 for publisher in publishers)
    if not heard or not node.recorders == 1 == node.listeners:
        return False
    # Each side finds the other by itself, and nobody sends the first command again.
    said = [robot.session.node.resolve_topic_name(name) for name in (STEP_TOPIC, node.topic)]
    return all(recorder._sources[name]._subscription.get_publisher_count() == 1 for name in said)
