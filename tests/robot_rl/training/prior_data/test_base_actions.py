"""Episodes of before get the base's actions, each from a new plan, and keep their own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.training.prior_data.base_actions import BaseActions
from robot_rl.training.prior_data.prior import PriorConfig, open_prior
from tests.bases import ByHand, frozen, write_base
from tests.robot_rl.datasets.samples import SPEC, episode, write

PLAIN = replace(SPEC, robot=None, reward_names=())
SIZES = (3, 2)
WORLDS = EnvSpec(
    num_envs=3, device=torch.device("cpu"), action_size=2, control_dt=0.02,
    groups={"actor": GroupSpec(shape=(3,)), "critic": GroupSpec(shape=(1,)),
            BASE_ACTION: GroupSpec(shape=(2,))},
)  # fmt: skip


def test_plans_do_not_outlive_the_episode_they_were_made_in(tmp_path: Path) -> None:
    """Published: the chunk queue was never emptied between demonstrations."""
    told = [episode(i, 3, spec=PLAIN, valid=np.ones(3, bool)) for i in range(4)]
    path = write_base(tmp_path / "base.onnx", *SIZES)
    augment = BaseActions(frozen([path], WORLDS, 1), 2)
    for one in told:
        hand = ByHand(*SIZES)
        expected = [hand.act(torch.from_numpy(frame)) for frame in one.obs["actor"]]
        got = augment(one)
        np.testing.assert_allclose(got.obs[BASE_ACTION], expected, atol=1e-6)
        assert (got.action == one.action).all()


def test_they_are_drawn_beside_the_demonstrated_actions_as_executed(tmp_path: Path) -> None:
    """Published: stored actions were the base's plus a residual within its scale."""
    told = [episode(i, 4, spec=PLAIN, valid=np.ones(4, bool)) for i in range(3)]
    folder = write(tmp_path / "set", *told, spec=PLAIN)
    path = write_base(tmp_path / "base.onnx", *SIZES)
    groups = ("actor", BASE_ACTION)
    own = ReplayBuffer(WORLDS, groups, capacity=30, gamma=0.9, n_step=1)
    prior = open_prior(
        PriorConfig(run=str(folder)), own, WORLDS, groups, seed=0,
        augment=BaseActions(frozen([path], WORLDS, 1), 2),
    )  # fmt: skip
    batch = prior.replay.sample(500)
    augment = BaseActions(frozen([path], WORLDS, 1), 2)
    rows = [(augment(one), t) for one in told for t in range(4)]
    for row, index in enumerate(batch.extra["index"].tolist()):
        one, t = rows[index]
        assert (batch.action[row].numpy() == one.action[t]).all()
        assert (batch.obs[BASE_ACTION][row].numpy() == one.obs[BASE_ACTION][t]).all()
        assert (batch.next_obs[BASE_ACTION][row].numpy() == one.obs[BASE_ACTION][t + 1]).all()
    assert (batch.action - batch.obs[BASE_ACTION]).abs().max() > 0.5
