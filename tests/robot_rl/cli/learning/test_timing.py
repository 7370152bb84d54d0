"""Account of an actor's control periods."""

from robot_rl.cli.learning.timing import PeriodTimes


def test_periods_decisions_and_ages_are_summed_up_within_episodes_only():
    times = PeriodTimes(0.1)
    assert times.summary() == "control periods: none"
    times.add(0.0, 0.1, 0.004)
    times.add(0.102, 0.2, 0.006)  # decided in 2 ms
    times.pause()
    times.add(7.0, 7.1, 0.005)
    times.add(7.104, 7.41, 0.005)  # as long as three
    assert times.summary() == (
        "control periods of 100 ms: 2, 2 missed; length 205.0, 307.9, 310.0; measurement 5.0, 6.0, "
        "6.0 old; decided in 3.0, 4.0, 4.0 ms (median, 99%, largest)"
    )


def test_a_robot_that_tells_no_age_has_none():
    times = PeriodTimes(0.1)
    times.add(0.0, 0.1, None)
    times.add(0.1, 0.2, None)
    assert "old" not in times.summary()
