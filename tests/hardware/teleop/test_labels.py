"""Labels: attributed late, taken back, settled once; against a model that replays everything."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.teleop.labels import EpisodeLabels, LabelConfig, LabelKind, attributed_step
from robot_rl.core.errors import ConfigError

CONFIG = LabelConfig(grace=5.0, least_delay=0.3, most_delay=1.0)
K = LabelKind
STAMPS = [0.1 * i for i in range(50)]


def hits(*steps):
    return [i in steps for i in range(50)]


class TestAttribution:
    def test_success_means_the_step_in_which_the_rule_first_saw_it(self):
        # Seen from 2.0 s to the end of the run at 2.3; the key comes at 2.8.
        assert attributed_step(STAMPS, hits(20, 21, 22, 23), 2.8, CONFIG, K.success) == 20

    def test_a_run_that_began_before_the_window_counts_from_its_beginning(self):
        assert attributed_step(STAMPS, hits(*range(10, 30)), 2.9, CONFIG, K.success) == 10

    def test_a_sighting_that_is_over_for_longer_than_people_take_is_another_event(self):
        # At 1.0 s; the key at 3.0 means something between 2.0 and 2.7: the last step of these.
        assert attributed_step(STAMPS, hits(10), 3.0, CONFIG, K.success) == 27

    def test_of_two_runs_in_the_window_the_newer_counts(self):
        assert attributed_step(STAMPS, hits(21, 25), 2.9, CONFIG, K.success) == 25

    def test_a_failure_is_the_last_step_that_had_begun_when_it_happened_at_the_latest(self):
        assert attributed_step(STAMPS, hits(25), 3.0, CONFIG, K.fail) == 27

    def test_a_key_long_after_the_end_means_the_end(self):
        assert attributed_step(STAMPS, hits(), 30.0, CONFIG, K.success) == 49

    def test_the_key_itself_is_never_the_step_where_the_rule_saw_nothing(self):
        for pressed in (0.05, 0.5, 2.0, 4.9):
            step = attributed_step(STAMPS, hits(), pressed, CONFIG, K.success)
            assert step == 0 or STAMPS[step] <= pressed - CONFIG.least_delay

    @given(
        st.lists(st.booleans(), min_size=1, max_size=40),
        st.floats(0.0, 6.0),
    )
    def test_the_step_is_what_the_definition_says(self, seen, pressed):
        stamps = [0.1 * i for i in range(len(seen))]
        found = attributed_step(stamps, seen, pressed, CONFIG, K.success)
        begun = [i for i, t in enumerate(stamps) if t <= pressed]
        window = [i for i in begun if seen[i] and stamps[i] >= pressed - CONFIG.most_delay]
        if window:
            expected = next(i for i in range(window[-1], -1, -1) if i == 0 or not seen[i - 1])
        else:
            early = [i for i, t in enumerate(stamps) if t <= pressed - CONFIG.least_delay]
            expected = early[-1] if early else 0
        assert found == expected


def counting():
    numbers = iter(range(10**6))
    return lambda: f"{next(numbers):032x}"


def labels(**config) -> Any:
    made = EpisodeLabels("s", LabelConfig(**{"grace": 5.0, **config}), make_id=counting())
    made.begin(0)
    for i in range(30):
        made.step(0.1 * i, hit=20 <= i < 25)
    return made


class TestPresses:
    def test_a_label_is_settled_after_its_grace_and_keeps_the_time_of_the_key(self):
        made = labels()
        made.press(K.success, 2.9, "ann")
        assert made.settle(7.8) == []
        (found,) = made.settle(8.0)
        assert (found.kind, found.index, found.time, found.operator) == ("success", 20, 2.9, "ann")
        assert made.settle(100.0) == []

    def test_undo_takes_the_newest_back_until_its_grace_is_over(self):
        made = labels()
        made.press(K.fail, 2.0)
        made.press(K.success, 2.9)
        assert made.undo(4.0).kind is K.success
        assert made.undo(7.1) is None  # of the other, the grace is over
        assert [one.kind for one in made.settle(20.0)] == ["fail"]

    def test_the_newer_of_two_outcomes_of_an_episode_counts(self):
        made = labels()
        made.press(K.fail, 2.0)
        made.press(K.success, 2.5)
        assert [one.kind for one in made.settle(20.0)] == ["success"]

    def test_during_the_reset_the_last_episode_is_discarded(self):
        made = labels()
        made.end()
        assert made.press(K.discard, 4.0).episode == 0
        made.begin(1)
        (found,) = made.settle(20.0)
        assert (found.episode, found.kind, found.index, found.until) == (0, "discard", 0, -1)

    def test_it_is_discarded_once(self):
        made = labels()
        made.press(K.discard, 2.0)
        assert len(made.settle(8.0)) == 1
        made.press(K.discard, 9.0)
        assert made.settle(20.0) == []

    def test_before_the_first_step_there_is_nothing_to_label(self):
        made = EpisodeLabels("s")
        assert made.press(K.success, 0.0) is None
        made.begin(4)
        assert made.press(K.success, 0.0) is None

    def test_one_intervention_is_discarded_and_its_episode_stays(self):
        made = labels()
        found = made.discard_steps(0, 1.0, 1.5, now=3.0)
        assert (found.kind, found.index, found.until) == ("discard", 10, 15)
        assert made.discard_steps(0, 50.0, 60.0, now=3.0) is None
        assert made.discard_steps(7, 1.0, 1.5, now=3.0) is None
        assert made.discard_steps(0, 2.85, float("nan"), now=3.0).until == 30

    def test_what_is_pending_shows_the_time_that_is_left(self):
        made = labels()
        made.press(K.success, 2.0)
        (label, left), = made.pending(4.0)  # fmt: skip
        assert (label.kind, left) == (K.success, pytest.approx(3.0))

    def test_relabelling_has_no_grace_and_says_what_its_kind_needs(self):
        made = labels()
        found = made.relabel(0, K.reward, 4, 9.0, value=0.5)
        assert (found.kind, found.index, found.value) == ("reward", 4, 0.5)
        assert made.relabel(0, K.segment, 4, 9.0, text="recovery").text == "recovery"
        for kind, more in ((K.reward, {}), (K.success, {"value": 1.0}), (K.segment, {}),
                           (K.segment, {"text": "nap"}), (K.fail, {"text": "demo"})):  # fmt: skip
            with pytest.raises(ConfigError):
                made.relabel(0, kind, 4, 9.0, **more)
        with pytest.raises(ConfigError, match="step >= 0"):
            made.relabel(0, K.fail, -1, 9.0)

    def test_keys_and_episodes_that_are_none_are_refused(self):
        made = labels()
        with pytest.raises(ConfigError, match="no key"):
            made.press(K.reward, 3.0)
        with pytest.raises(ConfigError, match="begun already"):
            made.begin(0)
        made.end()
        with pytest.raises(ConfigError, match="outside of an episode"):
            made.step(5.0, hit=False)


@dataclass
class _Pressed:
    time: float
    kind: LabelKind
    episode: int


class Oracle:
    """All that was ever done, replayed from the beginning for every question."""

    def __init__(self):
        self.done = []

    def outcomes(self, grace):
        """Settled in the end: newest outcome and discard of every group of settled keys."""
        keys, given, discarded = [], [], set()
        for what, time, kind, episode in self.done:
            if what == "press":
                keys.append(_Pressed(time, kind, episode))
            elif what == "undo" and keys and time - keys[-1].time <= grace:
                keys.pop()
            elif what == "settle":
                over = [one for one in keys if time - one.time > grace]
                keys = [one for one in keys if one not in over]
                for place, one in enumerate(over):
                    later = over[place + 1 :]
                    kind = one.kind is K.discard
                    same = [
                        o
                        for o in later
                        if o.episode == one.episode and (o.kind is K.discard) == kind
                    ]
                    if same or (one.kind is K.discard and one.episode in discarded):
                        continue
                    if one.kind is K.discard:
                        discarded.add(one.episode)
                    given.append((one.episode, one.kind.value, one.time))
        return given


_ACTS = st.lists(
    st.tuples(
        st.sampled_from(["success", "fail", "discard", "undo", "settle", "begin", "end"]),
        st.floats(0.01, 4.0),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_ACTS)
def test_whatever_is_pressed_each_correction_is_the_oracles_and_has_an_id_of_its_own(acts):
    made, oracle = EpisodeLabels("s", CONFIG, make_id=counting()), Oracle()
    now, episode, found = 0.0, -1, []
    for act, wait in [*acts, ("settle", 100.0)]:
        now += wait
        if act == "begin":
            episode += 1
            made.begin(episode)
            made.step(now, hit=False)
        elif act == "end":
            made.end()
        elif act == "undo":
            made.undo(now)
            oracle.done.append(("undo", now, None, episode))
        elif act == "settle":
            found += made.settle(now)
            oracle.done.append(("settle", now, None, episode))
        elif made.press(K(act), now) is not None:
            oracle.done.append(("press", now, K(act), episode))
    assert [(one.episode, one.kind, one.time) for one in found] == oracle.outcomes(5.0)
    assert len({one.id for one in found}) == len(found)
