"""`robot-rl console` as a person starts it: beside a robot process, and gone without a trace."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from array import array
from typing import Any

import numpy as np
import pytest

from hardware.control.ipc import ArrayPublisher
from hardware.control.process import RobotChannels
from hardware.control.safety import SafetyState
from hardware.ros.compat import inspect_environment, message
from hardware.ros.session import RosSession
from robot_rl.cli.console import run
from robot_rl.cli.robot_camera import RobotCamera
from robot_rl.core.errors import ConfigError
from tests.compositions import composed
from tests.hardware.console.running import make_ready, new_name, robot_process, wait_for

pytestmark = pytest.mark.slow


def test_it_serves_beside_a_robot_that_goes_on_when_it_ends(tmp_path):
    name = new_name()
    with robot_process(name) as status:
        make_ready(name, status)
        command = [
            sys.executable, "-m", "robot_rl.cli", "console", f"channels={name}", "port=0",
            "view=false", f"out={tmp_path}",
        ]  # fmt: skip
        console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert console.stdout is not None
            lines = iter(console.stdout.readline, "")
            url = next(line.split()[1] for line in lines if line.startswith("console"))
            base = url.partition("/?token=")[0]
            with urllib.request.urlopen(f"{base}/healthz", timeout=10) as reply:
                assert reply.read() == b'{"ok": true, "robot": true}'
            console.send_signal(signal.SIGINT)
            assert console.wait(20) == 0
        finally:
            console.kill()
            console.wait()
        assert (tmp_path / "console_actions.jsonl").exists()
        assert status.safety is SafetyState.READY


@pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed")
def test_cameras_over_ros_are_listed_with_their_badges(tmp_path, domain):
    name, image = new_name(), message("sensor_msgs", "Image")
    node = RosSession("cameras", namespace="/cell", domain=domain)
    command = [
        sys.executable, "-m", "robot_rl.cli", "console", f"channels={name}", "port=0", "view=false",
        f"out={tmp_path}", f"domain={domain}", "camera.wrist.topic=/cell/wrist/image_raw",
        "camera.top.topic=/cell/top/image_raw/compressed",
    ]  # fmt: skip
    console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert console.stdout is not None
        lines = iter(console.stdout.readline, "")
        url = next(line.split()[1] for line in lines if line.startswith("console"))
        base = url.partition("/?token=")[0]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        browser.open(url, timeout=10).close()
        sender, rng = node.publisher("wrist/image_raw", image), np.random.default_rng(0)

        def shown() -> bool:
            made: Any = image(encoding="rgb8", height=48, width=64, step=192)
            made.data = array("B", rng.integers(60, 255, 48 * 192, dtype=np.uint8).tobytes())
            made.header.stamp = node.node.get_clock().now().to_msg()
            sender.publish(made)
            with browser.open(f"{base}/api/state", timeout=10) as reply:
                wrist, top = json.loads(reply.read())["video"]
            silent = "nobody publishes /cell/top/image_raw/compressed"
            assert (wrist["name"], top["name"]) == ("wrist", "top")
            assert top["badge"] == "waiting"
            return wrist["badge"] == "" and top.get("why") == silent

        node.wait_until(shown, "a picture on the page", timeout=60)
        console.send_signal(signal.SIGINT)
        assert console.wait(20) == 0
    finally:
        console.kill()
        console.wait()
        node.close()


def test_a_robot_that_does_not_run_is_a_sentence():
    with pytest.raises(ConfigError, match="no robot process runs on this computer"):
        run(["namespace=/nobody/has/this"])


def test_the_robot_is_drawn_as_it_is_measured():
    name = new_name()
    robot = composed(["task=reach", "robot=panda"]).config.robot
    said: list[str] = []
    still = {field: np.zeros((1, width)) for field, width in robot.spec.state_widths.items()}
    pose = np.array([[joint.default_position for joint in robot.spec.joints]])
    states = ArrayPublisher(RobotChannels(name).state, robot.spec.state_widths)
    camera = RobotCamera(robot, name, said.append)
    try:
        pictures = []
        for turn in (0.0, 0.8):
            stamp = time.monotonic()
            states.send({**still, "joint_position": pose + turn}, stamp)
            wait_for(lambda stamp=stamp: said or (camera.newest() or (0, 0))[1] == stamp, 60.0)
            if said:
                pytest.skip(said[0])
            found = camera.newest()
            assert found is not None
            pictures.append(found[0].astype(float))
    finally:
        camera.close()
        states.close()
    assert pictures[0].shape[2] == 3
    assert 60 < pictures[0].mean() < 250
    assert abs(pictures[0] - pictures[1]).max() > 50
