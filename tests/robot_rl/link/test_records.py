"""Records are what they were, and bytes that are none are refused in words."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, FrameSpec, RecordError, decode, encode
from tests.robot_rl.link.linked import SPEC, correction, frame


def test_a_frame_comes_back_with_every_field_group_and_bit():
    rng = np.random.default_rng(0)
    obs = {
        "actor": rng.normal(size=5).astype(np.float32),
        "image/wrist": rng.integers(0, 256, (4, 6, 3), dtype=np.uint8),
    }
    obs["actor"][2] = np.nan
    sent = Frame(
        session="a" * 32, episode=3, index=7, seq=41, obs=obs,
        action=np.array([0.1, -1, 1], np.float32), reward=0.1, terminated=True, truncated=False,
        valid=False, intervened=True, success=True, policy_version=12, stamp=1764143000.123456,
        segment="human",
    )  # fmt: skip
    got = decode(encode(sent))
    assert isinstance(got, Frame)
    for name, group in obs.items():
        assert got.obs[name].dtype == group.dtype
        assert got.obs[name].tobytes() == group.tobytes()
        assert got.obs[name].shape == group.shape
    assert got.action is not None
    assert got.action.tolist() == np.array([0.1, -1, 1], np.float32).tolist()
    assert got.reward == np.float32(0.1)  # rewards are float32, as in the replay
    names = ("session", "episode", "index", "seq", "terminated", "truncated", "valid",
             "intervened", "success", "policy_version", "stamp", "segment")  # fmt: skip
    assert [getattr(got, name) for name in names] == [getattr(sent, name) for name in names]


def test_the_last_frame_of_an_episode_has_no_action():
    got = decode(encode(frame(2, 9, last=True)))
    assert isinstance(got, Frame)
    assert got.action is None


@pytest.mark.parametrize("stamp", [np.nan, np.inf, -1.0, 1e300])
def test_a_frame_of_no_time_is_refused(stamp):
    """The learner stopped at it, and at each restart again."""
    with pytest.raises(RecordError, match="has stamp"):
        encode(replace(frame(), stamp=stamp))


def test_a_picture_of_a_camera_that_failed_has_no_time():
    picture = np.zeros((4, 4, 3), np.uint8)
    sent = replace(frame(), obs={"image/wrist": picture}, picture_stamps={"image/wrist": -np.inf})
    got = decode(encode(sent))
    assert isinstance(got, Frame)
    assert got.picture_stamps["image/wrist"] == -np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_judgement_that_is_no_number_is_refused(value):
    with pytest.raises(RecordError, match="expected a number"):
        encode(correction("2" * 32, value=value))
    with pytest.raises(RecordError, match="has time"):
        encode(correction("2" * 32, time=value))


@pytest.mark.slow
@given(
    kind=st.sampled_from(("success", "fail", "reward", "segment", "undo")),
    index=st.integers(0, 2**40), text=st.text(max_size=20),
    value=st.floats(width=32, allow_nan=False, allow_infinity=False), time=st.floats(0, 1e10),
)  # fmt: skip
def test_a_correction_comes_back_as_it_was(kind, index, text, value, time):
    sent = Correction(
        id="1" * 32, session="2" * 32, episode=4, kind=kind, index=index, until=index + 1,
        value=value, text=text, operator="ann", time=time,
    )  # fmt: skip
    assert decode(encode(sent)) == sent


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 40))
def test_damaged_bytes_are_refused_or_read_but_never_raise_anything_else(place, value, cut):
    content = bytearray(encode(frame(1, 2)))
    content[place % len(content)] = value
    with contextlib.suppress(RecordError):
        assert isinstance(decode(bytes(content[: len(content) - cut])), Frame | Correction)


@pytest.mark.parametrize("content", [b"", b"no arrow", b"\x80\x04N.", b"\xff" * 100])
def test_bytes_that_are_no_record_are_refused(content):
    with pytest.raises(RecordError, match="hold no record"):
        decode(content)


def test_values_that_records_do_not_have_are_refused():
    with pytest.raises(RecordError, match="float64"):
        encode(Frame(episode=0, index=0, obs={"actor": np.zeros(3)}))
    with pytest.raises(RecordError, match="segment 'robot'"):
        decode(encode(frame(segment="robot")))
    with pytest.raises(RecordError, match="kind 'praise'"):
        decode(encode(Correction(id="1", session="2", episode=0, kind="praise")))


def test_frames_of_another_shape_than_the_learner_takes_are_refused():
    SPEC.check_frame(frame())
    with pytest.raises(RecordError, match=r"\(3,\)"):
        FrameSpec(groups={"actor": (4,)}, action_size=2, control_dt=0.1).check_frame(frame())
    with pytest.raises(RecordError, match=r"control_dt 0.1, and this learner has 0.05"):
        FrameSpec(groups={"actor": (3,)}, action_size=2, control_dt=0.05).check(SPEC.plain())


def test_actions_and_observations_that_mean_something_else_are_refused():
    """Two sides of equal shapes learned of a centimetre and moved by half of one."""

    def spec(**changes):
        action = {"high": [0.01, 0.05], "pose": {"workspace": [[0.1, 0.5]]}, "limit": []} | changes
        shapes = {"groups": {"actor": (3,)}, "action_size": 2, "control_dt": 0.1}
        return FrameSpec(**shapes, meaning={"action": action, "law": None})

    spec().check(spec(high=[0.01 * (1 + 1e-9), 0.05]).plain())  # another processor
    with pytest.raises(RecordError, match=r"has meaning.action.high\[0\] 0.005, and .* has 0.01"):
        spec().check(spec(high=[0.005, 0.05]).plain())
    with pytest.raises(RecordError, match=r"has meaning.action.pose.workspace \[\], and"):
        spec().check(spec(pose={"workspace": []}).plain())
    with pytest.raises(RecordError, match=r"has meaning None, and .*same driver="):
        spec().check({key: one for key, one in spec().plain().items() if key != "meaning"})
