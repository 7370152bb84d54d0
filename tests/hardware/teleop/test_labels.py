"""Steps that late keys mean, against the definition; the rest is in the actor's tests."""

from hypothesis import given
from hypothesis import strategies as st

from hardware.teleop.labels import StepTimes


def times(seen, episodes=None, intervened=()):
    """Steps of 0.1 s from 0 on; `episodes`: the number of each step's."""
    made = StepTimes()
    index = 0
    for i, hit in enumerate(seen):
        number = 0 if episodes is None else episodes[i]
        index = 0 if i == 0 or episodes is None or episodes[i - 1] != number else index + 1
        made.add(
            number, i if episodes is None else index, 0.1 * i, 0.1 * (i + 1), succeeded=hit,
            intervened=i in intervened,
        )  # fmt: skip
    return made


def hits(*steps):
    return times([i in steps for i in range(50)])


def test_success_means_the_step_in_which_the_rule_first_saw_it():
    # Seen from 2.0 s to the end of the run at 2.4; the key comes at 2.8.
    assert hits(20, 21, 22, 23).success(2.8) == (0, 20)


def test_a_run_that_began_before_the_window_counts_from_its_beginning():
    assert hits(*range(10, 30)).success(2.95) == (0, 10)


def test_a_sighting_that_is_over_for_longer_than_people_take_is_another_event():
    # At 1.1 s; the key at 3.05 means something between 2.05 and 2.75: the last step of these.
    assert hits(10).success(3.05) == (0, 27)


def test_of_two_runs_in_the_window_the_newer_counts():
    assert hits(21, 25).success(2.95) == (0, 25)


def test_a_failure_is_the_step_under_way_when_it_happened_at_the_latest():
    assert hits(25).event(3.05) == (0, 27)


def test_a_key_long_after_the_end_means_the_end():
    assert hits().success(30.0) == (0, 49)


def test_a_key_just_after_the_next_episode_began_means_the_one_before():
    seen, episodes = [False] * 9 + [True] + [False] * 10, [0] * 10 + [1] * 10
    made = times(seen, episodes)
    assert made.success(1.55) == (0, 9)  # the rule saw it half a second ago
    assert made.event(1.25) == (0, 9)
    assert made.event(1.45) == (1, 1)
    assert made.success(2.15) == (1, 8)  # too long ago to be what was meant


def test_a_run_ends_with_its_episode():
    made = times([True] * 6, [0, 0, 0, 1, 1, 1])
    assert made.success(0.62) == (1, 0)


def test_the_first_step_is_meant_by_a_key_right_after_it_and_none_by_one_before():
    assert hits().event(0.05) == (0, 0)
    assert hits().event(-0.05) is None
    assert hits().success(-0.05) is None


def test_the_newest_part_of_a_person_lies_in_one_episode():
    episodes = [0] * 5 + [1] * 5
    assert times([False] * 10, episodes, (1, 4, 5, 6)).intervention() == (1, 0, 2)
    assert times([False] * 10, episodes, (1, 2)).intervention() == (0, 1, 3)
    assert times([False] * 10, episodes).intervention() is None


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 60))
def test_success_is_what_the_definition_says(seen, tenth):
    pressed = 0.1 * tenth + 0.05
    window = [
        i for i, hit in enumerate(seen)
        if hit and 0.1 * i <= pressed and 0.1 * (i + 1) >= pressed - 1.0
    ]  # fmt: skip
    if window:
        expected = next(i for i in range(window[-1], -1, -1) if i == 0 or not seen[i - 1])
    else:
        early = [i for i in range(len(seen)) if 0.1 * i <= pressed - 0.3]
        expected = early[-1] if early else 0
    assert times(seen).success(pressed) == (0, expected)
