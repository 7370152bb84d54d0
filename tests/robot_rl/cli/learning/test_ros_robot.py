"""A robot behind somebody else's ROS 2 node to learn on, without and with that node."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.control.ipc import StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.request_socket import send_request
from hardware.control.safety import Condition, SafetyState
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import PersonReward, PlaceConfig, PlaceReward
from hardware.ros.compat import inspect_environment, message
from hardware.ros.image_publisher import ImagePublisher
from policies.cameras import PixelContent
from robot_rl.cli.learning.environment import robot_meaning, robot_spec
from robot_rl.cli.learning.led_robot import LedBy
from robot_rl.cli.learning.options import LearnOptions, Person, Role
from robot_rl.cli.learning.ros_robot import RosRobot, RosRobotConfig
from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.core.process import clean_environ
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame
from robot_rl.link.store import ExperienceStore
from tests.compositions import composed
from tests.robot_rl.cli.deployments import session
from tests.robot_rl.cli.learning.test_learn import TINY, children, learning, only_run, records
from tests.robot_rl.link.linked import until

ROOT = Path(__file__).parents[4]
WITH_ROS = pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed")


SEEN = (
    "env.cameras=[wrist]", "robot.cameras.wrist.width=16", "robot.cameras.wrist.height=16",
    "robot.cameras.wrist.stack=1", "camera.wrist.topic=/simulated/wrist/image_raw",
    "learner.images.encoder=conv", "learner.images.channels=[4]", "learner.images.strides=[2]",
    "learner.images.features=8",
)  # fmt: skip
"""A camera that a policy of few weights sees by."""
COARSE = ("robot.physics_dt=0.01", "robot.decimation=4")
"""An arm of 100 Hz: at 200 it takes most of a slow processor, and others are late."""
ANGLE = composed(["task=peg", "robot=panda"]).config.robot.cameras["wrist"].field_of_view


def robot(*words: str, helped: bool = True, task: str = "peg", **config: Any) -> RosRobot:
    run = composed([f"task={task}", "robot=panda", *words]).config
    return RosRobot(run, RosRobotConfig(source="/arm", **config), helped=helped)


def names_of(steps: list[dict[str, Any]]) -> list[str]:
    return [name for step in steps for name in step]


def test_only_what_the_policy_reads_is_asked_for_over_ros():
    made = robot()
    made.check()
    assert made.world_widths == {"sensed/hole_position": 3, "sensed/hole_axis": 3}
    assert made.namespace == "/panda"
    assert made.wiring.topics["command"] == "/arm/joint_command"
    reach = {"end_effector_position_b": [0.4, 0.0, 0.4]}
    assert robot(task="reach").world_widths == {"goal/end_effector_position_b": 3}
    assert robot(task="reach", goal=reach).world_widths == {}


def test_the_way_to_an_episode_is_up_to_the_tasks_pose_and_a_person_who_confirms():
    made = robot()
    steps = made._reset.tasks[0].steps
    assert names_of(steps) == ["relax", "move_end_effector", "move_end_effector", "confirm"]
    place = steps[2]["move_end_effector"]["position"]
    assert place == pytest.approx(made.chain.at(np.array(made.stop.pose)).tip_position_b.tolist())
    alone = robot(helped=False, retreat=0.0)._reset.tasks[0].steps
    assert names_of(alone) == ["relax", "move_end_effector"]
    by_joints = robot(led_by=LedBy.joint)._reset.tasks[0].steps
    assert names_of(by_joints) == ["relax", "move_joints", "confirm"]


def test_labels_or_a_place_judge_episodes():
    assert isinstance(robot().rewards()["task"], PersonReward)
    assert robot().person_labels
    made = robot(helped=False, place=PlaceConfig(input="sensed/hole_position", radius=0.02))
    made.check()
    assert isinstance(made.rewards()["task"], PlaceReward)
    assert not made.person_labels


def test_a_place_is_refused_to_a_robot_that_does_not_measure_its_end_effector():
    run = composed(["task=velocity", "robot=go2"]).config
    place = PlaceConfig(radius=0.1)
    made = RosRobot(
        run, RosRobotConfig(source="/dog", led_by=LedBy.joint, place=place), helped=True
    )
    with pytest.raises(ConfigError, match="which 'go2' does not measure; it measures"):
        made.check()


def test_the_environment_fits_the_robot_before_anybody_speaks():
    with closing(robot(task="reach", reach=0.2).channel_env(f"test-spec-{os.getpid()}")) as env:
        assert env.spec.action_size == 6
        assert "does not run" in _begun(env).prompt


def test_a_learner_alone_hears_no_camera_and_tells_what_actions_move(monkeypatch):
    """It opened a session of ROS 2, which a learner's computer need not have."""
    monkeypatch.setattr("robot_rl.cli.learning.real_robot.RosSession", None)
    run = composed(["task=peg", "robot=panda", *(word for word in SEEN if "topic" not in word)])
    options = LearnOptions(
        driver="ros2", role=Role.learner, camera={"wrist": {"topic": "/x"}},
        ros2=RosRobotConfig(source="/arm", translation=0.005),
    )  # fmt: skip
    spec = robot_spec(run.config, options)
    assert spec.groups["image/wrist"].shape == (1, 16, 16, 3)
    told = robot_meaning(run.config, options)
    assert told["action"]["high"][:3] == [0.005] * 3
    assert told["law"]["law"] is None
    twin = robot_meaning(run.config, LearnOptions())
    assert twin["action"]["high"][:3] == [0.01] * 3
    assert twin["law"]["law"] is not None
    assert told["terms"] == twin["terms"]


