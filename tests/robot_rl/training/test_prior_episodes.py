"""Data sets of episodes as experience of before: transitions, ends and weights are as told."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import ConfigError, DatasetError, SpecMismatchError
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.config import PriorConfig, Weighting
from robot_rl.training.prior import open_prior
from robot_rl.training.prior_episodes import BaseActions
from tests.bases import ByHand, frozen, write_base
from tests.fakes import ToyEnv
from tests.robot_rl.datasets.samples import SPEC, episode, write
from tests.robot_rl.training.loop import WORLD

PLAIN = replace(SPEC, robot=None)
WORLDS = EnvSpec(
    num_envs=3, device=torch.device("cpu"), action_size=2, control_dt=0.02,
    groups={"actor": GroupSpec(shape=(3,)), "critic": GroupSpec(shape=(1,))},
    reward_names=("near", "effort"),
)  # fmt: skip
TOLD = [episode(i, 3 + i) for i in range(4)]


def opened(
    folder: Path, spec: EnvSpec = WORLDS, *, n_step: int = 1, groups: Any = ("actor",),
    **settings: Any,
) -> Any:  # fmt: skip
    own = ReplayBuffer(spec, groups, capacity=30, gamma=0.5, n_step=n_step)
    return open_prior(PriorConfig(run=str(folder)), own, spec, groups, seed=0, **settings)


@pytest.mark.slow
def test_every_transition_can_be_drawn_and_is_the_told_one(tmp_path):
    n_step = 3
    prior = opened(write(tmp_path / "set", *TOLD, spec=PLAIN), n_step=n_step)
    steps = [(one, t) for one in TOLD for t in range(one.num_steps)]
    batch = prior.replay.sample(2000)
    assert set(batch.extra["index"].tolist()) == set(range(len(steps)))
    for row, index in enumerate(batch.extra["index"].tolist()):
        one, t = steps[index]
        assert batch.weight[row] == float(one.valid[t])
        if not one.valid[t]:
            continue
        reward, discount, last = 0.0, 1.0, t
        for k in range(t, min(t + n_step, one.num_steps)):
            if not one.valid[k]:
                break
            reward += discount * float(one.reward_terms[k].sum())
            discount, last = discount * 0.5, k
        assert batch.reward[row] == pytest.approx(reward, abs=1e-6)
        assert batch.discount[row] == (0 if one.terminated[last] else discount)
        assert (batch.obs["actor"][row].numpy() == one.obs["actor"][t]).all()
        assert (batch.next_obs["actor"][row].numpy() == one.obs["actor"][last + 1]).all()
        assert (batch.action[row].numpy() == one.action[t]).all()


@pytest.mark.parametrize("terms", ["of the run", "of the data"])
def test_where_one_side_has_no_terms_rewards_are_taken_as_they_are(tmp_path, terms):
    if terms == "of the run":
        spec, run = replace(PLAIN, reward_names=()), WORLDS
    else:
        spec, run = PLAIN, replace(WORLDS, reward_names=())
    told = [episode(i, 4, spec) for i in range(3)]
    prior = opened(write(tmp_path / "set", *told, spec=spec), run)
    assert prior.sentence.endswith("set, with the rewards stored there")
    batch = prior.replay.sample(200)
    rewards = np.concatenate([one.reward * one.valid for one in told])
    assert (batch.reward.numpy() == rewards[batch.extra["index"].numpy()]).all()


def test_data_sets_that_do_not_fit_or_are_damaged_are_refused(tmp_path):
    folder = write(tmp_path / "set", *TOLD, spec=PLAIN)
    with pytest.raises(SpecMismatchError, match="the robot arm, but this run has the robot None"):
        opened(write(tmp_path / "arm", *TOLD))
    with pytest.raises(ConfigError, match="holds 0 transitions; expected at least 1"):
        opened(write(tmp_path / "empty", spec=PLAIN))
    file = folder / "data/chunk-000/file-002.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DatasetError, match=r"file-002.parquet has .* bytes instead of"):
        opened(folder)
    (folder / "meta/manifest.jsonl").unlink()
    with pytest.raises(
        DatasetError, match=r"data set of LeRobot is imported with: robot-rl data convert"
    ):
        opened(folder)


def demonstrations(folder: Path, count: int) -> Path:
    worlds = ToyEnv(WORLD, 1, limit=7, seed=0).spec
    spec = DatasetSpec(
        groups={name: group.shape[0] for name, group in worlds.groups.items()},
        action_size=worlds.action_size, control_dt=worlds.control_dt,
        reward_names=worlds.reward_names,
    )  # fmt: skip
    valid = np.ones(9, bool)
    return write(folder, *(episode(i, 9, spec, valid=valid) for i in range(count)), spec=spec)


def paying(seed: int, total: float, **flags: Any) -> Any:
    """An episode of four rows that pays so much."""
    flags = {"valid": np.ones(4, bool), "success": np.zeros(4, bool), **flags}
    one = episode(seed, 4, PLAIN, **flags)
    return replace(one, reward_terms=np.full((4, 2), total / 8, np.float32))


@pytest.mark.parametrize("weighting", Weighting)
def test_episodes_are_drawn_by_their_return_or_their_success(tmp_path, weighting):
    """Four episodes with returns 0, 1, 2, 4 of four rows each; the second has success."""
    told = [paying(i, total, success=np.arange(4) == (3 if i == 1 else 9))
            for i, total in enumerate((0.0, 1.0, 2.0, 4.0))]  # fmt: skip
    prior = opened(write(tmp_path / "set", *told, spec=PLAIN), WORLDS)
    prior.set_sampling_weights(PriorConfig(run="x", weighting=weighting, weighting_temperature=0.5))
    counts = torch.bincount(prior.replay.sample(20_000).extra["index"] // 4, minlength=4)
    good = {
        Weighting.none: [0.0] * 4, Weighting.returns: [0.0, 0.25, 0.5, 1.0],
        Weighting.success: [0.0, 1.0, 0.0, 0.0],
    }[weighting]  # fmt: skip
    chance = torch.softmax(torch.tensor(good) / 0.5, 0)
    assert counts / 20_000 == pytest.approx(chance.numpy(), abs=0.015)  # four standard errors


def test_rows_that_are_not_valid_are_no_good_episode(tmp_path):
    """Returns of -8 and -4, and a row that is not valid, which paid nothing."""
    told = [paying(i, total, valid=np.arange(4) != (1 if i == 0 else 9))
            for i, total in enumerate((-8.0, -4.0))]  # fmt: skip
    prior = opened(write(tmp_path / "set", *told, spec=PLAIN), WORLDS)
    prior.set_sampling_weights(
        PriorConfig(run="x", weighting=Weighting.returns, weighting_temperature=0.5)
    )
    batch = prior.replay.sample(20_000)
    counts = torch.bincount(batch.extra["index"], minlength=8)
    assert counts[1] == 0
    assert (batch.weight == 1).all()
    # The row cuts the first episode: its first step is an episode of -2, the last two of -4.
    chance = torch.softmax(torch.tensor([1.0, 0, 0, 0, 0, 0, 0]) / 0.5, 0)
    drawn = counts[[0, 2, 3, 4, 5, 6, 7]] / 20_000
    assert drawn.numpy() == pytest.approx(chance.numpy(), abs=0.015)


def test_success_that_nobody_judged_weighs_nothing(tmp_path):
    spec = replace(PLAIN, judges_success=False)
    told = [episode(i, 4, spec, success=np.zeros(4, bool)) for i in range(3)]
    prior = opened(write(tmp_path / "set", *told, spec=spec), WORLDS)
    with pytest.raises(ConfigError, match="does not say which episodes succeeded"):
        prior.set_sampling_weights(PriorConfig(run="x", weighting=Weighting.success))
    wanted = MonteCarloReturns(failure_reward=-1.0, online=False)
    with pytest.raises(ConfigError, match="needs to know which episodes failed"):
        opened(tmp_path / "set", groups=tuple(WORLDS.groups), returns=wanted)


def test_a_failed_episode_of_a_data_set_is_worth_failing_for_ever(tmp_path):
    told = [paying(i, 3.0, success=np.arange(4) == (3 if i == 1 else 9)) for i in range(2)]
    wanted = MonteCarloReturns(failure_reward=-1.0, online=False)
    folder = write(tmp_path / "set", *told, spec=PLAIN)
    prior = opened(folder, groups=tuple(WORLDS.groups), returns=wanted)
    known = prior.replay.strided_sample(8).extra["monte_carlo_return"]
    assert known[:4].tolist() == [-2.0] * 4  # -1 / (1 - 0.5)
    assert known[4:].tolist() != [-2.0] * 4


def test_experience_without_a_valid_step_and_too_few_held_out_are_refused_by_name(tmp_path):
    told = [episode(i, 4, PLAIN, valid=np.zeros(4, bool)) for i in range(2)]
    with pytest.raises(ConfigError, match=r"none of the 8 transitions in .*set is valid"):
        opened(write(tmp_path / "set", *told, spec=PLAIN))
    told = [episode(i, 1 if i == 9 else 6, PLAIN) for i in range(10)]
    folder = write(tmp_path / "short", *told, spec=PLAIN)
    with pytest.raises(ConfigError, match=r"1 transitions to hold out; .*offline.held_out=0"):
        opened(folder, n_step=3, groups=tuple(WORLDS.groups), held_out=0.1)


@pytest.mark.parametrize(
    ("share", "numbers"),
    [(0.1, [9]), (0.3, [3, 6, 9]), (0.4, [2, 4, 7, 9]), (0.5, [1, 3, 5, 7, 9])],
)
def test_the_share_that_is_held_out_is_the_one_that_was_asked_for(tmp_path, share, numbers):
    told = [episode(i, 3 + i, PLAIN) for i in range(10)]
    folder = write(tmp_path / "set", *told, spec=PLAIN)
    prior = opened(folder, groups=tuple(WORLDS.groups), held_out=share)
    assert prior.held_out is not None
    assert len(prior.held_out) == sum(3 + i for i in numbers)
    assert len(prior.replay) == sum(3 + i for i in range(10)) - len(prior.held_out)


STORED = replace(SPEC, robot=None, reward_names=())
SIZES = (3, 2)
PLANAR = replace(
    WORLDS, groups={**WORLDS.groups, BASE_ACTION: GroupSpec(shape=(2,))}, reward_names=()
)


def test_plans_do_not_outlive_the_episode_they_were_made_in(tmp_path):
    """Published: the chunk queue was never emptied between demonstrations."""
    told = [episode(i, 3, spec=STORED, valid=np.ones(3, bool)) for i in range(4)]
    path = write_base(tmp_path / "base.onnx", *SIZES)
    augment = BaseActions(frozen([path], PLANAR, 1), PLANAR)
    for one in told:
        hand = ByHand(*SIZES)
        expected = [hand.act(torch.from_numpy(frame)) for frame in one.obs["actor"]]
        got = augment(one)
        np.testing.assert_allclose(got.obs[BASE_ACTION], expected, atol=1e-6)
        assert (got.action == one.action).all()


class Paid:
    """Another reward: nothing, but for episodes of more than five steps."""

    changes_rewards = True
    widths: Mapping[str, int] = {}

    def __call__(self, episode):
        pay = 1.0 if episode.num_steps > 5 else 0.0
        return replace(episode, reward=np.full(episode.num_steps, pay, np.float32))


def test_successes_that_a_learned_reward_pays_nothing_are_told(tmp_path, caplog):
    told = [
        replace(one, success=np.arange(one.num_steps) == one.num_steps - 1)
        for one in (episode(i, 4 + i) for i in range(4))
    ]
    spec = replace(WORLDS, reward_names=())
    opened(write(tmp_path / "set", *told, spec=PLAIN), spec, augment=Paid())
    assert "pays nothing in 2 of 4 stored episodes that succeeded" in caplog.text
    assert "hold=1 hold_window=1" in caplog.text
