"""Pictures on their way from a robot to the rings: what is stored is what the actor saw."""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.cameras import CameraInput, FrameStacks
from policies.networks.images import ImageConfig, ImageEncoderKind
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.link.records import MOST_PICTURE_BYTES, Frame, FrameSpec, RecordError, decode, encode
from robot_rl.link.spool import Spool
from robot_rl.link.store import Begun, ExperienceStore
from robot_rl.link.transitions import Transition, TransitionAssembler
from robot_rl.training.config import TrainerConfig
from robot_rl.training.online_replay import OnlineReplay
from tests.fakes import CPU, small_sac

HIGH, WIDE, DEPTH = 5, 6, 3
WRIST = "image/wrist"
SPEC = EnvSpec(
    num_envs=1, device=CPU, action_size=1, control_dt=0.1,
    groups={
        "actor": GroupSpec(shape=(2,)),
        WRIST: GroupSpec(shape=(DEPTH, HIGH, WIDE, 3), dtype=torch.uint8, stack=DEPTH),
    },
)  # fmt: skip
IMAGES = ImageConfig(encoder=ImageEncoderKind.conv, channels=[4], strides=[1], features=4, shift=0)


def make_learner(n_step=1):
    return small_sac(SPEC, seed=0, n_step=n_step, images=IMAGES)


def recorded(rng, session, count):
    """Frames of episodes as an actor records them, and the stacks that it saw, by place.

    Some pictures stay the same, some episodes end without a last frame, some steps are invalid.
    """
    camera = CameraInput(
        picture=[HIGH, WIDE], crop=[0, 0, HIGH, WIDE], channels=["red", "green", "blue"],
        stack=DEPTH,
    )  # fmt: skip
    frames, seen = [], {}
    draw = np.random.default_rng(rng.randint(0, 2**32))
    picture = draw.integers(0, 256, (HIGH, WIDE, 3), dtype=np.uint8)
    for episode in range(count):
        stacks, steps = FrameStacks({"wrist": camera}, 1), rng.randint(0, 8)
        finished = rng.random() < 0.8
        for index in range(steps + finished):
            if rng.random() < 0.8:
                picture = draw.integers(0, 256, picture.shape, dtype=np.uint8)
            stacks.update({"wrist": picture[None]}, np.array([index == 0]))
            seen[session, episode, index] = stacks.stacks[WRIST][0].copy()
            final, last = finished and index == steps, index == steps - 1
            frames.append(Frame(
                session=session, episode=episode, index=index, seq=len(frames),
                obs={"actor": np.array([1 + episode, index], np.float32), WRIST: picture},
                action=None if final else np.array([0.5], np.float32), reward=float(index),
                truncated=last and rng.random() < 0.5, terminated=last and rng.random() < 0.5,
                valid=rng.random() < 0.8, intervened=rng.random() < 0.4 and not final,
                stamp=float(index), picture_stamps={WRIST: index - 0.03},
            ))  # fmt: skip
    return frames, seen


