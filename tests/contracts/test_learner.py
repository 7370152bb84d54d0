"""The learner contract over every learner: a new one, or a new setting, is one more case."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from policies.gaussian_actor import LogStdBound
from policies.mlp import Activation
from robot_rl.core.env import EnvSpec
from robot_rl.learners.off_policy import Precision
from robot_rl.learners.sac import SAC, ActorValue, EntropyAt
from robot_rl.learners.temperature import TemperatureLoss
from robot_rl.learners.values import TargetRule, ValueConfig
from tests.contracts.learner import LearnerCase, LearnerContract
from tests.equality import assert_same
from tests.fakes import small_sac


def sac(**settings: Any) -> Callable[[EnvSpec, int], SAC]:
    return lambda spec, seed: small_sac(spec, seed, **settings)


LAYER_NORM = {"layer_norm": True}
PLAIN = {"normalize": False}
TANH = {**LAYER_NORM, "activation": Activation.tanh}
SILU = {**LAYER_NORM, "activation": Activation.silu}
REDQ: dict[str, Any] = {"target_members": 2, "actor_interval": 2, "critic": {"members": 6}}
CASES = (
    LearnerCase("sac", sac()),
    LearnerCase("sac without a group for the critic", sac(), privileged=False),
    LearnerCase("sac with layer norm", sac(actor=LAYER_NORM, critic=LAYER_NORM)),
    LearnerCase("sac with one critic", sac(critic={"members": 1})),
    LearnerCase("sac with five critics", sac(critic={"members": 5}, actor_value=ActorValue.mean)),
    LearnerCase("sac without entropy in the target", sac(entropy_in_target=False, n_step=3)),
    LearnerCase("sac with a late actor", sac(actor_interval=2, max_grad_norm=0.5)),
    LearnerCase(
        "sac without normaliser",
        sac(actor={**PLAIN, "log_std_bound": LogStdBound.tanh}, critic=PLAIN),
    ),
    LearnerCase("sac as redq", sac(**REDQ, temperature_loss=TemperatureLoss.log_alpha)),
    LearnerCase(
        "sac as serl",
        sac(
            **{**REDQ, "critic": {**TANH, "members": 6}}, actor=TANH, target_replacement=True,
            entropy_in_target=False, temperature_loss=TemperatureLoss.softplus, actor_on_all=True,
            entropy_at=EntropyAt.next_obs, learning_rate_warmup=3,
        ),
    ),
    LearnerCase(
        "sac as fast_sac",
        sac(
            values=ValueConfig(atoms=11, low=-3.0, high=3.0), target_rule=TargetRule.own,
            entropy_at=EntropyAt.next_obs, temperature_every_update=True, actor_interval=2,
            weight_decay=1e-3, adam_betas=[0.9, 0.95], critic=SILU,
            actor={**SILU, "log_std_bound": LogStdBound.tanh, "zero_head": True},
        ),
    ),
    LearnerCase("sac in bf16", sac(precision=Precision.bf16)),
    LearnerCase(
        "sac with falling steps", sac(learning_rate_decay=6, learning_rate_end=0.1)
    ),
    LearnerCase(
        "sac with a fixed temperature", sac(temperature_loss=TemperatureLoss.fixed)
    ),
)  # fmt: skip


class TestOnTheCPU(LearnerContract):
    cases = CASES


@pytest.mark.gpu
class TestOnCUDA(LearnerContract):
    cases = CASES
    device = torch.device("cuda")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "sac as fast_sac"])
def test_a_thousand_updates_of_the_same_seed_are_bit_equal(name: str) -> None:
    suite = TestOnTheCPU()
    case = next(case for case in CASES if case.name == name)
    assert_same(suite.metrics_of(case, 1000), suite.metrics_of(case, 1000))
