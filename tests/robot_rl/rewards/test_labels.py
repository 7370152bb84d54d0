"""Labels of frames, and that parts of a data set share no episode."""

from dataclasses import replace

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError, DatasetError
from robot_rl.rewards.labels import (
    LabelConfig,
    LabelRule,
    label_episode,
    read_frames,
    split_episodes,
)
from tests.robot_rl.rewards.points import SPEC, of_places, point_set, wandering


@pytest.mark.parametrize(
    ("text", "name", "at_least"),
    [("end", "end", 0.5), ("near", "near", 0.5), ("near>=0.9", "near", 0.9),
     ("reward>=-1.5", "reward", -1.5), ("near>=1e-3", "near", 1e-3), ("near>=.5", "near", 0.5)],
)  # fmt: skip
def test_rules_are_read(text, name, at_least):
    rule = LabelRule.parse(text)
    assert (rule.name, rule.at_least) == (name, at_least)


@pytest.mark.parametrize(
    "text", ["", "near>0.5", "end>=1", "near>=", "near>=a", "near>=1.2.3", "near>=."]
)
def test_other_forms_are_refused(text):
    with pytest.raises(ConfigError, match="cannot be read; expected end, reward"):
        LabelRule.parse(text)


def test_end_labels_the_last_frames_and_leaves_those_before_open():
    config = LabelConfig(labels=["end"], positive_steps=3, margin_steps=2)
    label, known = label_episode(wandering(0, 10), SPEC.reward_names, config)
    assert label[:, 0].tolist() == [0] * 7 + [1] * 3
    assert known[:, 0].tolist() == [True] * 5 + [False] * 2 + [True] * 3


def test_end_labels_nothing_of_a_failure():
    config = LabelConfig(labels=["end"])
    label, known = label_episode(wandering(0, 10, goal=(2, 2)), SPEC.reward_names, config)
    assert label.sum() == 0
    assert known.all()


def test_terms_label_every_frame_and_several_are_stages():
    config = LabelConfig(labels=["half", "near>=0.5"])
    place = np.array([[3, 0], [2, 0], [0.8, 0], [0.2, 0]])
    label, known = label_episode(of_places(place), SPEC.reward_names, config)
    assert label.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert known.all()


def test_a_frame_is_labelled_by_the_step_that_led_to_it(tmp_path):
    data = read_frames([point_set(tmp_path / "set")], LabelConfig(labels=["near"]), ["actor"], ())
    inside = data.frames.obs["actor"].norm(dim=-1) < 0.5
    assert (inside == (data.frames.label[:, 0] > 0)).all()


def test_parts_share_no_episode_and_each_has_successes_and_failures(tmp_path):
    sets = [
        point_set(tmp_path / "one"),
        point_set(tmp_path / "two", successes=8, failures=12, first=100),
    ]
    config = LabelConfig(labels=["near"])
    data = read_frames(sets, config, ["actor"], ())
    parts = split_episodes(data, config, seed=0)
    together = np.concatenate(parts)
    assert sorted(together) == list(range(60)), "every episode is in one part, and in one alone"
    assert [len(part) for part in parts] == [36, 9, 15]
    for part in parts:
        assert 0 < data.succeeded[part].sum() < len(part)
        assert set(data.sets[part]) == {0, 1}
    learn, measure = (set(data.frames.of_episodes(p).episode.tolist()) for p in parts[::2])
    assert not learn & measure
    assert [p.tolist() for p in split_episodes(data, config, seed=0)] == [p.tolist() for p in parts]
    assert split_episodes(data, config, seed=1)[2].tolist() != parts[2].tolist()


def test_copies_of_an_episode_are_in_one_part(tmp_path):
    """`reward mine` writes copies, and the hold-out measured what was learned from."""
    config = LabelConfig(labels=["near"])
    one, two = point_set(tmp_path / "one"), point_set(tmp_path / "two", successes=20)
    data = read_frames([one], config, ["actor"], ())
    alone = split_episodes(data, config, seed=0)
    assert data.num_copies == 0
    both = read_frames([one, two], config, ["actor"], ())
    assert both.num_copies == 40
    for part, before in zip(split_episodes(both, config, seed=0), alone, strict=True):
        assert part.tolist() == [*before, *(before + 40)]


def test_sets_may_differ_in_what_actions_mean_and_not_in_what_is_seen(tmp_path):
    def told(name, high, scale):
        terms = {"actor": [{"term": "place", "scale": scale}]}
        spec = replace(SPEC, meaning={"action": {"high": [high]}, "terms": terms})
        return point_set(tmp_path / name, successes=1, failures=1, spec=spec)

    config = LabelConfig(labels=["near"])
    near = told("near", 0.3, 1.0)
    read_frames([near, told("far", 1.0, 1.0)], config, ["actor"], ())
    half = told("half", 0.3, 0.5)
    with pytest.raises(
        DatasetError, match=r"group 'actor', place.scale is 1.0 there, and 0.5 here"
    ):
        read_frames([near, half], config, ["actor"], ())


def test_data_without_any_success_are_refused(tmp_path):
    config = LabelConfig(labels=["reward>=2"])  # the reward is 1 at most
    data = read_frames([point_set(tmp_path / "set")], config, ["actor"], ())
    with pytest.raises(DatasetError, match=r"have 0 frames of success and .* need some of both"):
        split_episodes(data, config, seed=0)


def test_what_a_set_does_not_have_is_named_with_what_it_has(tmp_path):
    folder = point_set(tmp_path / "set", successes=1, failures=1)
    with pytest.raises(DatasetError, match=r"label 'neer' is unknown .did you mean 'near'"):
        read_frames([folder], LabelConfig(labels=["neer"]), ["actor"], ())
    with pytest.raises(DatasetError, match=r"group 'aktor' is unknown .did you mean 'actor'"):
        read_frames([folder], LabelConfig(), ["aktor"], ())
    with pytest.raises(DatasetError, match="camera 'wrist' is unknown; known: none"):
        read_frames([folder], LabelConfig(), ["actor"], ["wrist"])