def _begun(env: Any) -> Any:
    env.start_reset()
    return env


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"helped": False}, "who says that an episode succeeded?"),
        (
            {"helped": False, "place": PlaceConfig(radius=0.1), "words": "confirm"},
            "waits for a person to confirm, but person=none",
        ),
        ({"words": "begin_world"}, "which only a simulated robot can"),
        (
            {"place": PlaceConfig(input="sensed/handle", radius=0.1)},
            "known: sensed/hole_axis, sensed/hole_position",
        ),
        ({"goal": {"place": [0.0]}}, "goal 'place' is unknown"),
        (
            {"task": "reach", "goal": {"end_effector_position_b": ["here", 1.0, 2.0]}},
            "takes 3 numbers, got ['here'",
        ),
        (
            {"command": "efforts", "gripper": True},
            "torques do not say how far the gripper",
        ),
        ({"topics": {"joints": "x"}}, "topic 'joints' is unknown"),
        ({"robot_file": "absent.yaml"}, "the robot file absent.yaml cannot be read"),
        ({"domain": 500}, "domain must lie in 0 to 232"),
        ({"see": "wrist"}, "name it: camera.wrist.topic=/.../image_raw, or cameras: in the robot"),
    ],
)
def test_what_cannot_be_learned_on_is_refused_in_a_sentence(values, why):
    step = values.pop("words", "")
    if step:
        fields = {"prompt": "go on"} if step == "confirm" else {}
        values["reset"] = ResetConfig(tasks=[TaskReset(steps=[{step: fields}])])
    seen = [f"env.cameras=[{values.pop('see')}]"] if "see" in values else []
    with pytest.raises(RobotRLError, match=re.escape(why)):
        robot(*seen, **values).check()


def test_cameras_are_named_by_the_command_line_or_the_robots_file(tmp_path):
    path = tmp_path / "panda.yaml"
    path.write_text("robot: panda\ncameras: {wrist: {topic: /a/image_raw}}\n")
    run = composed(["task=peg", "robot=panda", "env.cameras=[wrist]"]).config
    config = RosRobotConfig(source="/arm", robot_file=str(path))
    by_file = RosRobot(run, config, helped=True)
    by_file.check()
    assert by_file.camera_topics == {"wrist": "/a/image_raw"}
    both = RosRobot(run, config, helped=True, topics={"wrist": "/b/image_raw", "side": "/c"})
    assert both.camera_topics == {"wrist": "/b/image_raw", "side": "/c"}


def test_a_robot_that_flies_is_refused():
    run = composed(["task=hover"]).config
    with pytest.raises(ConfigError, match="flies"):
        RosRobot(run, RosRobotConfig(), helped=True)


def test_the_link_outlives_the_loop_and_a_stop_button_everybody(tmp_path):
    """Processes end in the opposite order."""
    config = RosRobotConfig()
    assert LearnOptions(driver="ros2", ros2=config).parts == (
        Role.link, Role.loop, Role.actor, Role.console
    )  # fmt: skip
    path = tmp_path / "panda.yaml"
    path.write_text("robot: panda\nestop: {device: /dev/input/button, button: KEY_ENTER}\n")
    config.robot_file = str(path)
    options = LearnOptions(driver="ros2", ros2=config, person=Person.none)
    assert options.parts == (Role.estop, Role.link, Role.loop, Role.actor)


