"""Cameras over real ROS 2: what is converted, what is refused in words, how old a picture is."""

import io
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from hardware.console.video import VideoStream
from hardware.ros import image_topic
from hardware.ros.compat import message
from hardware.ros.image_topic import ImageTopic, ImageTopics
from hardware.ros.session import RosSession

Image: Any = message("sensor_msgs", "Image")
CompressedImage: Any = message("sensor_msgs", "CompressedImage")
SMALL = np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8)
NOISE = np.random.default_rng(1).integers(100, 255, (48, 64, 3), dtype=np.uint8)


class Camera:
    """A camera node, and the end that listens to it."""

    def __init__(self, sessions: Callable[..., RosSession], kind: type, topic: str) -> None:
        self.node = sessions("camera")
        self.sender = self.node.publisher(topic, kind)
        self.source = ImageTopic(sessions("listener"), "wrist", topic)
        self.node.wait_until(lambda: self.sender.get_subscription_count() == 1, "the listener")

    def show(self, picture: Any, age: float = 0.0) -> ImageTopic:
        """Publish until the listener has looked at it: a best-effort sample may be lost."""
        before, stamp = self.source.newest(), self.node.now() - round(age * 1e9)
        picture.header.stamp.sec, picture.header.stamp.nanosec = divmod(stamp, 1_000_000_000)

        def seen() -> bool:
            self.sender.publish(picture)
            self.source.poll()
            return self.source.newest() is not before or bool(self.source.trouble)

        self.node.wait_until(seen, "a picture")
        return self.source


@pytest.fixture
def raw(sessions) -> Camera:
    return Camera(sessions, Image, "image_raw")


@pytest.fixture
def packed(sessions) -> Camera:
    return Camera(sessions, CompressedImage, "image_raw/compressed")


def picture(pixels: np.ndarray, encoding: str, padding: int = 0) -> Any:
    rows = pixels.reshape(len(pixels), -1)
    rows = np.pad(rows, ((0, 0), (0, padding)))
    made = Image(encoding=encoding, height=pixels.shape[0], width=pixels.shape[1])
    made.step, made.data = rows.shape[1], array("B", rows.tobytes())
    return made


def compressed(pixels: np.ndarray, form: str) -> Any:
    out = io.BytesIO()
    Pillow.fromarray(pixels).save(out, form)
    return CompressedImage(format=f"rgb8; {form} compressed", data=array("B", out.getvalue()))


@pytest.mark.parametrize(
    ("encoding", "sent", "expected"),
    [
        ("rgb8", SMALL, SMALL),
        ("bgr8", SMALL, SMALL[:, :, ::-1]),
        ("mono8", SMALL[:, :, :1], np.repeat(SMALL[:, :, :1], 3, axis=2)),
    ],
)
def test_encodings_become_red_green_blue_whatever_lies_between_the_rows(
    raw, encoding, sent, expected
):
    found = raw.show(picture(sent, encoding, padding=5)).newest()
    assert found is not None
    assert (found[0].shape, found[0].dtype) == ((6, 8, 3), np.uint8)
    np.testing.assert_array_equal(found[0], expected)


def test_a_jpeg_goes_to_the_page_as_it_came_and_is_decoded_for_a_policy(packed):
    sent = compressed(NOISE, "jpeg")
    found, rgb = packed.show(sent).newest(), packed.source.newest_pixels()
    assert found is not None
    assert rgb is not None
    assert found[0] == bytes(sent.data)
    with Pillow.open(io.BytesIO(found[0])) as image:
        np.testing.assert_array_equal(rgb[0], np.asarray(image))
    png = packed.show(compressed(NOISE, "png")).newest()
    assert png is not None
    np.testing.assert_array_equal(png[0], NOISE)


