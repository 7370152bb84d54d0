"""The best of a flow's proposals, as a bundle: critics and noises are in the graph."""

from pathlib import Path

import numpy as np
import pytest
import torch

from policies.bundle import load_bundle
from policies.export import export_bundle
from policies.networks.flow import BestChunk, FlowPolicy, FlowPolicyConfig
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.queued import QueuedPolicy
from robot_rl.core.errors import BundleError
from robot_rl.core.robot_state import RobotState
from tests.policies.conftest import OBS_SIZE, export_arguments


def best_chunk(candidates: int = 5) -> BestChunk:
    torch.manual_seed(1)
    flow = FlowPolicy(FlowPolicyConfig(hidden=[8], steps=2), OBS_SIZE, 4, 3)
    critic = QEnsemble(QEnsembleConfig(hidden=[8], layer_norm=True), "actor", OBS_SIZE, 12)
    return BestChunk(flow, critic, candidates)


def test_a_bundle_chooses_as_torch_does(tmp_path: Path) -> None:
    network = best_chunk()
    queued = QueuedPolicy(network, chunk_length=3, replan_interval=2)
    folder = export_bundle(
        tmp_path / "best", **export_arguments(policy=network, chunk_length=3, replan_interval=2)
    )
    runner, rng = load_bundle(folder, num_robots=3), np.random.default_rng(0)
    taken: set[int] = set()
    for t in range(10):
        starting = np.array([t == 0, t in (0, 3), t == 0])
        runner.reset(starting)
        queued.begin(torch.from_numpy(starting))
        state = {
            name: rng.standard_normal((3, width)).astype(np.float32)
            for name, width in runner.spec.robot.state_widths.items()
        }
        runner.act(RobotState(state), {"position_w": np.zeros((3, 3), np.float32)})
        obs = {"actor": torch.from_numpy(runner.last_observation.copy())}
        with torch.no_grad():
            assert bool(network.decided(obs).all())
            expected = queued(obs)
            taken |= set(network._proposals(obs, network._noise(obs))[1].argmax(0).tolist())
        np.testing.assert_allclose(runner.last_action, expected.numpy(), atol=1e-5)
    assert len(taken) > 1  # it is a choice


def test_a_choice_that_rounding_decides_is_not_exported(tmp_path: Path) -> None:
    network = best_chunk()
    for parameter in network.critic.parameters():
        torch.nn.init.zeros_(parameter)  # all proposals are worth the same
    obs = {"actor": torch.randn(4, OBS_SIZE)}
    assert not bool(network.decided(obs).any())
    with pytest.raises(BundleError, match="worth the same up to rounding"):
        export_bundle(
            tmp_path / "tie", **export_arguments(policy=network, chunk_length=3, replan_interval=3)
        )
    assert not (tmp_path / "tie").exists()


def test_a_single_proposal_leaves_no_choice() -> None:
    network = best_chunk(candidates=1)
    obs = {"actor": torch.randn(4, OBS_SIZE)}
    with torch.no_grad():
        assert bool(network.decided(obs).all())
        torch.testing.assert_close(network(obs), network.actor.flow(obs, network._noise(obs)[0]))
