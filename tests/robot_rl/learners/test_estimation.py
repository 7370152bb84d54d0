"""What an encoder learns beside the actor's loss: by hand, by finite differences, by its effect."""

from dataclasses import replace

import pytest
import torch

from policies.networks.inputs import EncoderConfig, EncoderKind
from robot_rl.core.env import GroupSpec, TermSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.estimation import Estimator
from robot_rl.learners.networks import estimated_columns
from tests.fakes import CPU, LinearWorld, ToyEnv
from tests.policies.networks.test_inputs import SIZE, make_actor

PRIVILEGED = (TermSpec(name="height", width=1), TermSpec(name="velocity", width=2))


def make_estimator(*, next_obs: bool = False, latent: int = 3):
    actor = make_actor(estimated=2, estimate=["velocity"], latent=latent)
    return actor, Estimator(actor, [1, 2], next_obs=next_obs, device=CPU)


def rows(count: int = 32, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "actor": torch.randn(count, SIZE, generator=generator),
        "critic": 3 * torch.randn(count, 3, generator=generator) + 1,
    }


def test_columns_are_those_of_the_named_terms_in_their_order():
    spec = ToyEnv(LinearWorld(groups={"critic": GroupSpec(shape=(3,), terms=PRIVILEGED)})).spec

    def columns(*names: str) -> list[int]:
        encoder = EncoderConfig(kind=EncoderKind.mlp, estimate=list(names))
        return estimated_columns(encoder, spec)

    assert columns("velocity", "height") == [1, 2, 0]
    with pytest.raises(ConfigError, match="'speed' is unknown; known: height, velocity"):
        columns("speed")
    spec = replace(spec, groups={"actor": spec.groups["critic"]})
    with pytest.raises(ConfigError, match="which this environment does not have; it has actor"):
        columns("velocity")


def test_the_loss_is_the_mean_square_of_the_first_entries_against_the_standardised_truth():
    actor, estimator = make_estimator()
    obs = rows()
    estimator.update_statistics(obs)
    truth = obs["critic"][:, 1:]
    standard = (truth - truth.mean(0)) / (truth.std(0, correction=0) + 1e-2)
    with torch.no_grad():
        expected = ((actor.latent(obs)[:, :2] - standard) ** 2).mean(-1)
        losses = estimator.losses(obs, rows(seed=1))
    assert list(losses) == ["estimate_loss"]
    torch.testing.assert_close(losses["estimate_loss"], expected)


def test_reconstruction_is_of_the_next_present_frame():
    _, estimator = make_estimator(next_obs=True)
    obs, following = rows(), rows(seed=1)
    first = estimator.losses(obs, following)["next_obs_loss"]
    following["actor"][:, [0, 1, 2, 3, 4, 5, 9, 10, 11]] += 5.0  # past frames
    assert torch.equal(estimator.losses(obs, following)["next_obs_loss"], first)
    following["actor"][:, 12] += 5.0
    assert not torch.equal(estimator.losses(obs, following)["next_obs_loss"], first)


@pytest.mark.slow
def test_an_encoder_learns_to_estimate_what_its_window_tells():
    _, estimator = make_estimator()
    adam = torch.optim.Adam(estimator.parameters(), 1e-2)
    obs = rows(256)
    obs["critic"][:, 1:] = 2 * obs["actor"][:, :2] - 1  # the oldest frame of the gyro
    estimator.update_statistics(obs)
    for _ in range(300):
        adam.zero_grad()
        estimator.losses(obs, obs)["estimate_loss"].mean().backward()
        adam.step()
    with torch.no_grad():
        error = estimator.losses(obs, obs)["estimate_loss"].mean().sqrt()
    assert error < 0.1  # of a spread of 1
