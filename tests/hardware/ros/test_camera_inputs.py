"""Pictures on their way to a policy over real ROS 2: equal to simulation, or refused in words."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from configs.schema import make_env
from configs.twin_builder import build_twin
from hardware.control import pictures
from hardware.ros.camera_inputs import CameraInputs, TopicPictures
from hardware.ros.compat import message
from hardware.ros.image_publisher import ImagePublisher
from hardware.ros.session import RosSession
from policies.cameras import CameraInput, FrameStacks, PixelContent
from robot_rl.cli.simulated_cameras import CONTENT, as_sent, camera_input
from robot_rl.core.errors import StaleStateError
from sim.cameras.config import ImageKind, ImageRenderer
from sim.env import SimEnv
from sim.twin_cameras import TwinCameras, scene_fields
from tests.compositions import composed
from tests.fakes import CPU

WRIST = CameraInput(
    picture=[12, 16], crop=[0, 0, 12, 16], channels=["red", "green", "blue"], stack=1,
    period=0.04, latency=0.04, field_of_view=0.8,
)  # fmt: skip
NOISE = np.random.default_rng(0).integers(60, 256, (12, 16, 3), dtype=np.uint8)
STILL = {"joint_position": np.zeros((1, 2))}
MOVED = {"joint_position": np.array([[0.0, 0.5]])}


class Camera:
    """A camera's node, and the end at which a policy asks."""

    def __init__(
        self, sessions: Callable[..., RosSession], camera: CameraInput = WRIST, *,
        content: PixelContent = PixelContent.colour, angle: float = 0.8, drawn: bool = False,
    ) -> None:  # fmt: skip
        self.node = sessions("camera")
        self.sender = ImagePublisher(
            self.node, "wrist/image_raw", content=content, field_of_view=angle, frame="wrist"
        )
        self.inputs = CameraInputs(
            sessions("policy"), {"wrist": camera}, {"wrist": "wrist/image_raw"}, control_dt=0.04,
            drawn=drawn,
        )  # fmt: skip
        both = ("wrist/image_raw", "wrist/camera_info")
        self.node.wait_until(
            lambda: all(self.node.node.count_subscribers(topic) for topic in both), "the policy"
        )

    def send(self, pixels: np.ndarray, age: float = 0.0) -> None:
        self.sender.publish(pixels, self.node.now() - round(age * 1e9))

    def ask(self, state: Any = STILL) -> np.ndarray | str:
        """The picture, or the reason why there is none."""
        self.inputs.poll()
        try:
            return self.inputs.pictures(state)["wrist"][0]
        except StaleStateError as error:
            return str(error)

    def answer(self, pixels: np.ndarray, words: str = "", age: float = 0.0) -> Any:
        """Answer to these pixels, sent again until it is a picture, or has the words."""
        end, found = time.monotonic() + 10, "nothing"
        while time.monotonic() < end:
            self.send(pixels, age)
            time.sleep(0.01)
            found = self.ask()
            if isinstance(found, str) == bool(words) and words in str(found):
                break
        return found