@contextmanager
def simulated_arm(domain: int) -> Iterator[subprocess.Popen[str]]:
    """The example's node: the twin as somebody else's robot, in a process of its own."""
    environ = clean_environ(
        {"PYTHONPATH": str(ROOT), "ROS_DOMAIN_ID": str(domain), "OMP_NUM_THREADS": "1"}
    )
    node = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "ros2_simulated_robot.py", *COARSE],
        env=environ, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with session("awaiting", domain, "/simulated") as waiting:
            heard = waiting.newest("joint_states", message("sensor_msgs", "JointState"))
            heard.wait(waiting, "the simulated arm", timeout=120.0)
        yield node
    finally:
        node.terminate()
        node.wait(30)


@contextmanager
def sent_pictures(domain: int) -> Iterator[set[bytes]]:
    """A camera's node of noise of 16 x 16 pixels; yields all that was sent."""
    sent, ends = set[bytes](), threading.Event()
    rng = np.random.default_rng(0)

    def send() -> None:
        with session("camera", domain, "/simulated") as node:
            publisher = ImagePublisher(
                node, "wrist/image_raw", content=PixelContent.colour, frame="wrist",
                field_of_view=ANGLE,
            )  # fmt: skip
            while not ends.wait(0.04):
                picture = rng.integers(60, 256, (16, 16, 3), dtype=np.uint8)
                sent.add(picture.tobytes())
                publisher.publish(picture, node.now())

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        ends.set()
        thread.join()


def lose_the_link(process: subprocess.Popen[bytes]) -> None:
    """Kill the link: the robot stops for good, until a person has looked and lets it go on."""
    channels = RobotChannels("over_ros.learn")
    with closing(StatusSubscriber(channels.status)) as status:
        pid = children(process)["link"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: status.safety is SafetyState.ESTOP, 30)
        until(lambda: children(process).get("link", pid) != pid, 30)

        def looked() -> bool:
            send_request(channels.operator, Condition.RESET)  # refused until it is heard again
            return status.safety is not SafetyState.ESTOP

        until(looked, 60)
        until(lambda: status.safety is SafetyState.POLICY, 120)  # the simulated person arms it


@WITH_ROS
@pytest.mark.slow
@pytest.mark.timeout(800)
def test_a_twin_over_ros_is_learned_on_with_the_labels_of_a_person(tmp_path, domain):
    words = (
        "task=peg", "task.kind=sparse", "task.episode_length=12", "driver=ros2", "person=simulated",
        "name=over_ros", "ros2.source=/simulated", f"ros2.domain={domain}", "ros2.patience=5",
        "ros2.motion.workspace=[[0.47,0.55],[-0.07,0.01],[0.11,0.25]]",  # over the fixture
        "learner=hil_serl", "learner.gripper.commands=[]", *SEEN,
        *(word for word in TINY if word.partition("=")[0] not in ("task", "driver", "pace")),
    )  # fmt: skip
    with simulated_arm(domain) as node, sent_pictures(domain) as pictures:
        with learning(tmp_path, *words) as process:
            run = only_run(tmp_path)

            def labelled() -> bool:
                return any(one.get("rollout/success", 0) > 0 for one in records(run))

            until(labelled, 400)
            until(lambda: any(one.get("train/updates", 0) > 10 for one in records(run)), 300)
            lose_the_link(process)
        assert process.returncode == 0
        node.terminate()
        said_by_node = node.communicate(timeout=30)[0]
    with closing(ExperienceStore(run / "experience")) as store:
        records_of_run = [one for _, one in store.read(0)]
    frames = [one for one in records_of_run if isinstance(one, Frame) and one.action is not None]
    labels = [one.kind for one in records_of_run if isinstance(one, Correction)]
    assert "success" in labels
    assert any(one.intervened and one.valid for one in frames)
    assert any(one.valid and not one.intervened for one in frames)
    assert {one.obs["image/wrist"].tobytes() for one in frames} <= pictures
    assert len({one.obs["image/wrist"].tobytes() for one in frames}) > 0.5 * len(frames)
    assert all(one.stamp - one.picture_stamps["image/wrist"] < 0.7 for one in frames if one.valid)
    assert not any(one.reward for one in frames), "the reward is the person's, in a correction"
    said = (tmp_path / "output.txt").read_text()
    assert "Traceback" not in said
    assert "the task is done" in said_by_node, "what the person called a success was one"
    assert re.search(r"robot: control periods of 40 ms: \d+, \d+ missed", said)
