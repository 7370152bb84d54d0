"""A flow that is learned from two ways of doing it chooses one, and chunks reach a bundle."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from policies.bundle import load_bundle, read_bundle
from policies.c99.source import write_c99
from policies.export import export_bundle
from policies.networks.flow import BestChunk, FlowPolicy, FlowPolicyConfig, FlowStart
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.queued import QueuedPolicy
from policies.runner import PolicyRunner
from robot_rl.core.errors import BundleError, ConfigError
from robot_rl.learners.cloning import flow_matching
from tests.policies.conftest import OBS_SIZE, export_arguments, same_actions

pytestmark = pytest.mark.slow


def flow(steps: int = 10) -> FlowPolicy:
    torch.manual_seed(0)
    return FlowPolicy(FlowPolicyConfig(hidden=[32, 32], steps=steps), 2, 1, 2)


def test_steps_of_euler_by_hand():
    policy = flow(steps=2)
    obs, noise = {"actor": torch.randn(3, 2)}, 0.1 * torch.randn(3, 2, 1)
    half = noise + 0.5 * policy.velocity(obs, noise, torch.zeros(3, 1))
    expected = half + 0.5 * policy.velocity(obs, half, torch.full((3, 1), 0.5))
    torch.testing.assert_close(policy.flow(obs, noise), expected.clamp(-1, 1))


def test_a_flow_learns_both_ways_and_not_their_mean():
    policy, generator = flow(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    obs = {"actor": torch.zeros(256, 2)}
    for _ in range(300):
        side = torch.randint(2, (256, 1, 1), generator=generator) * 1.6 - 0.8
        chunk = side.expand(-1, 2, -1)
        loss = flow_matching(policy, obs, chunk, torch.ones(256, 2, dtype=torch.bool), generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        ends = policy.flow(obs, torch.randn(256, 2, 1, generator=generator))
    assert (ends.abs() > 0.5).float().mean() > 0.8  # their mean is 0
    assert 0.3 < float((ends > 0).float().mean()) < 0.7
    assert ((ends[:, 0] > 0) == (ends[:, 1] > 0)).float().mean() > 0.95  # both actions of a chunk


def test_evaluation_starts_at_the_noise_of_its_seed():
    torch.manual_seed(1)
    config = FlowPolicyConfig(hidden=[8], steps=3, start=FlowStart.drawn, start_seed=5)
    network = FlowPolicy(config, OBS_SIZE, 4)
    obs = {"actor": torch.randn(3, OBS_SIZE)}
    drawn = np.random.default_rng(5).standard_normal((1, 1, 4), np.float32)
    noise = torch.from_numpy(drawn).expand(3, -1, -1)
    with torch.no_grad():
        evaluated = network(obs)
        torch.testing.assert_close(evaluated, network.flow(obs, noise)[:, 0])
        assert (evaluated - network.flow(obs, noise + 0.5)[:, 0]).abs().max() > 0.01


def test_a_queue_around_the_network_and_around_the_bundle_do_the_same(tmp_path):
    torch.manual_seed(1)
    config = FlowPolicyConfig(hidden=[8], steps=2, start=FlowStart.drawn)
    network = FlowPolicy(config, OBS_SIZE, 4, 5)
    folder = export_bundle(tmp_path / "b", **export_arguments(
        policy=network, chunk_length=5, replan_interval=1, ensemble_decay=0.1,
    ))  # fmt: skip
    with pytest.raises(ConfigError, match="chunks of 5 actions"):
        write_c99(folder, tmp_path / "c")
    spec, session = read_bundle(folder, verify=False)
    assert (spec.chunk_length, spec.replan_interval, spec.ensemble_decay) == (5, 1, 0.1)
    for decay, interval in ((None, 3), (0.1, 1)):
        changes: dict[str, Any] = {"replan_interval": interval, "ensemble_decay": decay}
        queued = QueuedPolicy(network, chunk_length=5, **changes)
        runner = PolicyRunner(replace(spec, **changes), session, num_robots=2)
        masks = ([t in (0, 4), t in (0, 7)] for t in range(12))
        assert len(list(same_actions(runner, queued, masks))) == 12


def test_a_queue_forgets_where_an_episode_starts():
    """The published residual code popped the first action of an episode from the one before."""
    policy = flow()
    queued = QueuedPolicy(policy, chunk_length=2, replan_interval=2)
    obs = {"actor": torch.randn(3, 2)}
    with torch.no_grad():
        queued(obs)
        queued.begin(torch.tensor([True, False, False]))
        fresh = {"actor": torch.randn(3, 2)}
        action = queued(fresh)
        torch.testing.assert_close(action[0], policy(fresh)[0, 0])
        torch.testing.assert_close(action[1:], policy(obs)[1:, 1])


def best_chunk(candidates: int = 5) -> BestChunk:
    torch.manual_seed(1)
    flow = FlowPolicy(FlowPolicyConfig(hidden=[8], steps=2), OBS_SIZE, 4, 3)
    critic = QEnsemble(QEnsembleConfig(hidden=[8], layer_norm=True), "actor", OBS_SIZE, 12)
    return BestChunk(flow, critic, candidates)


def test_a_bundle_chooses_as_torch_does(tmp_path):
    network = best_chunk()
    queued = QueuedPolicy(network, chunk_length=3, replan_interval=2)
    folder = export_bundle(
        tmp_path / "best", **export_arguments(policy=network, chunk_length=3, replan_interval=2)
    )
    runner, taken = load_bundle(folder, num_robots=3), set[int]()
    masks = ([t == 0, t in (0, 3), t == 0] for t in range(10))
    for obs in same_actions(runner, queued, masks):
        with torch.no_grad():
            assert bool(network.decided(obs).all())
            taken |= set(network._proposals(obs, network._noise(obs))[1].argmax(0).tolist())
    assert len(taken) > 1  # it is a choice


def test_a_choice_that_rounding_decides_is_not_exported(tmp_path, monkeypatch):
    monkeypatch.setattr("policies.export._TRIES", 4)
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
