"""The learner of a residual: what its noise is held at."""

from dataclasses import replace

import pytest
import torch

from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import GroupSpec
from robot_rl.learners.residual import Residual, ResidualConfig
from robot_rl.learners.sac import SAC
from tests.compositions import composed
from tests.fakes import LinearWorld, ToyEnv

pytestmark = pytest.mark.slow


def built(*overrides: str) -> tuple[ResidualConfig, SAC]:
    """The preset with changes, over two actions."""
    preset = composed(["task=peg", "learner=residual", "learner.base.paths=[x]", *overrides])
    plain = ToyEnv(LinearWorld()).spec
    groups = {**plain.groups, BASE_ACTION: GroupSpec(shape=(plain.action_size,))}
    spec = replace(plain, groups=groups)
    return preset.config.learner, Residual(preset.config.learner, spec, seed=0)


@pytest.mark.parametrize("scale", [0.02, 0.2, 2.0])
@pytest.mark.parametrize("std", [0.0025, 0.005])
def test_the_noise_of_executed_actions_is_held_where_it_begins_whatever_the_scale(scale, std):
    _, learner = built(f"learner.actor.scale={scale}", f"learner.actor.initial_std={std}")
    held = torch.distributions.Normal(0.0, std / scale).entropy()
    assert learner.temperature.target_entropy == pytest.approx(2 * float(held), rel=1e-6)


def test_an_entropy_that_is_given_is_in_units_of_the_scale():
    config, learner = built("learner.actor.scale=0.2", "learner.target_entropy_per_action=-0.7")
    assert config.with_target_entropy() is config
    assert learner.temperature.target_entropy == pytest.approx(-1.4)
    _, learner = built("learner.target_entropy_per_action=0.0")
    assert learner.temperature.target_entropy == 0.0, "none is not zero"