@pytest.fixture(autouse=True)
def usual_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures may be as old as a busy machine makes them between two lines of a test."""
    monkeypatch.setattr(pictures, "_LEAST_AGE", 1.0)


def test_nothing_is_decided_before_a_picture_came(sessions):
    camera = Camera(sessions)
    assert "camera 'wrist' has sent nothing yet on /robot/wrist/image_raw" in camera.ask()
    assert np.array_equal(camera.answer(NOISE), NOISE)


def test_a_camera_that_nobody_sends_is_named(sessions):
    inputs = CameraInputs(
        sessions("policy"), {"wrist": WRIST}, {"wrist": "/nowhere/image_raw"}, control_dt=0.04
    )
    end = time.monotonic() + 10
    found = ""
    while "nobody publishes /nowhere/image_raw" not in found and time.monotonic() < end:
        time.sleep(0.05)
        inputs.poll()
        with pytest.raises(StaleStateError) as caught:
            inputs.pictures(STILL)
        found = str(caught.value)
    assert "camera 'wrist'" in found
    assert "nobody publishes" in found


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (np.full((12, 16, 3), 3, np.uint8), "shows nothing: its pictures are black"),
        (NOISE[:, :12], "have 12 x 12 pixels; the policy was trained with 16 x 12"),
        (NOISE[:6, :8], "have 8 x 6 pixels; the policy was trained with 16 x 12"),
    ],
)
def test_black_pictures_and_wrong_sizes_are_refused_and_good_ones_go_on(sessions, pixels, words):
    camera = Camera(sessions)
    assert np.array_equal(camera.answer(NOISE), NOISE)
    found = camera.answer(pixels, words)
    assert isinstance(found, str)
    assert words in found
    assert np.array_equal(camera.answer(NOISE), NOISE)


def test_another_encoding_is_refused(sessions):
    camera = Camera(sessions)
    picture = message("sensor_msgs", "Image")(encoding="yuv422", height=12, width=16, step=32)
    other = camera.node.publisher("wrist/image_raw", type(picture))
    end, found = time.monotonic() + 10, ""
    while "encoding 'yuv422' is unknown" not in found and time.monotonic() < end:
        picture.header.stamp = camera.node.node.get_clock().now().to_msg()
        other.publish(picture)
        time.sleep(0.01)
        found = str(camera.ask())
    assert "encoding 'yuv422' is unknown; known: bgr8, mono8, rgb8" in found


def test_grey_pictures_are_no_colours(sessions):
    camera = Camera(sessions, content=PixelContent.grey)
    found = camera.answer(NOISE[..., :1], "pictures hold grey")
    assert "the policy was trained with red, green, blue" in found


def test_another_part_of_the_picture_is_noticed_by_its_angle(sessions):
    camera = Camera(sessions, angle=0.6)
    assert "it sees 0.600 rad from the upper" in camera.answer(NOISE, "it sees")


def test_a_picture_grows_old(sessions, monkeypatch):
    monkeypatch.setattr(pictures, "_LEAST_AGE", 0.3)
    camera = Camera(sessions)
    assert isinstance(camera.answer(NOISE), np.ndarray)
    time.sleep(0.4)
    assert "camera 'wrist' is silent: its newest picture is too old" in camera.ask()
    found = camera.answer(NOISE[::-1], "too old", age=0.5)
    assert "too old" in found


@pytest.mark.parametrize(("drawn", "state"), [(False, STILL), (True, MOVED)])
def test_the_same_picture_for_too_long_is_frozen(sessions, drawn, state):
    camera = Camera(sessions, drawn=drawn)
    assert isinstance(camera.answer(NOISE), np.ndarray)
    end, found = time.monotonic() + 10, ""
    while "frozen" not in str(found) and time.monotonic() < end:
        camera.send(NOISE)
        time.sleep(0.02)
        found = camera.ask(state)
    assert "camera 'wrist' is frozen: it sends the very same picture" in str(found)
    assert isinstance(camera.answer(NOISE[::-1]), np.ndarray)


def test_a_drawn_picture_stays_the_same_while_the_robot_stands(sessions):
    camera = Camera(sessions, drawn=True)
    assert isinstance(camera.answer(NOISE), np.ndarray)
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        camera.send(NOISE)
        time.sleep(0.02)
        assert "frozen" not in str(camera.ask())


def test_depth_without_any_distance_shows_nothing(sessions):
    depth = replace(WRIST, channels=["depth"], near=0.1, far=0.9)
    camera = Camera(sessions, depth, content=PixelContent.depth)
    near = np.full((12, 16, 1), 0.5, np.float32)
    assert camera.answer(near)[0, 0, 0] == 128  # 127.5 of 255
    none = np.full((12, 16, 1), np.nan, np.float32)
    assert "without a distance" in camera.answer(none, "without a distance")


@pytest.fixture(params=[ImageKind.rgb, ImageKind.grey, ImageKind.depth, ImageKind.segmentation])
def seeing(request: pytest.FixtureRequest) -> Iterator[tuple[Any, SimEnv]]:
    config = composed(["task=cartpole_swingup", "env.cameras=[side]"]).config
    side = replace(
        config.robot.cameras["side"], kind=request.param, crop=[4, 6, 40, 36], stack=1, far=4.0
    )
    config = replace(config, robot=replace(config.robot, cameras={"side": side}))
    env = make_env(config, num_envs=1, device=CPU, seed=3, evaluation=True)
    assert isinstance(env, SimEnv)
    yield config, env
    env.close()


@pytest.mark.slow
def test_a_picture_over_ros_is_bit_by_bit_that_of_the_simulation(seeing, sessions):
    config, env = seeing
    side = config.robot.cameras["side"]
    told = camera_input(side, env.spec.control_dt)
    twin = build_twin(config, seed=0, cameras={"side": side})
    drawing = TwinCameras(twin.simulation, {"side": side}, ImageRenderer.warp)
    camera = Camera(
        sessions, told, content=CONTENT[side.kind], angle=side.field_of_view, drawn=True
    )
    stacks = FrameStacks({"wrist": told}, 1)
    obs = env.reset(seed=3)
    for _ in range(3):
        whole = drawing.draw(scene_fields(env.simulation))["side"]
        found = camera.answer(as_sent(whole, side))
        assert isinstance(found, np.ndarray), found
        stacks.update({"wrist": found[None]}, np.array([True]))
        seen = obs["image/side"][0].numpy()
        assert np.array_equal(stacks.stacks["image/wrist"][0], seen)
        assert seen.std() > 1 or side.kind is ImageKind.segmentation
        obs = env.step(torch.ones(1, env.spec.action_size)).obs
    drawing.close()


def test_a_learning_environment_gets_pictures_with_their_times_or_reasons(sessions):
    node = sessions("camera")
    senders = {
        name: ImagePublisher(
            node, f"{name}/image_raw", content=PixelContent.colour, field_of_view=angle, frame=name
        )
        for name, angle in (("wrist", 0.8), ("other", 1.2))
    }
    cameras = dict.fromkeys(["wrist", "other", "absent"], WRIST)
    source = TopicPictures(
        sessions("actor"), cameras, {name: f"{name}/image_raw" for name in cameras}
    )
    assert source.newest() == {}

    def wait_for(words: str, name: str) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and words not in source.troubles.get(name, ""):
            for sender in senders.values():
                sender.publish(NOISE, node.now())
            time.sleep(0.02)
            source.newest()
        assert words in source.troubles[name]

    wait_for("it sees 1.200 rad from the upper to the lower edge", "other")
    wait_for("nobody publishes", "absent")
    newest = source.newest()
    assert newest.keys() == {"wrist"}
    assert "wrist" not in source.troubles
    taken = newest["wrist"]
    assert np.array_equal(taken.pixels, NOISE)
    assert taken.content is PixelContent.colour
    assert 0 <= time.monotonic() - taken.stamp < 5
    source.close()
    source.close()
