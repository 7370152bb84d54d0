"""Frozen normalisers: stored experience is taken in, what is acted on is not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.core.env import EnvSpec
from tests.contracts.learners_with_history import BESIDE, ESTIMATES, TERMS, td3
from tests.equality import same
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, small_flash_sac
from tests.robot_rl.learners.small_hil import small_expo, small_hil_serl, small_silri
from tests.robot_rl.learners.small_offline import small_cql, small_iql, small_qc


def estimating(spec: EnvSpec, **settings: Any) -> Any:
    return small_cql(spec, actor={"encoder": ESTIMATES}, estimation=BESIDE, **settings)


def estimating_td3(spec: EnvSpec, **settings: Any) -> Any:
    """Which does not learn offline."""
    return td3(estimation=BESIDE, **settings)(spec, 0)


def flash_sac(spec: EnvSpec, **settings: Any) -> Any:
    """Its own networks have none."""
    normalize = {"normalize": True}
    return small_flash_sac(spec, actor=normalize, critic=normalize, **settings)


MAKERS: dict[str, Callable[..., Any]] = {
    "flash_sac": flash_sac, "iql": small_iql, "qc": small_qc, "estimating": estimating,
    "estimating_td3": estimating_td3, "hil_serl": small_hil_serl, "silri": small_silri,
    "expo": small_expo,
}  # fmt: skip


def moved(name: str, *, freeze: bool) -> set[str]:
    """Parts of a learner that are other ones 20 steps after it has seen stored experience.

    The rewards' scale may be.
    """
    world = LinearWorld()
    groups = {key: replace(group, terms=TERMS[key]) for key, group in world.groups.items()}
    env = ToyEnv(LinearWorld(groups=groups), 8)
    learner = MAKERS[name](env.spec, freeze_normalizers=freeze)
    learner.observe_stored(random_batch(env.spec, 64).obs)
    data = copied(learner.state_dict())
    env.reset(seed=0)
    for _ in range(20):
        learner.observe(env.step(torch.ones(8, env.spec.action_size)))
    steps = learner.state_dict()
    return {part for part in data if part != "reward_scale" and not same(data[part], steps[part])}


@pytest.mark.parametrize("name", MAKERS)
def test_frozen_normalisers_keep_what_the_data_gave_them(name):
    assert moved(name, freeze=True) == set()
    not_frozen = moved(name, freeze=False)
    assert not_frozen
    assert ("estimator" in not_frozen) == name.startswith("estimating")
