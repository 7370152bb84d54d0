"""Actors of every kind act as torch does when they are exported, and pass their self-test in C."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from policies.c99.source import write_c99
from policies.export import export_bundle
from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.flow import FlowPolicy, FlowPolicyConfig, FlowStart
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.inputs import EncoderConfig, EncoderKind
from policies.networks.mlp import Activation
from policies.networks.trunks import NetworkKind
from policies.runner import open_network
from robot_rl.core.env import TermSpec
from robot_rl.core.observation import TermConfig
from tests.matrices import some
from tests.policies.conftest import export_arguments

pytestmark = pytest.mark.slow  # each export takes a second or more

OBS_SIZE, FRAMES = 29, 5  # of the robot in tests/policies/conftest.py, and with histories
TERMS = [
    TermConfig(term="position_error_w"),
    TermConfig(term="linear_velocity_w", history=FRAMES),
    TermConfig(term="last_action", history=FRAMES),
]
LAYOUT = [
    TermSpec(name="position_error_w", width=3),
    TermSpec(name="linear_velocity_w", width=3, history=FRAMES),
    TermSpec(name="last_action", width=4, history=FRAMES),
]

Actor = GaussianActor | DeterministicActor | FlowPolicy


def gaussian(kind: NetworkKind) -> GaussianActor:
    normalize = kind is not NetworkKind.flash  # which has a batch norm of its own
    config = GaussianActorConfig(kind=kind, hidden=[16, 12], width=16, normalize=normalize)
    return GaussianActor(config, OBS_SIZE, 4)


def encoded(kind: EncoderKind) -> GaussianActor:
    encoder = EncoderConfig(kind=kind, hidden=[6], latent=3, estimate=["velocity"])
    config = GaussianActorConfig(hidden=[8], encoder=encoder)
    return GaussianActor(config, 3 + FRAMES * 7, 4, terms=LAYOUT, estimated=2)


def deterministic(activation: Activation) -> DeterministicActor:
    config = DeterministicActorConfig(hidden=[9, 6], activation=activation, layer_norm=True)
    return DeterministicActor(config, OBS_SIZE, 4)


def flow(start: FlowStart) -> FlowPolicy:
    return FlowPolicy(FlowPolicyConfig(hidden=[9], steps=2, start=start), OBS_SIZE, 4)


# `test_operations.py` has all operations.
DEFAULT = [
    (gaussian, NetworkKind.moe),
    (gaussian, NetworkKind.simba), (gaussian, NetworkKind.flash), (encoded, EncoderKind.conv),
    (flow, FlowStart.drawn), (deterministic, Activation.silu),
]  # fmt: skip
REST = [
    (gaussian, NetworkKind.mlp), (gaussian, NetworkKind.bro), (encoded, EncoderKind.mlp),
    *((deterministic, one) for one in Activation if one is not Activation.silu),
]  # fmt: skip


def observed(rows: int, size: int) -> dict[str, torch.Tensor]:
    return {"actor": 3 * torch.randn(rows, size) + 2}


@pytest.mark.parametrize(("make", "kind"), some(DEFAULT, REST))
def test_bundle_and_code_in_c_act_as_torch_does(
    make: Callable[..., Actor], kind, tmp_path, self_test
):
    torch.manual_seed(0)
    actor = make(kind)
    size = 3 + FRAMES * 7 if make is encoded else OBS_SIZE
    with torch.no_grad():
        for parameter in actor.parameters():  # norms and biases away from one and zero
            parameter.add_(0.1 * torch.randn(parameter.shape))
    for _ in range(3):  # running statistics, of batch norm too, as after some training
        actor.update_statistics(observed(64, size))
        if isinstance(actor, GaussianActor):
            actor.sample(observed(64, size))
    terms = {"terms": TERMS} if make is encoded else {}
    bundle = export_bundle(tmp_path / "bundle", **export_arguments(policy=actor, **terms))
    assert actor.training, "learning goes on as before"
    session = open_network((bundle / "policy.onnx").read_bytes())
    for rows in (1, 7, 500):
        obs = observed(rows, size)
        (action,) = session.run(["action"], {"actor": obs["actor"].numpy()})
        with torch.no_grad():
            assert np.abs(np.asarray(action) - actor(obs).numpy()).max() <= 1e-5
    _, source = write_c99(bundle, tmp_path / "c")
    done = self_test(source)
    assert done.returncode == 0, done.stdout