def test_the_stamp_is_the_time_of_the_picture_on_the_clock_of_the_loop(raw):
    begin = time.monotonic()
    found = raw.show(picture(SMALL, "rgb8"), age=0.5).newest()
    assert found is not None
    assert begin - 0.5 <= found[1] + 0.002
    assert found[1] <= time.monotonic() - 0.5 + 0.002
    assert "in the future; synchronise the clocks" in raw.show(picture(NOISE, "rgb8"), -5.0).trouble


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (picture(SMALL, "yuv422"), "encoding 'yuv422' is unknown; known: bgr8, mono8, rgb8"),
        (
            Image(encoding="rgb8", height=9, width=9, step=27),
            "has 0 bytes; expected 27 bytes a row",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused_in_words(raw, made, why):
    source = raw.show(made)
    assert source.newest() is None
    assert why in source.trouble


def test_bytes_that_are_no_picture_are_refused_in_words(packed):
    other = CompressedImage(format="16UC1; compressedDepth", data=array("B", b"abcdefgh"))
    assert "'16UC1; compressedDepth' is neither a JPEG nor a PNG" in packed.show(other).trouble
    torn = compressed(NOISE, "png")
    torn.data = torn.data[:60]
    assert "60 bytes are no picture" in packed.show(torn).trouble


def test_a_picture_that_is_too_large_is_not_read(raw, monkeypatch):
    monkeypatch.setattr(image_topic, "LARGEST_PICTURE", 1000)
    source = raw.show(picture(NOISE, "rgb8"))
    assert source.newest() is None
    assert "let the camera send a smaller one" in source.trouble
    assert raw.show(picture(SMALL, "rgb8")).trouble == ""


def test_badges_of_a_camera_that_stops_freezes_or_sees_nothing(raw):
    stream = VideoStream(raw.source)
    raw.show(picture(NOISE, "rgb8"))
    assert stream.newest() is not None
    stamp = time.monotonic()
    assert stream.badge(stamp) == ""
    assert stream.badge(stamp + 0.4) == "stale"
    raw.show(picture(np.zeros_like(NOISE), "rgb8"))
    stream.newest()
    assert stream.badge(time.monotonic()) == "black"
    raw.show(picture(NOISE, "rgb8"), age=-0.01)
    stream.newest()
    frozen = picture(NOISE, "rgb8")
    since = time.monotonic()
    while stream.badge(time.monotonic()) != "frozen":
        raw.show(frozen)
        stream.newest()
        assert time.monotonic() < since + 30
    assert time.monotonic() >= since + 1.9


@pytest.fixture
def heard(domain) -> Iterator[Callable[..., ImageTopics]]:
    opened: list[ImageTopics] = []

    def listen(topics: dict[str, str], say: Callable[[str], object]) -> ImageTopics:
        session = RosSession("console", domain=domain)
        opened.append(ImageTopics(session, topics, say))
        return opened[-1]

    yield listen
    for one in opened:
        one.close()


def test_a_thread_hears_several_cameras_and_says_why_one_is_silent(sessions, heard):
    node, said = sessions("cameras", "/cell"), list[str]()
    sender = node.publisher("wrist/image_raw", Image)
    node.publisher("top/image_raw", CompressedImage)
    topics = {"wrist": "/cell/wrist/image_raw", "top": "/cell/top/image_raw", "no": "/cell/no"}
    wrist, top, _ = heard(topics, said.append).cameras

    def seen() -> bool:
        made = picture(NOISE, "bgr8")
        made.header.stamp = node.node.get_clock().now().to_msg()
        sender.publish(made)
        return wrist.newest() is not None and len(said) >= 2

    node.wait_until(seen, "pictures and words")
    told = VideoStream(top).snapshot(time.monotonic())
    assert told["badge"] == "waiting"
    assert "carries sensor_msgs/msg/CompressedImage; expected sensor_msgs/msg/Image" in str(
        told["why"]
    )
    assert any(line == "camera 'no': nobody publishes /cell/no" for line in said)
    assert wrist.trouble == ""


def test_a_node_of_its_own_ends_with_the_cameras(domain):
    with closing(ImageTopics(RosSession("console", domain=domain), {"wrist": "/x"})) as opened:
        session = opened.cameras[0]._session
    assert not session.context.ok()
