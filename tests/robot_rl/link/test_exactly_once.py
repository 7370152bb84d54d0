"""Random episodes and corrections, repeated, reordered and cut, against an oracle."""

import dataclasses
import gc
import os
import random
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import StorageError
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, encode
from robot_rl.link.store import ExperienceStore, OrderError
from robot_rl.link.transitions import TransitionAssembler
from robot_rl.training.config import TrainerConfig
from robot_rl.training.online_replay import OnlineReplay
from tests.fakes import CPU, small_sac

SESSIONS = ("a" * 32, "b" * 32)
SPEC = EnvSpec(
    num_envs=1, device=CPU, groups={"actor": GroupSpec(shape=(3,))}, action_size=1, control_dt=0.1
)
FIELDS = ("reward", "terminated", "truncated", "valid", "intervened")


def episodes_of(session, rng):
    """Frames of a session's episodes; some were given up without a last frame."""
    number = float(SESSIONS.index(session))
    for episode in range(rng.randint(1, 4)):
        steps, finished = rng.randint(0, 6), rng.random() < 0.8
        intervened = False
        for index in range(steps + finished):
            final = finished and index == steps
            last = index == steps - 1 and finished
            intervened = intervened != (rng.random() < 0.3)
            yield Frame(
                session=session, episode=episode, index=index,
                obs={"actor": np.array([number, episode, index], np.float32)},
                action=None if final else np.array([rng.uniform(-1, 1)], np.float32),
                reward=float(np.float32(rng.uniform(-1, 1))),
                terminated=last and rng.random() < 0.5,
                truncated=last, valid=rng.random() < 0.9, intervened=intervened and not final,
                stamp=episode + index / 100,
            )  # fmt: skip


def corrections_of(rng):
    """Labels of a person, some of whom undo earlier ones, some of steps that never come."""
    made = []
    for k in range(rng.randint(0, 10)):
        kind = rng.choice(("success", "fail", "reward", "discard", "undiscard", "undo", "segment"))
        target = rng.choice(made) if made and kind == "undo" else None
        made.append(Correction(
            id=f"{k:032d}", kind=kind, index=rng.randint(0, 6), until=rng.choice((-1, 2, 5)),
            session=target.session if target else rng.choice(SESSIONS),
            episode=target.episode if target else rng.randint(0, 3),
            value=float(np.float32(rng.uniform(-5, 5))), text=target.id if target else "human",
            time=rng.uniform(0, 10),
        ))  # fmt: skip
    return made


def oracle(frames, corrections):
    """Rows of all steps, and of persons' steps: worked out from the whole at once."""

    def active(one):
        return not any(
            u.kind == "undo" and u.text == one.id and (u.time, u.id) > (one.time, one.id)
            and active(u) for u in corrections
        )  # fmt: skip

    counted = sorted((c for c in corrections if active(c)), key=lambda c: (c.time, c.id))
    by_place = {(f.session, f.episode, f.index): f for f in frames}
    rows, prior = {}, {}
    for place, frame in by_place.items():
        after = by_place.get((*place[:2], place[2] + 1))
        if frame.action is None or after is None:
            continue
        mine = [c for c in counted if (c.session, c.episode) == place[:2]]
        within = [
            c for c in mine
            if c.index <= frame.index and (c.until == -1 or frame.index < c.until)
        ]  # fmt: skip
        reward, terminated, truncated = frame.reward, frame.terminated, frame.truncated
        truncated = truncated and not terminated
        for c in within:
            reward = c.value if c.kind == "reward" else reward
        thrown = [c.kind for c in within if c.kind in ("discard", "undiscard")]
        valid = frame.valid and thrown[-1:] != ["discard"]
        labels = [c for c in mine if c.kind in ("success", "fail")]
        if labels:
            valid = valid and frame.index <= labels[-1].index
            if frame.index == labels[-1].index:
                reward, terminated, truncated = labels[-1].value, True, False
        row = (reward, terminated, truncated, valid, frame.intervened)
        rows[place] = row
        if frame.intervened:
            border = after.action is None or not after.intervened
            prior[place] = (reward, terminated, (truncated or border) and not terminated, *row[3:])
    return rows, prior


