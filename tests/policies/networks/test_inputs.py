"""Inputs of networks: normalisers, and encoders of a history with the columns that they see."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.inputs import (
    EncodedNetwork,
    EncoderConfig,
    EncoderKind,
    FrameConvolutions,
    RunningNormalizer,
    find_columns,
)
from policies.networks.mlp import Activation, Initialization
from robot_rl.core.env import TermSpec
from robot_rl.core.errors import ConfigError

# columns: gyro 0 1 | 2 3 | 4 5, goal 6, action 7 | 8 | 9; oldest frame first
LAYOUT = (
    TermSpec(name="gyro", width=2, history=3),
    TermSpec(name="goal", width=1),
    TermSpec(name="action", width=1, history=3),
)


@pytest.mark.parametrize(
    ("frames", "encoded", "window", "present"),
    [
        (0, [], [[0, 1, 7], [2, 3, 8], [4, 5, 9]], [4, 5, 6, 9]),
        (2, [], [[2, 3, 8], [4, 5, 9]], [4, 5, 6, 9]),
        (1, ["goal"], [[6]], [4, 5, 9]),  # seen through the latent alone
        (1, None, None, [4, 5, 6, 9]),  # no encoder: the frames that are looked at
        (2, None, None, [2, 3, 4, 5, 6, 8, 9]),
    ],
)
def test_a_window_holds_the_newest_frames_of_all_terms_oldest_first(
    frames, encoded, window, present
):
    columns = find_columns(LAYOUT, frames=frames, encoded=encoded)
    assert columns.present == present
    assert window is None or columns.window == window


TERMS = (
    TermSpec(name="gyro", width=2, history=4),
    TermSpec(name="goal", width=1),
    TermSpec(name="action", width=1, history=4),
)
SIZE = 13


def make_actor(*, estimated: int = 0, **encoder) -> GaussianActor:
    torch.manual_seed(0)
    values = {"kind": EncoderKind.mlp, "hidden": [6], "latent": 3, **encoder}
    config = GaussianActorConfig(hidden=[8], encoder=EncoderConfig(**values))
    return GaussianActor(config, SIZE, 2, terms=TERMS, estimated=estimated)


@pytest.mark.parametrize("kind", [EncoderKind.mlp, EncoderKind.conv])
def test_every_frame_reaches_the_action(kind):
    actor = make_actor(kind=kind)
    obs = torch.randn(5, SIZE, requires_grad=True)
    actor({"actor": obs}).sum().backward()
    assert obs.grad is not None
    assert (obs.grad.abs() > 0).all()


def test_convolutions_join_four_frames_and_end_with_the_newest():
    """Five frames of one entry, one channel whose weights are 1, 10, 100, 1000."""
    encoder = FrameConvolutions(5, 1, [1], 1, Activation.relu)
    weights = {"layers.0.weight": [[1.0, 10, 100, 1000]], "layers.0.bias": [0.0]}
    weights |= {"head.0.weight": [[1.0]], "head.0.bias": [0.0]}
    encoder.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    assert encoder(torch.tensor([[9.0, 1, 2, 3, 4]])).item() == 4321  # the oldest is left over


def test_estimates_get_no_gradient_from_what_is_done_with_them():
    actor = make_actor(estimated=2, estimate=["velocity"])
    assert isinstance(actor.network, EncodedNetwork)
    actor.sample({"actor": torch.randn(16, SIZE)})[1].sum().backward()
    last = [m for m in actor.network.encoder.modules() if isinstance(m, torch.nn.Linear)][-1]
    assert last.weight.grad is not None
    assert last.weight.shape[0] == 5  # two estimates, three free
    assert (last.weight.grad[:2] == 0).all()
    assert (last.weight.grad[2:].abs().sum(-1) > 0).all()


def test_the_first_action_is_said_by_the_network_behind_the_encoder():
    torch.manual_seed(0)
    config = GaussianActorConfig(
        hidden=[8], zero_head=True, initialization=Initialization.xavier,
        encoder=EncoderConfig(kind=EncoderKind.conv, hidden=[4]),
    )  # fmt: skip
    actor = GaussianActor(config, SIZE, 2, terms=TERMS)
    assert (actor({"actor": torch.randn(5, SIZE)}) == 0).all()
    assert actor.latent({"actor": torch.randn(5, SIZE)}).abs().sum() > 0


def test_several_groups_are_seen_side_by_side():
    actor = GaussianActor(GaussianActorConfig(hidden=[8], groups=["critic", "actor"]), 3, 1)
    obs = {"actor": torch.tensor([[1.0]]), "critic": torch.tensor([[2.0, 3.0]])}
    assert actor.normalized(obs).tolist() == [[2, 3, 1]]


MLP = EncoderConfig(kind=EncoderKind.mlp)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: GaussianActorConfig(groups=["actor"] * 2), "different observation groups"),
        (lambda: replace(MLP, hidden=[]), "encoder.hidden needs widths"),
        (lambda: replace(MLP, latent=0), "encoder.latent must be at least 1"),
        (lambda: replace(MLP, frames=-1), "encoder.frames must be at least 0"),
        (lambda: EncoderConfig(kind=EncoderKind.none, estimate=["velocity"]),
         "estimate .* needs an encoder"),
        (lambda: GaussianActor(GaussianActorConfig(encoder=MLP), 7, 2), "terms of the 7 entries"),
        (lambda: GaussianActor(GaussianActorConfig(), 7, 2).latent({"actor": torch.zeros(1, 7)}),
         "without an encoder"),
        (lambda: FrameConvolutions(5, 3, [8, 8], 4, Activation.relu),
         "2 convolutions over 4 frames need more than the 5"),
        *((partial(find_columns, terms, frames=frames, encoded=encoded), told)
          for terms, frames, encoded, told in (
              (LAYOUT, 4, [], "frames 4 asks for more than term 'gyro' has, 3"),
              (LAYOUT, 0, ["gyroo"], "'gyroo' is unknown .did you mean 'gyro'"),
              (LAYOUT, 0, ["gyro", "goal"], "gyro 3, goal 1"),
              (LAYOUT[1:2], 0, [], "has more than one frame .*terms: goal"),
          )),
    ],
)  # fmt: skip
def test_encoders_and_groups_that_make_no_sense_are_refused(make, told):
    with pytest.raises(ConfigError, match=told):
        make()


def rows(count: int, size: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunks", [[1] * 1000, [17, 3, 480, 500]])
def test_the_normaliser_has_the_mean_and_deviation_of_numpy(chunks):
    x = rows(1000) * torch.tensor([1.0, 10.0, 0.1, 1.0, 3.0, 0.0]) + torch.tensor(
        [0.0, 5.0, -2.0, 100.0, 1.0, 7.0]
    )
    normalizer = RunningNormalizer(6, epsilon=1e-2, clip=5.0)
    for part in x.split(chunks):
        normalizer.update(part)
    exact = x.numpy().astype(np.float64)
    expected = (exact - exact.mean(0)) / (exact.std(0) + 1e-2)
    # 100 +- 1 in float32 has five digits of the deviation; a thousand updates round as often.
    np.testing.assert_allclose(normalizer.mean, exact.mean(0), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(normalizer(x), expected.clip(-5, 5), rtol=2e-4, atol=2e-4)


def test_the_normaliser_begins_as_the_identity_and_looking_changes_nothing():
    normalizer = RunningNormalizer(6)
    x = rows(20)
    assert torch.equal(normalizer(x), x)
    normalizer.update(x)
    assert torch.equal(normalizer(x), normalizer(x))
    other = RunningNormalizer(6)
    other.load_state_dict(normalizer.state_dict())
    other.update(rows(9, seed=1))
    normalizer.update(rows(9, seed=1))
    assert torch.equal(other(x), normalizer(x))  # counts and squares are part of the state


def test_constant_entries_stay_finite_and_far_ones_are_clipped():
    normalizer = RunningNormalizer(1, clip=10.0)
    normalizer.update(torch.full((5, 1), 3.0))
    assert normalizer(torch.tensor([[3.0], [3.01], [1e9]])).flatten().tolist() == pytest.approx(
        [0.0, 1.0, 10.0], abs=1e-4
    )
