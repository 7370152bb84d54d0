"""Actors of every kind, as they are exported, pass their self-test in C."""

from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.c99.source import write_c99
from policies.export import export_bundle
from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.flow import FlowPolicy, FlowPolicyConfig, FlowStart
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.inputs import EncoderKind
from policies.networks.mlp import Activation
from policies.networks.trunks import NetworkKind
from tests.policies.networks.test_export_of_encoders import TERMS, make_student

OBS_SIZE = 29  # of the robot in tests/policies/conftest.py

pytestmark = pytest.mark.slow  # each export takes a second or more


def matrix(*names: Enum) -> list[Any]:
    """Of a kind, these alone run without `--full`; `test_operations.py` has all operations."""
    return [
        name if name in names else pytest.param(name, marks=pytest.mark.full)
        for name in type(names[0])
    ]


def check(
    actor: GaussianActor | DeterministicActor | FlowPolicy, tmp_path: Path, arguments, self_test
) -> None:
    with torch.no_grad():
        for parameter in actor.parameters():  # norms and biases away from one and zero
            parameter.add_(0.1 * torch.randn(parameter.shape))
    for _ in range(3):
        actor.update_statistics({"actor": 0.5 * torch.randn(64, OBS_SIZE) + 0.2})
    bundle = export_bundle(tmp_path / "bundle", **arguments(policy=actor))
    _, source = write_c99(bundle, tmp_path / "c")
    done = self_test(source)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", matrix(NetworkKind.simba, NetworkKind.flash))
def test_network_passes(kind, tmp_path, arguments, self_test):
    torch.manual_seed(0)
    normalize = kind is not NetworkKind.flash  # which has a batch norm of its own
    config = GaussianActorConfig(kind=kind, hidden=[16, 12], width=16, normalize=normalize)
    check(GaussianActor(config, OBS_SIZE, 4), tmp_path, arguments, self_test)


@pytest.mark.parametrize(
    "kind", [EncoderKind.conv, pytest.param(EncoderKind.mlp, marks=pytest.mark.full)]
)
def test_encoder_of_a_history_passes(kind, tmp_path, arguments, self_test):
    values = arguments(policy=make_student(kind), terms=TERMS)
    _, source = write_c99(export_bundle(tmp_path / "bundle", **values), tmp_path / "c")
    done = self_test(source)
    assert done.returncode == 0, done.stdout


def test_flow_passes_from_its_noise_on(tmp_path, arguments, self_test):
    torch.manual_seed(0)
    config = FlowPolicyConfig(hidden=[9], steps=2, start=FlowStart.drawn)
    check(FlowPolicy(config, OBS_SIZE, 4), tmp_path, arguments, self_test)


@pytest.mark.parametrize("activation", matrix(Activation.silu))
def test_activation_passes(activation, tmp_path, arguments, self_test):
    torch.manual_seed(0)
    config = DeterministicActorConfig(hidden=[9, 6], activation=activation, layer_norm=True)
    check(DeterministicActor(config, OBS_SIZE, 4), tmp_path, arguments, self_test)
