"""An encoder that learns beside a learner of stored experience takes nothing from it."""

from dataclasses import replace

import torch

from policies.networks.history import EncoderConfig, EncoderKind
from robot_rl.core.env import GroupSpec, TermSpec
from robot_rl.core.learner import Phase
from robot_rl.learners.estimation import EstimationConfig
from tests.fakes import LinearWorld, ToyEnv, random_batch
from tests.robot_rl.learners.offline.small import ROWS, small_cql

PAST = EncoderConfig(kind=EncoderKind.mlp, hidden=[8], latent=3)
"""Estimates the next observation."""


def test_calibrated_values_get_their_returns_and_normalisers_see_the_data() -> None:
    terms = (TermSpec(name="gyro", width=1, history=4),)
    world = LinearWorld(groups={"actor": GroupSpec(shape=(4,))})
    spec = ToyEnv(world, 2).spec
    spec = replace(spec, groups={"actor": replace(spec.groups["actor"], terms=terms)})
    learner = small_cql(
        spec, conservatism={"calibrated": True}, actor={"encoder": PAST},
        estimation=EstimationConfig(next_obs=True),
    )  # fmt: skip
    assert learner.learns_offline
    assert learner.monte_carlo_returns is not None
    learner.begin_phase(Phase.offline)
    batch = random_batch(spec, ROWS)
    learner.observe_stored(batch.obs)
    found = learner.inspect(batch)
    assert all(torch.isfinite(value) for value in found.values())
    assert "q_data" in found