def stacks_of(ring):
    """Stacks of observation and successor of all rows of a ring, in order."""
    rows = torch.arange(ring.total_steps)
    frames = ring._frames[WRIST]
    return frames.stacks(rows, successor=False), frames.stacks(rows, successor=True)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_stored_stacks_are_those_that_the_actor_saw_and_each_frame_is_kept_once(seed):
    rng = random.Random(seed)
    sessions = ["a" * 32, "b" * 32]
    streams = [recorded(rng, session, rng.randint(1, 4)) for session in sessions]
    seen = {place: stack for _, mine in streams for place, stack in mine.items()}
    with tempfile.TemporaryDirectory() as folder:
        store = ExperienceStore(Path(folder))
        stored = [0, 0]
        for session in sessions:
            store.begin(session, session[0])
        while any(stored[k] < len(streams[k][0]) for k in (0, 1)):
            k = rng.choice([k for k in (0, 1) if stored[k] < len(streams[k][0])])
            part = streams[k][0][stored[k] : stored[k] + rng.randint(1, 5)]
            stored[k] = store.append(sessions[k], stored[k], [encode(one) for one in part])
            if rng.random() < 0.2:  # the learner is killed
                store.close()
                store = ExperienceStore(Path(folder))
        for n_step in (1, 3):
            expected, assembler = [], TransitionAssembler({WRIST: DEPTH})
            replay = OnlineReplay(
                TrainerConfig(replay_capacity=300), SPEC, make_learner(n_step), seed=0
            )
            for _, entry in store.read(0):
                for event in assembler.take(entry):
                    for step in replay.take(event):
                        expected.append(step)
            steps = {
                (f.session, f.episode, f.index): f
                for frames, _ in streams for f in frames if f.action is not None
            }  # fmt: skip
            steps = {p: f for p, f in steps.items() if (*p[:2], p[2] + 1) in seen}
            if n_step > 1:  # an episode is added when it is over: one without end still waits
                assert replay.steps.total_steps == len(expected) <= len(steps)
            else:
                assert replay.steps.total_steps == len(expected) == len(steps)
            before, after = stacks_of(replay.steps)
            found = set()
            for row, step in enumerate(expected):
                place = place_of(step, before[row], seen, steps)
                assert place not in found
                found.add(place)
                assert np.array_equal(before[row], seen[place])
                assert np.array_equal(after[row], seen[*place[:2], place[2] + 1])
            assert replay.interventions == sum(steps[place].intervened for place in found)
            if replay.prior.total_steps:
                people = [place for place in found if steps[place].intervened]
                told = {seen[p].tobytes() + seen[*p[:2], p[2] + 1].tobytes() for p in people}
                pairs = zip(*stacks_of(replay.prior), strict=True)
                assert {o.numpy().tobytes() + n.numpy().tobytes() for o, n in pairs} == told
        store.close()


def place_of(step, stack, seen, steps):
    """Session, episode and index of a step; sessions are told apart by their pictures."""
    episode, index = int(step.next_obs["actor"][0, 0]) - 1, int(step.next_obs["actor"][0, 1]) - 1
    fits = [
        place for place in steps
        if place[1:] == (episode, index) and np.array_equal(seen[place], stack)
    ]  # fmt: skip
    assert len(fits) == 1
    return fits[0]


def test_a_frame_that_is_kept_once_takes_the_memory_of_one():
    rng = random.Random(1)
    frames, _ = recorded(rng, "a" * 32, 1)
    draw = np.random.default_rng(0)
    replay = OnlineReplay(TrainerConfig(replay_capacity=300), SPEC, make_learner(), seed=0)
    assembler = TransitionAssembler({WRIST: DEPTH})
    assembler.take(Begun("a" * 32, "arm"))
    for index in range(41):
        picture = draw.integers(0, 256, (HIGH, WIDE, 3), dtype=np.uint8)
        one = replace(
            frames[0], episode=0, index=index, obs={**frames[0].obs, WRIST: picture},
            action=None if index == 40 else np.zeros(1, np.float32), intervened=False,
        )  # fmt: skip
        for event in assembler.take(one):
            list(replay.take(event))
    assert replay.steps.total_steps == 40
    assert replay.steps._frames[WRIST].total == 41


def test_steps_whose_frames_before_were_lost_are_void_until_their_stacks_are_whole():
    rng = random.Random(2)
    template = next(f for f in recorded(rng, "a" * 32, 9)[0] if f.action is not None)
    assembler, outcomes = TransitionAssembler({WRIST: DEPTH}), {}
    assembler.take(Begun("a" * 32, "arm"))
    for index in (0, 1, 2, 4, 5, 6, 7, 8):
        one = replace(template, episode=0, index=index, valid=True, truncated=False,
                      terminated=False, action=np.zeros(1, np.float32))  # fmt: skip
        for event in assembler.take(one):
            if isinstance(event, Transition):
                outcomes[event.index] = event.outcome.valid
    assert outcomes == {0: True, 1: True, 4: False, 5: False, 6: True, 7: True}


