"""When a policy decides: with its measurements, at the rate that it was trained at."""

import numpy as np
import pytest

from hardware.ros.policy_node import DecisionTiming

MS = 1_000_000


def decisions(
    pace: DecisionTiming, arrivals: dict[str, list[tuple[float, float]]], *, until: float
) -> list[float]:
    """Times of decisions [s]; `arrivals`: topic -> (when a message comes, when it was measured)."""
    stamps: dict[str, int] = {}
    events = sorted((came, name, stamp) for name, row in arrivals.items() for came, stamp in row)
    now, decided = 0.0, []
    while now < until:
        now += 0.0002
        while events and events[0][0] <= now:
            _, name, stamp = events.pop(0)
            stamps[name] = round(stamp * 1e9)
        if pace.rest(now) > 0:
            continue
        if pace.is_over(stamps, now):
            decided.append(now)
    return decided


def stream(rate: float, *, delay: float = 0.001, seconds: float = 2.0, begin: float = 0.003):
    stamps = begin + np.arange(int(seconds * rate)) / rate
    return [(float(stamp + delay), float(stamp)) for stamp in stamps]


def test_every_sample_of_the_control_rate_is_answered_at_once():
    found = decisions(DecisionTiming(0.01, {"imu": 100.0}), {"imu": stream(100)}, until=1.0)
    came = [came for came, _ in stream(100) if came < 1.0]
    assert len(found) == len(came)
    assert np.abs(np.array(found) - came).max() < 0.0005


def test_faster_samples_keep_the_rate_of_training_and_slower_ones_leave_it_to_the_clock():
    found = decisions(
        DecisionTiming(0.02, {"joint_states": 500.0}), {"joint_states": stream(500)}, until=1.5
    )
    assert np.abs(np.diff(found)[1:] - 0.02).max() < 0.0005
    assert len(found) == pytest.approx(75, abs=1)
    found = decisions(DecisionTiming(0.01, {"odom": 30.0}), {"odom": stream(30)}, until=1.0)
    assert len(found) == pytest.approx(100, abs=3)


def test_jitter_of_stamps_loses_no_period():
    rng = np.random.default_rng(0)
    row = [(s + 0.001, s + rng.uniform(-0.002, 0.002)) for _, s in stream(100)]
    found = decisions(DecisionTiming(0.01, {"imu": 100.0}), {"imu": row}, until=1.0)
    assert len(found) == len([came for came, _ in row if came < 1.0])


def test_all_topics_of_one_sample_are_awaited():
    slow = [(came + 0.002, stamp) for came, stamp in stream(100)]
    pace = DecisionTiming(0.01, {"imu": 100.0, "odom": 100.0})
    found = decisions(pace, {"imu": stream(100), "odom": slow}, until=1.0)
    assert np.abs(np.array(found) - [came for came, _ in slow if came < 1.0]).max() < 0.0005


@pytest.mark.parametrize("rate", [97.0, 103.0])
def test_clocks_that_drift_apart_lose_at_most_their_difference(rate):
    found = decisions(
        DecisionTiming(0.01, {"imu": 100.0}), {"imu": stream(rate, seconds=4.0)}, until=3.9
    )  # fmt: skip
    assert len(found) / 3.9 == pytest.approx(min(rate, 100.0), rel=0.03)


def test_silence_is_decided_by_the_clock_and_the_rate_returns_also_where_nothing_ever_came():
    row = [(came, stamp) for came, stamp in stream(100) if not 0.5 < stamp < 0.8]
    found = np.array(decisions(DecisionTiming(0.01, {"imu": 100.0}), {"imu": row}, until=1.5))
    silent = found[(found > 0.52) & (found < 0.8)]
    assert np.diff(silent) == pytest.approx(0.015, abs=0.0005)
    after = found[found > 0.83]
    assert np.diff(after) == pytest.approx(0.01, abs=0.0005)
    found = decisions(DecisionTiming(0.01, {"imu": 100.0}), {}, until=0.1)
    assert np.diff(found) == pytest.approx(0.015, abs=0.0005)
