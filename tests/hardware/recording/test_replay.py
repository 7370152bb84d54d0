"""A recorded run gives the same observations and actions again, and a changed one does not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hardware.recording.bag import Bag, BagTopic, BagWriter, RecordingError
from hardware.recording.replay import Comparison, Replay, ReplayedStep
from hardware.ros.policy_step import STEP_TOPIC
from policies.bundle import load_bundle
from tests.matrices import some

pytestmark = pytest.mark.slow

Edit = Callable[[str, int, bytes], bytes | None]
"""Topic without its namespace, number of the message there, message -> what is kept of it."""


def edited(bag: Path, edit: Edit) -> Path:
    """A copy of a bag, beside it, in which something is missing or different."""
    with Bag(bag) as source:
        copy = bag.with_name("edited")
        shutil.rmtree(copy, ignore_errors=True)
        writer = BagWriter(copy, source.about)
        seen: dict[str, int] = {}
        for topic, received, raw in source.messages(source.topics):
            name = topic.removeprefix(f"{source.about['namespace']}/")
            number = seen[name] = seen.get(name, -1) + 1
            kept = edit(name, number, raw)
            if kept is not None:
                kind = next(c.msgtype for c in source._reader.connections if c.topic == topic)
                writer.add(BagTopic(name=topic, kind=kind))
                writer.write(topic, received, kept)
    writer.close()
    return writer.folder


def replayed(bag, bundle) -> tuple[list[ReplayedStep], Comparison, Replay]:
    runner = load_bundle(bundle, verify=False)
    with Bag(bag) as opened:
        replay = Replay(opened, runner)
        steps = list(replay.run())
    comparison = Comparison(runner.spec)
    for step in steps:
        comparison.add(step)
    return steps, comparison, replay


@pytest.mark.parametrize("task", some(["velocity"], ["hover", "lift"]))
def test_replay_sees_and_does_exactly_what_the_policy_did(recorded, task):
    run = recorded(task)
    steps, comparison, _ = replayed(run.bag, run.bundle)
    assert len(steps) == len(run.steps)
    for step, then in zip(steps, run.steps, strict=True):
        assert step.compared
        assert step.recorded.stamps == then.stamps
        np.testing.assert_array_equal(step.observation, then.observation)
        np.testing.assert_array_equal(step.action, then.action)
        assert step.recorded_command is not None
        for name, values in step.command.items():
            np.testing.assert_array_equal(values, step.recorded_command[name])
    assert np.ptp([step.action for step in steps], axis=0).max() > 1e-3, (
        "a policy that does nothing"
    )
    assert comparison.same
    assert comparison.episodes == 1


def steps_without(number: int) -> Edit:
    return lambda topic, n, raw: None if (topic, n) == (STEP_TOPIC, number) else raw


@pytest.mark.parametrize(
    ("lost", "compared", "episodes"),
    [
        (2, [1, 2, 7, 8], 1),  # three frames of history, the third with a known last action
        (0, [5, 6, 7, 8], 0),  # a recorder that came late
    ],
)
def test_after_a_lost_step_histories_are_filled_again_and_then_all_is_the_same(
    recorded, lost, compared, episodes
):
    run = recorded("velocity")
    steps, comparison, _ = replayed(edited(run.bag, steps_without(lost)), run.bundle)
    assert [step.recorded.number for step in steps if step.compared] == compared
    assert comparison.same
    assert comparison.episodes == episodes
    assert comparison.filling == 3


def test_message_that_was_not_recorded_is_counted_and_its_step_left_out(recorded):
    run = recorded("velocity")
    lost = run.steps[3].stamps["imu/data"]

    def without(topic: str, number: int, raw: bytes) -> bytes | None:
        del number
        stamp = int.from_bytes(raw[4:8], "little") * 10**9 + int.from_bytes(raw[8:12], "little")
        return None if topic == "imu/data" and stamp == lost else raw

    steps, comparison, replay = replayed(edited(run.bag, without), run.bundle)
    assert replay.missing == 1
    assert 4 not in [step.recorded.number for step in steps]
    assert comparison.same


@pytest.mark.parametrize(
    ("what", "added"), [("observation", 1e-5), ("action", 1e-5), ("observation", np.nan)]
)
def test_difference_is_found_where_it_begins(recorded, what, added):
    run = recorded("velocity")
    then = getattr(run.steps[4], what)

    def changed(topic: str, number: int, raw: bytes) -> bytes:
        if (topic, number) != (STEP_TOPIC, 4):
            return raw
        old = then.astype(np.float64).tobytes()
        assert raw.count(old) == 1
        return raw.replace(old, (then.astype(np.float64) + added).tobytes())

    _, comparison, _ = replayed(edited(run.bag, changed), run.bundle)
    assert not comparison.same
    assert comparison.differing == 1
    assert comparison.first is not None
    assert comparison.first.recorded.number == 5
    apart = [name for name, gap in comparison.largest.items() if gap > 1e-6]
    assert {name.partition("/")[0] for name in apart} == {what}
    assert np.isnan(added) == (max(comparison.largest.values()) == np.inf)


@pytest.mark.parametrize(
    ("gone", "left", "told"),
    [
        (STEP_TOPIC, 0, "has 0 topics /policy/step, on which a policy says what it used"),
        ("imu/data", 0, "the policy used imu/data, of which .* has no message"),
        ("imu/data", 7, r"a message on /\S+/imu/data has no header: 7 bytes"),
    ],
)
def test_missing_topic_or_torn_message_is_named(recorded, gone, left, told):
    run = recorded("velocity")
    bag = edited(run.bag, lambda topic, _, raw: raw[:left] or None if topic == gone else raw)
    with pytest.raises(RecordingError, match=told):
        replayed(bag, run.bundle)
