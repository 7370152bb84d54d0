"""An actor of every kind becomes a bundle that acts as it does, with all that it has learned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from policies.bundle import load_bundle, replay
from policies.export import export_bundle
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig, LogStdBound
from policies.networks.trunks import NetworkKind
from policies.runner import open_network

Arguments = Callable[..., dict[str, Any]]
OBS_SIZE = 29  # of the robot in conftest.py

pytestmark = pytest.mark.slow  # each export takes a second or more


def trained_actor(kind: NetworkKind) -> GaussianActor:
    """An actor after a few steps on rows that are far from standard."""
    torch.manual_seed(0)
    config = GaussianActorConfig(
        kind=kind, hidden=[16], width=16, log_std_bound=LogStdBound.tanh,
        normalize=kind is not NetworkKind.flash,
    )  # fmt: skip
    actor = GaussianActor(config, OBS_SIZE, 4)
    adam = torch.optim.Adam(actor.parameters(), 1e-2)
    for _ in range(30):
        obs = {"actor": 3 * torch.randn(64, OBS_SIZE) + 2}
        actor.update_statistics(obs)
        action, log_prob = actor.sample(obs)
        loss = (0.01 * log_prob + ((action - obs["actor"][:, :4].tanh()) ** 2).sum(-1)).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            actor.constrain()
    return actor


@pytest.mark.parametrize(
    "kind",
    [
        NetworkKind.bro,  # simba and flash are exported in c99/test_every_actor.py
        *(
            pytest.param(kind, marks=pytest.mark.full)
            for kind in NetworkKind
            if kind is not NetworkKind.bro
        ),
    ],
)
def test_a_bundle_acts_as_torch_does(kind, tmp_path, arguments):
    actor = trained_actor(kind)
    folder = export_bundle(tmp_path / "b", **arguments(policy=actor))
    assert actor.training  # learning goes on as before
    session = open_network((folder / "policy.onnx").read_bytes())
    for count in (1, 7, 500):
        obs = 3 * torch.randn(count, OBS_SIZE) + 2
        (action,) = session.run(["action"], {"actor": obs.numpy()})
        with torch.no_grad():
            expected = actor({"actor": obs}).numpy()
        assert np.abs(np.asarray(action) - expected).max() <= 1e-5
    with np.load(folder / "golden.npz") as archive:
        golden = dict(archive)
    got = replay(load_bundle(folder, num_robots=4), golden)
    np.testing.assert_allclose(got["action"], golden["action"], atol=1e-5)


def test_running_statistics_of_batch_norm_travel_with_the_bundle(tmp_path, arguments):
    actor = trained_actor(NetworkKind.flash)
    obs = np.random.default_rng(0).standard_normal((1, OBS_SIZE), np.float32)
    actions = []
    for name in ("a", "b"):
        folder = export_bundle(tmp_path / name, **arguments(policy=actor))
        session = open_network((folder / "policy.onnx").read_bytes())
        actions.append(np.asarray(session.run(["action"], {"actor": obs})[0]))
        for buffer_name, buffer in actor.named_buffers():
            if "running_mean" in buffer_name:
                buffer.add_(1.0)
    assert np.abs(actions[0] - actions[1]).max() > 0.01
