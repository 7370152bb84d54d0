"""What every `Learner` must keep: the suite, run over all of them by subclassing.

class TestMine(LearnerContract):
    cases = [LearnerCase("mine", make_mine)]
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
import torch

from policies.networks import mlp
from policies.networks.queued import QueuedPolicy
from robot_rl.core.env import EnvSpec, Obs, TermSpec
from robot_rl.core.learner import Learner
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import OffPolicyLearner
from robot_rl.training.trainer import not_finite
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, random_obs
from tests.robot_rl.learners.tape import TapeRecorder

WORLDS = 5
REPRESENTATIVES = {
    "sac", "sac with flash", "sac with simba", "sac as serl", "sac as fast_sac", "sac in bf16",
    "sac with wide networks", "sac with scaled rewards", "sac with convolutions over its history",
    "sac that estimates", "flash_sac", "cal_ql", "h2o",
    "iql with a late actor", "dsac_t by its later code", "td3", "td3 as fast_td3 sets it",
    "td3 that estimates", "distill by divergence", "distill of a latent", "residual", "qc",
    "hil_serl", "silri", "expo", "mentor", "mentor of sparse experts", "sac with experts",
    "sac as drq_sac", "td3 as drq_v2", "sac from images with a privileged critic",
    "mentor from images", "discrete_sac",
}  # fmt: skip
"""Cases that run without `--full`: one for each mechanism."""
QUICK = {"sac", "td3"}
"""Cases that are part of the quick tests."""


@dataclass(frozen=True)
class LearnerCase:
    """One learner under test."""

    name: str
    make: Callable[[EnvSpec, int], Learner]
    """(environment, seed) -> a learner."""
    privileged: bool = True
    """The environment has a group `critic`."""
    loss: str = "critic_loss"
    """Metric that falls where the same batch comes again."""
    reads: tuple[str, ...] = ("reward", "action", "obs", "next_obs")
    """Parts of a batch that are learned from."""
    terms: Mapping[str, tuple[TermSpec, ...]] = field(
        default_factory=dict[str, tuple[TermSpec, ...]]
    )
    """What the groups of the environment consist of, where networks must know it."""


class LearnerContract:
    """Laws of `robot_rl.core.learner.Learner`; `cases` and `device` are the subclass's."""

    cases: tuple[LearnerCase, ...] = ()
    device = torch.device("cpu")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        cases = [
            pytest.param(c, id=c.name, marks=() if c.name in QUICK else pytest.mark.slow)
            for c in self.cases
            if c.name in REPRESENTATIVES or metafunc.config.getoption("full")
        ]
        metafunc.parametrize("case", cases)

    def env(self, case: LearnerCase) -> ToyEnv:
        world = LinearWorld()
        if not case.privileged:
            world = LinearWorld(groups={"actor": world.groups["actor"]})
        if case.terms:
            world = LinearWorld(
                groups={
                    name: replace(g, terms=case.terms[name]) for name, g in world.groups.items()
                }
            )
        return ToyEnv(world, WORLDS, device=self.device)

    def make(self, case: LearnerCase, seed: int = 0) -> tuple[Learner, EnvSpec]:
        """A learner whose statistics have seen a few steps."""
        env = self.env(case)
        learner = case.make(env.spec, seed)
        env.reset(seed=1)
        learner.begin(torch.ones(WORLDS, dtype=torch.bool, device=self.device))
        for _ in range(3):
            step = env.step(torch.zeros(WORLDS, env.spec.action_size, device=self.device))
            learner.observe(step)
            learner.begin(step.ended)
        return learner, env.spec

    def obs(self, spec: EnvSpec, count: int = 64, scale: float = 1.0) -> Obs:
        obs = random_obs(spec, count, torch.Generator().manual_seed(3))
        return {
            name: scale * group if group.is_floating_point() else group
            for name, group in obs.items()
        }

    def batches(self, learner: Learner, spec: EnvSpec, count: int) -> list[Batch]:
        """Batches that hold the groups that the learner names, and no other."""
        named = (*learner.actor_groups, *learner.critic_groups)
        asks = learner.monte_carlo_returns is not None
        batches = [random_batch(spec, learner.samples_per_update, seed) for seed in range(count)]
        return [
            replace(
                batch,
                obs={name: batch.obs[name] for name in named},
                next_obs={name: batch.next_obs[name] for name in named},
                extra={"source": torch.arange(len(batch.reward), device=batch.reward.device) % 2}
                | ({"monte_carlo_return": batch.reward} if asks else {})
                | (_chunks(batch, learner.chunk_length) if learner.chunk_length else {})
                | ({"intervened": batch.reward > 0} if learner.intervention_mask else {}),
            )
            for batch in batches
        ]

    def test_it_has_every_method_of_the_contract(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        assert isinstance(learner, Learner)
        assert learner.samples_per_update >= 1
        assert learner.n_step >= 1
        assert 0 <= learner.gamma <= 1
        named = (*learner.actor_groups, *learner.critic_groups)
        assert set(named) <= set(spec.groups)
        assert len(set(named)) == len(named)

    def test_stored_observations_may_come_first(self, case: LearnerCase) -> None:
        """Before its first update, with the groups that it names alone; actions may follow."""
        env = self.env(case)
        learner = case.make(env.spec, 0)
        obs = self.obs(env.spec, scale=10.0)
        learner.observe_stored(
            {name: obs[name] for name in (*learner.actor_groups, *learner.critic_groups)}
        )
        assert learner.act(obs, explore=False).isfinite().all()
        assert not_finite(learner.state_dict(), "the learner") == []

    def test_actions_lie_within_their_bounds_however_far_the_observation(
        self, case: LearnerCase
    ) -> None:
        learner, spec = self.make(case)
        for scale, explore in itertools.product((1.0, 1e6), (False, True)):
            action = learner.act(self.obs(spec, WORLDS, scale), explore=explore)
            assert action.shape == (WORLDS, spec.action_size)
            assert action.abs().max() <= 1.0
            assert not action.requires_grad

    def test_acting_needs_only_the_groups_of_the_actor(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        obs = self.obs(spec, WORLDS)
        needed = {name: obs[name] for name in learner.actor_groups}
        assert torch.equal(learner.act(needed, explore=False), learner.act(obs, explore=False))

    def test_acting_without_exploring_is_deterministic_and_draws_nothing(
        self, case: LearnerCase
    ) -> None:
        learner, spec = self.make(case)
        twin, _ = self.make(case)
        obs = self.obs(spec, WORLDS)
        first = learner.act(obs, explore=False).clone()
        assert torch.equal(first, learner.act(obs, explore=False))
        assert torch.equal(learner.act(obs, explore=True), twin.act(obs, explore=True))

    def test_exploring_draws_anew_in_every_step_and_by_its_seed(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        same, other = case.make(spec, 0), case.make(spec, 0)
        other.load_state_dict(copied(learner.state_dict()))
        obs = self.obs(spec, WORLDS)
        first = learner.act(obs, explore=True).clone()
        later = [learner.act(obs, explore=True).clone() for _ in range(5)]
        assert not all(
            torch.equal(first, one) for one in later
        )  # of two choices one may come again
        assert torch.equal(first, other.act(obs, explore=True))
        assert_same(learner.policy().state_dict().keys(), same.policy().state_dict().keys())

    def test_the_policy_is_what_acts_without_exploring(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        policy = learner.policy()
        for batch in self.batches(learner, spec, 2):
            learner.update(batch)  # the policy shares the live weights
        obs = self.obs(spec)
        with torch.no_grad():
            assert torch.equal(policy(obs), learner.act(obs, explore=False))

    def test_observing_changes_statistics_and_nothing_that_is_trained(
        self, case: LearnerCase
    ) -> None:
        learner, spec = self.make(case)
        trained = {id(p) for p in learner.policy().parameters()}
        before = copied(list(learner.policy().parameters()))
        state, env = copied(learner.state_dict()), self.env(case)
        env.reset(seed=8)
        learner.observe(env.step(torch.ones(WORLDS, spec.action_size, device=self.device)))
        assert {id(p) for p in learner.policy().parameters()} == trained
        assert_same(list(learner.policy().parameters()), before)
        learner.load_state_dict(state)  # what changed is part of the state
        assert_same(learner.state_dict(), state)

    def test_inspecting_draws_nothing_and_changes_nothing(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        batch, before = self.batches(learner, spec, 1)[0], copied(learner.state_dict())
        first = learner.inspect(batch)
        assert all(value.isfinite() for value in first.values())
        assert_same(learner.inspect(batch), first)
        assert_same(learner.state_dict(), before)

    def test_updates_learn_give_finite_scalars_and_leave_their_batches(
        self, case: LearnerCase
    ) -> None:
        learner, spec = self.make(case)
        obs = self.obs(spec)
        first = learner.act(obs, explore=False).clone()
        for batch in self.batches(learner, spec, 4):
            assert not_finite(learner.state_dict(), "the learner") == []
            before = copied(batch)
            metrics, priority = learner.update(batch)
            assert_same(batch, before)
            assert metrics
            for value in metrics.values():
                assert value.ndim == 0
                assert not value.requires_grad
                assert value.isfinite()
            assert priority is None or priority.shape == batch.reward.shape
        assert not_finite(learner.state_dict(), "the learner") == []
        assert not torch.equal(first, learner.act(obs, explore=False))

    def test_a_restored_state_goes_on_bit_equal(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        batches = self.batches(learner, spec, 9)
        for batch in batches[:5]:  # between two steps of actors that step in every second one
            learner.update(batch)
        other, _ = self.make(case, seed=5)
        other.update(batches[0])
        other.load_state_dict(copied(learner.state_dict()))
        obs = self.obs(spec, WORLDS)
        for batch in batches[5:]:
            learner.update(batch)
            other.update(batch)
            assert torch.equal(learner.act(obs, explore=True), other.act(obs, explore=True))
        assert_same(other.state_dict(), learner.state_dict())

    def test_a_captured_update_does_what_a_computed_one_does(
        self, case: LearnerCase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On the CPU by a tape, on a GPU by graphs; steps, actions and another state between."""
        monkeypatch.setattr(mlp, "is_exact", lambda: False)  # a tape knows no mode
        learner, spec = self.make(case)
        plain, _ = self.make(case)
        if not (isinstance(learner, OffPolicyLearner) and isinstance(plain, OffPolicyLearner)):
            return
        steps, computed = learner.cuda_graphs, plain.cuda_graphs
        computed.allowed = False
        learner.compiled_step = plain.compiled_step = None
        if self.device.type == "cpu":
            steps.record_with(TapeRecorder())
        obs, env = self.obs(spec, WORLDS), self.env(case)
        env.reset(seed=1)
        captures: list[int] = []
        for i, batch in enumerate(self.batches(learner, spec, 14)):
            assert_same(learner.update(batch), plain.update(batch))
            assert torch.equal(learner.act(obs, explore=True), plain.act(obs, explore=True))
            step = env.step(torch.zeros(WORLDS, spec.action_size, device=self.device))
            learner.observe(step)
            plain.observe(step)
            captures.append(steps.captures)
            if i == 6:
                learner.load_state_dict(copied(learner.state_dict()))
                assert steps.captures == 0
        assert_same(learner.state_dict(), plain.state_dict())
        assert (captures[6] > 0) == (captures[-1] > 0) == steps.allowed
        assert computed.captures == 0

    def test_rows_of_weight_zero_have_no_influence(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        other, _ = self.make(case)
        batch = self.batches(learner, spec, 1)[0]
        batch.weight[::3] = 0.0
        wild = copied(batch)
        parts = [wild.reward, wild.action, *(v for v in [wild.extra.get("chunk")] if v is not None)]
        for value in (*wild.obs.values(), *wild.next_obs.values(), *parts):
            value[::3] = 0.5
        for _ in range(2):
            learner.update(batch)
            other.update(wild)
        for got, expected in zip(
            other.policy().parameters(), learner.policy().parameters(), strict=True
        ):
            # Rows of each sparse expert are added up: what others are told moves their order. On a
            # CPU that is one last digit, where its products of few rows and of many differ.
            sparse = 1e-5 if self.device.type == "cuda" else 1e-6
            rounding = sparse if "sparse" in case.name else 0.0
            torch.testing.assert_close(got, expected, rtol=rounding, atol=rounding)
        obs = self.obs(spec, WORLDS)  # the temperature may not feel them either
        for _ in range(3):
            fresh = self.batches(learner, spec, 1)[0]
            learner.update(fresh)
            other.update(fresh)
        assert torch.equal(learner.act(obs, explore=True), other.act(obs, explore=True))

    def test_the_loss_falls_where_there_is_no_future(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        batch = self.batches(learner, spec, 1)[0]
        batch.discount.zero_()  # the target is the reward, whatever actor and targets do
        losses = [float(learner.update(batch)[0][case.loss]) for _ in range(50)]
        assert sum(losses[-5:]) < 0.98 * sum(losses[:5])

    def metrics_of(self, case: LearnerCase, updates: int) -> list[dict[str, torch.Tensor]]:
        learner, spec = self.make(case)
        batches = self.batches(learner, spec, 7)
        return [copied(learner.update(batches[i % 7])[0]) for i in range(updates)]

    def test_the_same_seed_gives_the_same_metrics_bit_for_bit(self, case: LearnerCase) -> None:
        assert_same(self.metrics_of(case, 10), self.metrics_of(case, 10))

    def test_a_nan_in_a_batch_shows_in_the_metrics_where_it_is_learned_from(
        self, case: LearnerCase
    ) -> None:
        for part in ("reward", "action", "obs", "next_obs"):
            learner, spec = self.make(case)
            batches = self.batches(learner, spec, 4)
            spoilt = getattr(batches[0], part)
            for tensor in spoilt.values() if isinstance(spoilt, dict) else (spoilt,):
                if tensor.is_floating_point():  # pixels are always numbers
                    tensor[0] = torch.nan
            seen = [learner.update(batch)[0] for batch in batches]
            shown = any(not value.isfinite() for metrics in seen for value in metrics.values())
            assert shown == (part in case.reads), part

    def test_the_policy_is_exported_as_it_acts(self, case: LearnerCase) -> None:
        learner, spec = self.make(case)
        policy, obs = learner.policy(), self.obs(spec)
        seen = {name: obs[name] for name in learner.actor_groups}
        graph = policy.network if isinstance(policy, QueuedPolicy) else policy
        exported = torch.export.export(graph, (seen,)).module()
        with torch.no_grad():
            torch.testing.assert_close(exported(seen), graph(obs), rtol=1e-6, atol=1e-6)


def _chunks(batch: Batch, length: int) -> dict[str, torch.Tensor]:
    """Made-up chunks, of which every fifth is cut short after its first action."""
    rows = torch.arange(len(batch.reward), device=batch.reward.device)
    chunk = torch.stack([batch.action.roll(k, 0) for k in range(length)], dim=1)
    valid = (rows[:, None] % 5 != 4).repeat(1, length)
    valid[:, 0] = True
    return {"chunk": chunk, "valid": valid}