def frame_of(content):
    record = decode(content)
    assert isinstance(record, Frame)
    return record


def test_a_spool_that_is_cut_in_a_picture_has_all_pictures_before_it(tmp_path):
    frames, _ = recorded(random.Random(3), "a" * 32, 3)
    spool = Spool(tmp_path, quota_bytes=64 << 20)
    for one in frames:
        spool.append(one)
    session = spool.session
    spool.close()
    log = max((tmp_path / next(p.name for p in tmp_path.iterdir() if p.is_dir())).glob("*.log"))
    log.write_bytes(log.read_bytes()[:-40])  # killed within the last record
    again = Spool(tmp_path, quota_bytes=64 << 20)
    found = [frame_of(one) for one in again.batch(session, 0, most_bytes=1 << 30)]
    again.close()
    assert len(found) == len(frames) - 1
    for got, sent in zip(found, frames, strict=False):
        assert np.array_equal(got.obs[WRIST], sent.obs[WRIST])
        assert got.picture_stamps == sent.picture_stamps


def test_a_picture_keeps_its_own_time_or_that_of_the_measurement():
    picture = {WRIST: np.zeros((HIGH, WIDE, 3), np.uint8)}
    one = Frame(episode=0, index=0, obs=picture, stamp=7.5, picture_stamps={WRIST: 7.25})
    assert frame_of(encode(one)).picture_stamps == {WRIST: 7.25}
    assert frame_of(encode(replace(one, picture_stamps={}))).picture_stamps == {WRIST: 7.5}


def test_a_picture_costs_less_than_its_bytes_and_a_large_one_is_refused():
    rows = np.arange(64, dtype=np.uint8)[:, None, None]
    smooth = np.broadcast_to(rows + np.arange(64, dtype=np.uint8)[None, :, None], (64, 64, 3))
    one = Frame(episode=0, index=0, obs={WRIST: smooth})
    assert len(encode(one)) < smooth.size / 4
    large = np.zeros((2048, 1024, 3), np.uint8)
    assert large.size > MOST_PICTURE_BYTES
    with pytest.raises(RecordError, match=r"a picture of shape \(2048, 1024, 3\)"):
        encode(replace(one, obs={WRIST: large}))


def test_a_record_cannot_claim_more_memory_than_a_picture_may_take():
    content = encode(Frame(episode=0, index=0, obs={WRIST: np.zeros((2, 2, 3), np.uint8)}))
    with pa.ipc.open_stream(content) as stream:
        batch = stream.read_next_batch()
    place = batch.schema.get_field_index("obs/" + WRIST)
    field = batch.schema.field(place)
    for shape in ("[40000, 40000, 3]", "[2, 2]", "[-2, -2, 3]", "[2, 3, 3]", "[1, 2, 3]"):
        schema = batch.schema.set(place, field.with_metadata({"shape": shape}))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        with pytest.raises(RecordError):
            decode(sink.getvalue().to_pybytes())


def test_frames_hold_one_picture_of_the_size_that_the_learner_sees():
    spec = FrameSpec(groups={WRIST: (DEPTH, HIGH, WIDE, 3)}, action_size=1, control_dt=0.1)
    one = Frame(episode=0, index=0, obs={WRIST: np.zeros((HIGH, WIDE, 3), np.uint8)})
    spec.check_frame(one)
    with pytest.raises(RecordError, match=r"expected .*\(5, 6, 3\)"):
        spec.check_frame(replace(one, obs={WRIST: np.zeros((HIGH, HIGH, 3), np.uint8)}))
    with pytest.raises(RecordError, match="groups"):
        spec.check({**spec.plain(), "groups": {WRIST: [1, HIGH, WIDE, 3]}})
