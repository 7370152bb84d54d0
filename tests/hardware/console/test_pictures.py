"""Cameras with faults, and the timelines that are recorded from them."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from hardware.console.timeline import EpisodeReader, TimelineReader, TimelineRecorder
from hardware.console.video import FrameSource, VideoStream
from robot_rl.core.errors import ConfigError


class Camera:
    name, drawn = "wrist", False

    def __init__(self):
        self.found = None

    def newest(self):
        return self.found


def noise(seed, level=128):
    return np.random.default_rng(seed).integers(0, 2 * level, (60, 80, 3), dtype=np.uint8)


class TestStream:
    @pytest.fixture
    def camera(self):
        return Camera()

    def test_a_picture_is_encoded_once_and_numbered(self, camera):
        source: FrameSource = camera
        stream = VideoStream(source)
        assert stream.newest() is None
        assert stream.badge(0.0) == "waiting"
        camera.found = (noise(1), 5.0)
        first = stream.newest()
        assert first is not None
        assert stream.newest() is first
        with Image.open(io.BytesIO(first.jpeg)) as image:
            assert image.size == (80, 60)
        camera.found = (noise(2), 5.1)
        second = stream.newest()
        assert second is not None
        assert (first.number, second.number) == (1, 2)

    def test_an_old_picture_is_stale(self, camera):
        stream = VideoStream(camera)
        camera.found = (noise(1), 5.0)
        stream.newest()
        assert stream.badge(5.29) == ""
        assert stream.badge(5.31) == "stale"
        assert stream.snapshot(5.5) == {"name": "wrist", "badge": "stale", "age_ms": 500}

    def test_a_black_picture_is_told_also_where_the_camera_sends_jpeg(self, camera):
        stream = VideoStream(camera)
        camera.found = (np.zeros((60, 80, 3), np.uint8), 5.0)
        stream.newest()
        assert stream.badge(5.0) == "black"
        out = io.BytesIO()
        Image.new("RGB", (80, 60)).save(out, "JPEG")
        camera.found = (out.getvalue(), 5.1)
        stream.newest()
        assert stream.badge(5.1) == "black"
        camera.found = (noise(3), 5.2)
        stream.newest()
        assert stream.badge(5.2) == ""

    @pytest.mark.parametrize(("drawn", "badge"), [(False, "frozen"), (True, "")])
    def test_the_same_picture_for_two_seconds_is_frozen_unless_it_is_drawn(
        self, camera, drawn, badge
    ):
        camera.drawn = drawn
        stream = VideoStream(camera)
        for i in range(22):
            camera.found = (noise(1), 5.0 + 0.1 * i)
            stream.newest()
        assert stream.badge(7.1) == badge
        camera.found = (noise(2), 7.2)
        stream.newest()
        assert stream.badge(7.2) == ""


class TestTimeline:
    def snapshot(self, episode=3, **more):
        return {"session": "abc", "episode": episode, "phase": "running", "time": 1.0, **more}

    def test_what_was_recorded_is_read_with_pictures_and_labels(self, tmp_path):
        recorder = TimelineRecorder(tmp_path)
        for i in range(8):
            now, snapshot = 10.0 + 0.2 * i, self.snapshot(step=i, q=0.5)
            assert recorder.wants_line(snapshot)
            picture = b"jpeg" if recorder.wants_picture(now) else None
            recorder.record(snapshot, "human" if i > 3 else "policy", now, picture)
            assert not recorder.wants_line({**snapshot, "q": 0.6})  # of the same step
        recorder.label("abc_3", {"kind": "fail", "operator": "ann", "t": 1.0})
        recorder.label("abc_99", {"kind": "fail"})  # of an episode that nobody saw
        recorder.close()
        reader = TimelineReader(tmp_path)
        assert isinstance(reader, EpisodeReader)
        (one,) = reader.episodes()
        assert one["name"] == "abc_3"
        assert one["human"] == 0.5
        assert one["seconds"] == 1.0  # of the actor's clock
        assert one["label"]["kind"] == "fail"
        timeline = reader.timeline("abc_3")
        assert [row["index"] for row in timeline["rows"]] == list(range(8))
        assert [row["index"] for row in timeline["rows"] if row.get("picture")] == [0, 5]
        assert timeline["rows"][4] == {"index": 4, "t": 1.0, "who": "human", "step": 4, "q": 0.5}
        assert reader.picture("abc_3", 5) == b"jpeg"
        assert reader.picture("abc_3", 4) is None

    def test_nothing_is_recorded_between_episodes(self, tmp_path):
        recorder = TimelineRecorder(tmp_path)
        recorder.record({"phase": "running"}, "policy", 0.0, None)
        recorder.record({**self.snapshot(), "phase": "waiting"}, "policy", 1.0, None)
        assert TimelineReader(tmp_path).episodes() == []

    def test_a_console_that_was_started_again_continues_an_episode(self, tmp_path):
        for first in (0.0, 1.0):
            recorder = TimelineRecorder(tmp_path)
            for i in range(2):
                recorder.record(self.snapshot(), "policy", first + 0.2 * i, None)
            recorder.close()
        rows = TimelineReader(tmp_path).timeline("abc_3")["rows"]
        assert [row["index"] for row in rows] == [0, 1, 2, 3]

    def test_a_torn_last_line_is_left_out(self, tmp_path):
        recorder = TimelineRecorder(tmp_path)
        recorder.record(self.snapshot(), "policy", 0.0, None)
        recorder.close()
        with (tmp_path / "console/abc_3/timeline.jsonl").open("a") as file:
            file.write(json.dumps({"index": 1})[:-3])
        assert len(TimelineReader(tmp_path).timeline("abc_3")["rows"]) == 1

    @pytest.mark.parametrize("name", ["..", "a/../b_1", "abc_3/..", "_1", "abc_x", ""])
    def test_a_name_that_leads_elsewhere_is_refused(self, tmp_path, name):
        reader = TimelineReader(tmp_path)
        with pytest.raises(ConfigError, match="no recorded episode"):
            reader.timeline(name)
        assert reader.picture(name, 0) is None
