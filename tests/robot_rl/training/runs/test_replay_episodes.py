"""The replay of a run as episodes: cut where they ended, with every number where it was."""

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.datasets.foreign.catalog import holds_replay
from robot_rl.training.config import PriorConfig
from robot_rl.training.prior import open_prior, write_dataset
from robot_rl.training.runs.replay_episodes import replay_episodes
from tests.robot_rl.buffers.story import story
from tests.robot_rl.datasets.samples import write
from tests.robot_rl.training.loop import Loop
from tests.robot_rl.training.test_prior import emptied


def test_worlds_are_cut_where_rows_do_not_follow(tmp_path):
    told = story([[float(t), 50.0 + t] for t in range(6)], terminated=[(2, 0)], invalid=[(4, 1)])
    spec, episodes = replay_episodes(write_dataset(tmp_path / "rows", told.tell(told.replay())))
    assert (spec.groups, spec.action_size, spec.judges_success) == (
        {"actor": 2, "critic": 2},
        1,
        False,
    )
    # In a story no observation is the successor of the one before: each row is an episode.
    found = list(episodes)
    assert [one.reward.tolist() for one in found] == [
        *([float(t)] for t in range(6)), *([50.0 + t] for t in range(6) if t != 4),
    ]  # fmt: skip
    assert [bool(one.terminated[-1]) for one in found] == [t == 2 for t in range(11)]
    assert all(one.truncated[-1] != one.terminated[-1] for one in found)
    assert found[3].obs["actor"][:, 0].tolist() == [30, 30.5]


@pytest.mark.slow
def test_a_run_as_episodes_is_the_same_experience(tmp_path):
    loop = Loop(tmp_path / "run", total_steps=48)
    loop.trainer.run()
    replay = loop.trainer.replay
    rows = write_dataset(tmp_path / "rows", replay)
    assert holds_replay(rows)
    spec, episodes = replay_episodes(rows)
    told = list(episodes)
    assert max(one.num_steps for one in told) > 2, "whole episodes, not single steps"
    assert sum(one.num_steps for one in told) == 48
    folder = write(tmp_path / "set", *told, spec=spec)
    groups = replay.layout.groups
    both = [
        open_prior(PriorConfig(run=str(path)), replay, loop.env.spec, groups, seed=0).replay
        for path in (rows, folder)
    ]
    one, two = (prior.sample(3000) for prior in both)
    for name in ("action", "reward", "discount"):
        values = [np.unique(getattr(batch, name).numpy(), axis=0) for batch in (one, two)]
        assert (values[0] == values[1]).all(), name
    for name in groups:
        values = [np.unique(batch.next_obs[name].numpy(), axis=0) for batch in (one, two)]
        assert (values[0] == values[1]).all(), name


def test_a_replay_that_holds_nothing_is_refused(tmp_path):
    told = story([[0.0]])
    rows = emptied(write_dataset(tmp_path / "rows", told.tell(told.replay())))
    with pytest.raises(ConfigError, match="holds no transitions yet"):
        replay_episodes(rows)