def rows_of(ring):
    """Content of a ring by place; each place once."""
    found = {}
    for row in ring.ordered_rows():
        part = {name: value[0] for name, value in ring.layout.split(row).items()}
        if not part["valid"].item() and not part["obs/actor"].any() and not part["action"].any():
            continue  # zeroed: the robot itself voided it
        session, episode, index = map(int, part["obs/actor"].tolist())
        place = (SESSIONS[session], episode, index)
        assert place not in found
        assert part["next_obs/actor"].tolist() == [session, episode, index + 1]
        values = [part[name].item() for name in FIELDS]
        found[place] = (values[0], *(value > 0 for value in values[1:]))
    return found


def rebuilt(store, n_step=1, stop=None):
    """Rings made of the store's log."""
    learner = small_sac(SPEC, seed=0, n_step=n_step)
    replay = OnlineReplay(TrainerConfig(replay_capacity=500), SPEC, learner, seed=0)
    assembler = TransitionAssembler()
    for _, entry in store.read(0, stop):
        for event in assembler.take(entry):
            for _ in replay.take(event):
                pass
    return replay


def deliver(folder, streams, rng):
    """Push the streams as a bad link would, over restarts of the store; returns the store."""
    store = ExperienceStore(folder)
    stored = dict.fromkeys(streams, 0)
    for session in streams:
        store.begin(session, session[0])
    while any(stored[session] < len(records) for session, records in streams.items()):
        session = rng.choice([s for s in streams if stored[s] < len(streams[s])])
        first = max(0, stored[session] - rng.randint(0, 3))
        if rng.random() < 0.1:
            first += 7  # from the future
        part = [encode(one) for one in streams[session][first : first + rng.randint(1, 6)]]
        if first > stored[session]:
            with pytest.raises(OrderError):
                store.append(session, first, part)
        elif part:
            stored[session] = store.append(session, first, part)
            assert stored[session] >= first + len(part)
        if rng.random() < 0.2:
            store.close()
            store = ExperienceStore(folder)
            assert store.begin(session, session[0]) == stored[session]
    return store


def test_what_the_disk_refused_to_sync_is_never_acknowledged(tmp_path, monkeypatch):
    frames = [
        Frame(
            session=SESSIONS[0],
            episode=0,
            index=k,
            seq=k,
            obs={"actor": np.zeros(3, np.float32)},
            stamp=0.0,
        )
        for k in range(2)
    ]
    first, second = (encode(one) for one in frames)
    store = ExperienceStore(tmp_path)
    store.begin(SESSIONS[0], "a")
    assert store.append(SESSIONS[0], 0, [first]) == 1
    really = os.fsync

    def refuse(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError):
        store.append(SESSIONS[0], 1, [second])
    assert store.begin(SESSIONS[0], "a") == 1, "a robot that connects anew drops what it is told of"
    monkeypatch.setattr(os, "fsync", really)
    assert store.append(SESSIONS[0], 1, [second]) == 2
    assert [one.index for _, one in store.read(1) if isinstance(one, Frame)] == [0, 1]
    store.close()


def streams_of(rng):
    """Records of each session in order, with the corrections anywhere between the frames."""
    frames = {session: list(episodes_of(session, rng)) for session in SESSIONS}
    corrections = corrections_of(rng)
    streams = {}
    for session in SESSIONS:
        mixed = list(frames[session])
        for one in corrections:
            if rng.random() < 0.5 or session == SESSIONS[-1]:
                mixed.insert(rng.randint(0, len(mixed)), one)  # some go over both: twice
        streams[session] = [
            dataclasses.replace(one, seq=seq) if isinstance(one, Frame) else one
            for seq, one in enumerate(mixed)
        ]
    return streams, [f for one in frames.values() for f in one], corrections


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rings_hold_each_step_once_with_the_judgement_of_all_corrections(seed):
    rng = random.Random(seed)
    streams, frames, corrections = streams_of(rng)
    void = {(f.session, f.episode, f.index) for f in frames if not f.valid}
    with tempfile.TemporaryDirectory() as folder:
        store = deliver(Path(folder), streams, rng)
        replay = rebuilt(store)
        store.close()
    rows, prior = oracle(frames, corrections)
    assert rows_of(replay.steps) == {place: row for place, row in rows.items() if place not in void}
    assert rows_of(replay.prior) == {
        place: row for place, row in prior.items() if place not in void
    }
    assert replay.steps.total_steps == len(rows)
    assert replay.interventions == len(prior)


