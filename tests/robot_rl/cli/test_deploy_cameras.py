"""Deployments of policies that see: pictures decide whether the policy decides."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from configs.twin_builder import build_twin
from hardware.control.safety import SafetyState
from hardware.ros import compat
from hardware.ros.image_publisher import ImagePublisher
from policies.cameras import PixelContent
from robot_rl.cli.console import ConsoleOptions, known_robot, pictures_of
from robot_rl.cli.deployment.diagnostics import Finding, Level, examine
from robot_rl.cli.deployment.options import DeployOptions, DoctorOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.simulated_cameras import camera_input
from robot_rl.core.errors import ConfigError
from scripts.bench.deployment.scripted import observed_size, write_bundle
from tests.compositions import composed
from tests.robot_rl.cli.deployments import (
    WITHOUT_ROS,
    bring_to_policy,
    running,
    session,
    status_of,
    within,
)

pytestmark = [
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
SIDE = 24
PAUSED = (SafetyState.HOLD, SafetyState.SAFE_STOP)
NOISE = np.random.default_rng(0).integers(60, 200, (SIDE, SIDE, 3), dtype=np.uint8)


class Looks(nn.Module):
    """Keeps the robot where it is, and looks at pictures on the way."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.actions = actions

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        seen = obs["image/front"].float().mean((1, 2, 3, 4))[:, None] / 255
        rest = obs["actor"].mean(-1, keepdim=True)
        return (1e-4 * (seen + 0 * rest)).expand(-1, self.actions).clamp(-1, 1)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = composed(["task=reach", "robot=panda", "env.cameras=[front]"]).config
    front = replace(config.robot.cameras["front"], width=SIDE, height=SIDE, latency=1)
    config = replace(config, robot=replace(config.robot, cameras={"front": front}))
    twin = build_twin(config, seed=0)
    twin.connect()
    policy = Looks(config.robot.action_map(config.task).size)
    assert observed_size(config, twin) > 0
    cameras = {"front": camera_input(front, twin.control_dt)}
    return write_bundle(tmp_path_factory.mktemp("seeing") / "b", config, twin, policy, cameras)


class Camera:
    """A camera node that sends what it is told to, 25 times a second."""

    def __init__(self, domain: int) -> None:
        self.pixels: Callable[[int], np.ndarray] = lambda i: np.roll(NOISE, i, axis=0)
        self._domain, self._over = domain, threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        with session("somebody", self._domain, "/cell") as node:
            publisher = ImagePublisher(
                node, "front/image_raw", content=PixelContent.colour, field_of_view=0.8, frame="f"
            )
            count = 0
            while not self._over.wait(0.04):
                publisher.publish(self.pixels(count), node.now())
                count += 1


@pytest.fixture
def camera(domain: int) -> Iterator[Camera]:
    made = Camera(domain)
    yield made
    made.close()


def heard(capfd: pytest.CaptureFixture[str], words: str, so_far: list[str]) -> bool:
    so_far.append(capfd.readouterr().out)
    return words in "".join(so_far)


BROKEN: dict[str, tuple[Callable[[int], np.ndarray], str]] = {
    "black": (lambda i: np.zeros_like(NOISE), "camera 'front' shows nothing"),
    "frozen": (lambda i: NOISE, "camera 'front' is frozen"),
    "smaller": (lambda i: NOISE[:12, :12] + np.uint8(i % 9), "have 12 x 12 pixels"),
}


def test_broken_pictures_pause_the_robot_and_good_ones_let_it_go_on(bundle, domain, camera, capfd):
    options = {"driver": "fake", "camera": {"front": {"topic": "/cell/front/image_raw"}}}
    good, so_far = camera.pixels, list[str]()
    with running(domain, bundle=bundle, patience=4.0, **options) as operator:
        for name, (pixels, words) in BROKEN.items():
            bring_to_policy(operator)
            assert within(10, lambda: status_of(operator).safety is SafetyState.POLICY)
            camera.pixels = pixels
            assert within(20, lambda: status_of(operator).safety in PAUSED), name
            assert within(10, lambda w=words: heard(capfd, w, so_far)), (name, so_far)
            camera.pixels = good
            time.sleep(1.0)


