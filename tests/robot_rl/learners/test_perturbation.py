"""Best agents and perturbation: moments by hand, episodes, what is refused."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import EnvStep
from robot_rl.core.errors import ConfigError
from robot_rl.learners.perturbation import (
    BestAgents,
    EpisodeReturns,
    Perturbation,
    PerturbationConfig,
)
from tests.equality import assert_same

CPU = torch.device("cpu")


def stepped(
    reward: list[float], ended: list[bool], valid: list[bool] | None = None,
    weights: list[float] | None = None,
) -> EnvStep:  # fmt: skip
    count = len(reward)
    none = torch.zeros(count, dtype=torch.bool)
    return EnvStep(
        obs={}, next_obs={}, reward=torch.tensor(reward), terminated=torch.tensor(ended),
        truncated=none, success=none, intervened=none, action=torch.zeros(count, 1),
        valid=~none if valid is None else torch.tensor(valid),
        reward_weights=None if weights is None else torch.tensor(weights),
    )  # fmt: skip


class TestEpisodeReturns:
    def test_the_mean_is_that_of_episodes_that_ended_since_it_was_taken(self):
        returns = EpisodeReturns(CPU)
        assert math.isnan(returns.take()[0])
        returns.observe(stepped([1.0, 2.0], [False, True]))
        returns.observe(stepped([3.0, 5.0], [True, False]))
        assert returns.take() == (3.0, False)  # of 2 and 1 + 3
        returns.observe(stepped([7.0, 1.0], [False, True]))
        assert returns.take() == (6.0, False)

    def test_an_invalid_row_ends_a_return_that_counts_for_nothing(self):
        returns = EpisodeReturns(CPU)
        returns.observe(stepped([1.0, 1.0], [False, False]))
        returns.observe(stepped([math.nan, 2.0], [True, False], valid=[False, True]))
        returns.observe(stepped([10.0, 4.0], [True, True]))
        assert returns.take() == (8.5, False)

    def test_moved_reward_weights_are_told_once(self):
        returns = EpisodeReturns(CPU)
        for weights in ([1.0, 2.0], [1.0, 2.0]):
            returns.observe(stepped([1.0], [True], weights=weights))
        assert returns.take() == (1.0, False)
        returns.observe(stepped([1.0], [True], weights=[1.0, 3.0]))
        assert returns.take() == (1.0, True)
        assert returns.take()[1] is False


def agents(limit: int = 3, size: int = 5) -> tuple[BestAgents, list[Tensor]]:
    weights = [torch.zeros(size), torch.zeros(2, size)]
    return BestAgents(weights, limit), weights


def fill(weights: list[Tensor], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return [weight.double() for weight in weights]


class TestBestAgents:
    def test_moments_are_exact_while_the_set_fills(self):
        best, weights = agents(limit=4)
        seen = [fill(weights, seed) for seed in range(4) if best.offer(float(seed)) or True]
        # Offered before they were filled: the first are zeros, then those of the seed before.
        copies = [[torch.zeros_like(weight).double() for weight in weights], *seen[:3]]
        state = best.state_dict()
        for i in range(2):
            each = torch.stack([one[i] for one in copies])
            torch.testing.assert_close(
                state["mean"][i].double(), each.mean(0), rtol=1e-6, atol=1e-6
            )
            variance = each.var(0, unbiased=False)
            torch.testing.assert_close(
                state["variance"][i].double(), variance, rtol=1e-5, atol=1e-6
            )

    def test_only_better_ones_are_taken_when_it_is_full_and_the_worst_goes(self):
        best, weights = agents(limit=3)
        for seed, value in enumerate((5.0, 1.0, 3.0)):
            fill(weights, seed)
            assert best.offer(value)
        before = best.state_dict()
        fill(weights, 9)
        for value in (1.0, 0.5, -math.inf, math.nan):
            assert not best.offer(value)
        assert_same(best.state_dict(), before)
        assert best.offer(4.0)
        after = best.state_dict()
        assert sorted(after["returns"]) == [3.0, 4.0, 5.0]
        mean = before["mean"][0] + (weights[0] - before["mean"][0]) / 3
        torch.testing.assert_close(after["mean"][0], mean)
        difference = weights[0] - before["mean"][0]
        variance = 2 / 3 * (before["variance"][0] + difference**2 / 3)
        torch.testing.assert_close(after["variance"][0], variance)

    def test_weights_that_are_not_numbers_are_never_taken(self):
        best, weights = agents()
        fill(weights, 0)
        weights[1][0, 2] = math.nan
        assert not best.offer(1.0)
        weights[1][0, 2] = math.inf
        assert not best.offer(1.0)
        assert best.count == 0

    @pytest.mark.slow
    def test_draws_have_the_mean_and_the_unbiased_spread_of_the_set(self):
        best, weights = agents(limit=5, size=2)
        copies = []
        for seed in range(5):
            copies.append(fill(weights, seed)[0])
            best.offer(float(seed))
        generator = torch.Generator().manual_seed(0)
        drawn = torch.stack([best.draw(generator)[0] for _ in range(20_000)]).double()
        each = torch.stack(copies)
        # 20,000 draws: the mean is off by 0.7 % of a deviation, the deviation by 0.5 %.
        assert ((drawn.mean(0) - each.mean(0)).abs() < 0.03 * each.std(0)).all()
        torch.testing.assert_close(drawn.std(0), each.std(0), rtol=0.03, atol=0)

    def test_equal_agents_are_drawn_as_they_are(self):
        best, weights = agents()
        fill(weights, 0)
        for value in (1.0, 2.0, 3.0, 4.0, 5.0):
            best.offer(value)
        for weight, other in zip(weights, best.draw(torch.Generator()), strict=True):
            assert (weight - other).abs().max() < 2e-6

    def test_a_set_that_begins_anew_forgets_the_weights_before(self):
        best, weights = agents()
        for seed in range(3):
            fill(weights, seed)
            best.offer(100.0 + seed)
        best.forget_returns()
        fill(weights, 7)
        assert best.offer(-5.0)
        state = best.state_dict()
        torch.testing.assert_close(state["mean"][0], weights[0])
        assert state["variance"][0].abs().max() < 1e-12


def moved(**settings: Any) -> tuple[Perturbation, dict[str, list[Tensor]], list[Tensor]]:
    parts = {"head": [torch.zeros(3)], "critic": [torch.zeros(2), torch.zeros(4)]}
    target = [torch.zeros(2), torch.zeros(4)]
    config = PerturbationConfig(**{"interval": 10, "judge_interval": 1, **settings})
    return Perturbation(config, parts, {"critic": target}, CPU), parts, target


class TestPerturbation:
    def judged(self, one: Perturbation, parts: dict[str, list[Tensor]], count: int) -> None:
        for seed in range(count):
            fill([weight for part in parts.values() for weight in part], seed)
            one.returns.observe(stepped([float(seed)], [True]))
            one.judge(updates=1)

    def test_weights_and_followers_go_the_same_way_to_one_draw(self):
        one, parts, target = moved()
        self.judged(one, parts, 3)
        fill(target, 50)
        weights = [*parts["head"], *parts["critic"]]
        before = [weight.double() for weight in [*weights, *target]]
        drawn = one.agents.draw(torch.Generator().manual_seed(4))
        one.move(torch.tensor(0.7), torch.Generator().manual_seed(4))
        for weight, old, other in zip(
            [*weights, *target], before, [*drawn, *drawn[1:]], strict=True
        ):
            expected = 0.7 * old + 0.3 * other.double()
            torch.testing.assert_close(weight.double(), expected, rtol=1e-6, atol=1e-6)
        assert one.count == 1

    def test_named_parts_alone_are_moved(self):
        one, parts, target = moved(parts=["head"])
        self.judged(one, parts, 3)
        before = [weight.clone() for weight in [*parts["critic"], *target]]
        head = parts["head"][0].clone()
        one.move(torch.tensor(0.5), torch.Generator())
        assert_same([*parts["critic"], *target], before)
        assert not torch.equal(parts["head"][0], head)

    def test_it_is_due_at_its_interval_and_with_two_agents_only(self):
        one, parts, _ = moved()
        assert not one.due(10)
        self.judged(one, parts, 1)
        assert not one.due(10)
        self.judged(one, parts, 2)
        assert [updates for updates in range(1, 31) if one.due(updates)] == [10, 20, 30]
        never, parts, _ = moved(interval=0)
        self.judged(never, parts, 5)
        assert never.agents.count == 0
        assert not any(never.due(updates) for updates in range(50))

    def test_no_agent_is_judged_without_an_episode_nor_between_two_judgements(self):
        one, _, _ = moved(judge_interval=5)
        one.judge(5)
        assert one.agents.count == 0
        one.returns.observe(stepped([1.0], [True]))
        one.judge(6)
        assert one.agents.count == 0
        one.judge(10)
        assert one.agents.count == 1

    def test_returns_of_other_reward_weights_do_not_count_any_more(self):
        one, parts, _ = moved()
        self.judged(one, parts, 3)
        for weights in ([1.0], [2.0]):
            one.returns.observe(stepped([-9.0], [True], weights=weights))
        one.judge(1)
        assert one.agents.count == 1

    def test_a_part_that_is_not_there_is_named(self):
        told = r"parts names 'gate'; this learner has: head, critic"
        with pytest.raises(ConfigError, match=told):
            moved(parts=["gate"])

    @pytest.mark.parametrize(
        ("settings", "told"),
        [({"agents": 1}, "agents must lie in"), ({"keep_min": 0.9, "keep_max": 0.5}, "keep_max"),
         ({"judge_interval": 0}, "judge_interval")],
    )  # fmt: skip
    def test_settings_out_of_range_are_refused(self, settings, told):
        with pytest.raises(ConfigError, match=rf"learner\.perturbation\.{told}"):
            PerturbationConfig(**settings)