@pytest.mark.slow
def test_a_learner_restarted_at_any_record_has_the_same_rings(tmp_path):
    rng = random.Random(5)
    streams, *_ = streams_of(rng)
    store = deliver(tmp_path, streams, rng)
    learner = small_sac(SPEC, seed=0)
    going = OnlineReplay(TrainerConfig(replay_capacity=500), SPEC, learner, seed=0)
    assembler = TransitionAssembler()
    for position, entry in store.read(0):
        for event in assembler.take(entry):
            list(going.take(event))
        again = rebuilt(store, stop=position + 1)
        for one, two in ((going.steps, again.steps), (going.prior, again.prior)):
            assert torch.equal(one.ordered_rows(), two.ordered_rows())
    store.close()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sums_over_several_steps_never_leave_an_episode_or_a_persons_part(seed):
    """Two robots at once: the rows of an episode lie behind each other, and the last is a seam."""
    rng = random.Random(seed)
    streams, _, _ = streams_of(rng)
    with tempfile.TemporaryDirectory() as folder:
        store = deliver(Path(folder), streams, rng)
        replay = rebuilt(store, n_step=3)
        store.close()
    for ring in (replay.steps, replay.prior):
        if len(ring) == 0:
            continue
        batch = ring.strided_sample(len(ring))
        for start, end, weight in zip(
            batch.obs["actor"], batch.next_obs["actor"], batch.weight, strict=True
        ):
            if weight > 0:
                assert start[:2].tolist() == end[:2].tolist()
                assert 1 <= end[2] - start[2] <= 3


@pytest.mark.parametrize(
    ("kind", "index", "until", "steps", "intervened", "aided"),
    [
        ("reward", 0, -1, 10, 5, True),
        ("discard", 5, 10, 5, 0, False),
        ("success", 3, -1, 4, 0, False),
        ("discard", 5, 9, 6, 1, True),
        ("success", 6, -1, 7, 2, True),
    ],
)
def test_a_summary_counts_a_persons_steps_only_where_steps_count(
    kind, index, until, steps, intervened, aided
):
    """Void steps of a person were counted, so that their share could be above 1."""
    assembler, session = TransitionAssembler(), SESSIONS[0]
    for k in range(11):
        assembler.take(Frame(
            session=session, episode=0, index=k, obs={"actor": np.zeros(3, np.float32)},
            action=None if k == 10 else np.zeros(1, np.float32), intervened=5 <= k < 10,
        ))  # fmt: skip
    assembler.take(Correction(
        id="0" * 32, session=session, episode=0, kind=kind, index=index, until=until, value=1.0,
        time=1.0,
    ))  # fmt: skip
    (one,) = assembler.summaries(20)
    assert (one.steps, one.intervened, one.aided) == (steps, intervened, aided)


def test_help_in_a_discarded_step_before_a_success_is_help():
    assembler, session = TransitionAssembler(), SESSIONS[0]
    for k in range(4):
        assembler.take(Frame(
            session=session, episode=0, index=k, obs={"actor": np.zeros(3, np.float32)},
            action=None if k == 3 else np.zeros(1, np.float32), intervened=k == 1,
            terminated=k == 2, success=k == 2,
        ))  # fmt: skip
    assembler.take(Correction(
        id="0" * 32, session=session, episode=0, kind="discard", index=1, until=2, time=1.0
    ))  # fmt: skip
    (one,) = assembler.summaries(20)
    assert (one.success, one.intervened, one.aided) == (True, 0, True)


def test_a_learner_keeps_few_bytes_of_each_step_for_labels_that_come_late():
    replay = OnlineReplay(TrainerConfig(replay_capacity=100), SPEC, small_sac(SPEC), seed=0)
    assembler, session = TransitionAssembler(), "0" * 32
    obs = {"actor": np.zeros(3, np.float32)}

    def live(episodes: range) -> int:
        """Bytes held after these episodes."""
        for episode in episodes:
            for index in range(101):
                action = np.zeros(1, np.float32) if index < 100 else None
                one = Frame(
                    session=session, episode=episode, index=index, obs=obs, action=action,
                    reward=0.5 + index, stamp=0.0,
                )  # fmt: skip
                for event in assembler.take(one):
                    _ = [*replay.take(event)]
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = live(range(10))
        assert (live(range(10, 60)) - before) / 5000 < 120, "bytes a step"
    finally:
        tracemalloc.stop()