def examined(bundle: Path, domain: int, **camera: dict[str, str]) -> list[Finding]:
    """Findings of a doctor about the policy's camera."""
    plan = Deployment(DoctorOptions(bundle=str(bundle), domain=domain, camera=camera))
    found = examine(plan, listen=1.0)
    return [one for one in found if "'front'" in one.what or "the policy sees" in one.what]


def test_a_doctor_compares_the_policys_camera_with_its_topic(bundle, domain, camera):
    drawn = examined(bundle, domain)
    assert [one.level for one in drawn] == [Level.good, Level.good]
    assert "camera 'front' of the policy is drawn by the twin" in drawn[1].what
    topic = {"topic": "/cell/front/image_raw"}
    sees, good = examined(bundle, domain, front=topic)
    assert sees.what == "the policy sees front on /cell/front/image_raw"
    assert (good.level, good.what) == (
        Level.good, "camera 'front' of the policy: /cell/front/image_raw is as in training",
    )  # fmt: skip
    camera.pixels = BROKEN["smaller"][0]
    small = examined(bundle, domain, front=topic)[1]
    assert small.level is Level.fault
    assert "have 12 x 12 pixels" in small.what
    silent = examined(bundle, domain, front={"topic": "/nowhere/image_raw"})[1]
    assert silent.level is Level.fault
    assert "camera.front.topic=" in silent.remedy


def test_the_twin_draws_what_its_policy_sees(bundle, domain, capfd):
    so_far: list[str] = []
    with running(domain, bundle=bundle) as operator:
        assert set(operator.processes) == {"robot", "bridge", "policy", "cameras"}
        bring_to_policy(operator)
        beside = known_robot(ConsoleOptions(), operator.plan.channels.robot)
        assert beside.topics == {"front": f"{operator.plan.namespace}/camera/front/image_raw"}
        assert (beside.domain, set(beside.seen or {})) == (domain, {"front"})
        assert beside.hand is not None
        beside.hand.close()
        begin = status_of(operator).time
        assert within(20, lambda: status_of(operator).time > begin + 3)
        assert status_of(operator).safety is SafetyState.POLICY
        operator.processes["cameras"].kill()
        assert within(60, lambda: status_of(operator).safety in PAUSED)
        assert within(10, lambda: heard(capfd, "camera 'front' is silent", so_far)), so_far


def test_a_camera_without_a_topic_and_a_topic_without_a_camera_are_refused(bundle, domain):
    def topics(**options: object) -> dict[str, str]:
        plan = Deployment(DeployOptions(bundle=str(bundle), domain=domain, **options))  # pyright: ignore[reportArgumentType]
        return plan.camera_topics

    assert topics() == {"front": "camera/front/image_raw"}
    assert topics(driver="fake", camera={"front": {"topic": "/x"}}) == {"front": "/x"}
    with pytest.raises(ConfigError, match=r"give camera\.front\.topic=<sensor_msgs/Image>"):
        topics(driver="fake")
    with pytest.raises(ConfigError, match="camera of the policy 'wrist' is unknown"):
        topics(camera={"wrist": {"topic": "/x"}})
    with pytest.raises(ConfigError, match=r"camera\.front needs topic"):
        topics(camera={"front": {}})


def test_a_console_in_a_shell_without_ros_says_that_it_shows_no_cameras(
    bundle, domain, monkeypatch, capsys
):
    facts = replace(compat.inspect_environment(), rclpy=None)
    monkeypatch.setattr(compat, "inspect_environment", lambda: facts)
    plan = Deployment(DeployOptions(bundle=str(bundle), domain=domain))
    assert pictures_of(plan) == {}
    assert "the cameras of the policy are not shown: ROS 2 is not found" in capsys.readouterr().out
