"""The learner contract over every learner: a new one, or a new setting, is one more case."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from policies.gaussian_actor import LogStdBound
from robot_rl.core.env import EnvSpec
from robot_rl.learners.sac import SAC, ActorValue
from tests.contracts.learner import LearnerCase, LearnerContract
from tests.fakes import small_sac


def sac(**settings: Any) -> Callable[[EnvSpec, int], SAC]:
    return lambda spec, seed: small_sac(spec, seed, **settings)


LAYER_NORM = {"layer_norm": True}
PLAIN = {"normalize": False}
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
)  # fmt: skip


class TestOnTheCPU(LearnerContract):
    cases = CASES


@pytest.mark.gpu
class TestOnCUDA(LearnerContract):
    cases = CASES
    device = torch.device("cuda")
