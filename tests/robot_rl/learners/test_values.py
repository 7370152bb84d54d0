"""What critics' outputs mean: by hand, by law, and against double precision."""

import math

import pytest
import torch
from torch import Tensor

from robot_rl.learners.values import (
    CategoricalValues,
    ScalarValues,
    TargetRule,
    ValueConfig,
    make_values,
)
from tests.fakes import CPU
from tests.robot_rl.learners.reference_sac import categorical_target

ROWS, ATOMS = 64, 101
SCALES = (0.3, 4.0, 40.0)
"""Rewards well inside the support, near its size, and far beyond it."""
MASSES = [0.2, 0.3, 0.5]


def categories(atoms: int = 3, low: float = -1.0, high: float = 1.0) -> CategoricalValues:
    return CategoricalValues(ValueConfig(atoms=atoms, low=low, high=high), CPU)


def logits(*probabilities: list[float]) -> Tensor:
    """One row for each member, (M, 1, K), of outputs that mean these probabilities."""
    return torch.tensor(probabilities).clamp_min(1e-30).log()[:, None]


def row(value: float) -> Tensor:
    return torch.tensor([value])


def draws(scale: float, members: int = 2) -> dict[str, Tensor]:
    """Outputs, rewards and discounts; one row in five has no future."""
    generator = torch.Generator().manual_seed(3)
    alive = torch.rand(ROWS, generator=generator) > 0.2
    return {
        "output": 2 * torch.randn(members, ROWS, ATOMS, generator=generator),
        "reward": scale * torch.randn(ROWS, generator=generator),
        "discount": torch.where(alive, 0.97, 0.0),
        "bonus": 0.2 * torch.randn(ROWS, generator=generator),
    }


def relative_error(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).norm() / expected.norm())


class TestCategories:
    @pytest.mark.parametrize(
        ("next_probabilities", "reward", "discount", "bonus", "expected"),
        [
            # Atoms -1, 0, 1. All mass is on 0 and moves to 0.1: nine tenths stay.
            ([[0.0, 1.0, 0.0]], 0.1, 0.5, 0.0, [0.0, 0.9, 0.1]),
            # Masses 0.2, 0.3, 0.5 move to 0.5 z + 0.5 * 0.4: -0.3, 0.2, 0.7.
            ([MASSES], 0.0, 0.5, 0.4,
             [0.2 * 0.3, 0.2 * 0.7 + 0.3 * 0.8 + 0.5 * 0.3, 0.3 * 0.2 + 0.5 * 0.7]),
            # A return on an atom is that atom alone, one outside the support the nearest edge.
            ([MASSES], -1.0, 0.0, 7.0, [1.0, 0.0, 0.0]),
            ([MASSES], 0.0, 0.0, 7.0, [0.0, 1.0, 0.0]),
            ([MASSES], 1.0, 0.0, 7.0, [0.0, 0.0, 1.0]),
            ([MASSES], -50.0, 0.9, 0.0, [1.0, 0.0, 0.0]),
            ([MASSES], 50.0, 0.9, 0.0, [0.0, 0.0, 1.0]),
            ([MASSES], float("inf"), 0.9, 0.0, [0.0, 0.0, 1.0]),
            # Means 0.1 and 0: the whole distribution of the lower, not the smaller of each.
            ([[0.45, 0.0, 0.55], [0.0, 1.0, 0.0]], 0.0, 1.0, 0.0, [0.0, 1.0, 0.0]),
        ],
    )  # fmt: skip
    def test_mass_goes_to_the_atoms_beside_its_return(
        self, next_probabilities, reward, discount, bonus, expected
    ):
        target = categories().target(
            logits(*next_probabilities), row(reward), row(discount), row(bonus), TargetRule.min
        )
        tolerance = 1e-6 if abs(reward) < 50 else None  # at an edge only that of `approx`
        if discount:
            expected = pytest.approx(expected, abs=tolerance)
        assert target.tolist()[0] == expected

    def test_atoms_exactly_at_integer_positions_keep_all_their_mass(self):
        # The neighbours of a whole number coincide: shares of (upper - b) and (b - lower) would
        # both be nothing, and the mass would be lost.
        mass = torch.rand(4, 51, generator=torch.Generator().manual_seed(0)).softmax(-1)
        values = categories(51, low=-5.0, high=5.0)
        for spacings in (0, 1, 7, -3):
            shift = torch.full((4,), 0.2 * spacings)
            projected = values.project(mass, shift, torch.ones(4))
            expected = torch.zeros(4, 51)
            for k in range(51):
                expected[:, min(max(k + spacings, 0), 50)] += mass[:, k]
            torch.testing.assert_close(projected, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("rule", TargetRule)
    @pytest.mark.parametrize("scale", SCALES)
    def test_projection_loss_and_gradient_equal_double_precision(self, rule, scale):
        values, drawn = categories(ATOMS, -10, 10), draws(scale)
        target = values.target(**drawn, rule=rule)
        expected = categorical_target(**drawn, rule=rule, low=-10.0, high=10.0)
        assert relative_error(target, expected) < 1e-5

        generator = torch.Generator().manual_seed(8)
        output = torch.randn(2, ROWS, ATOMS, generator=generator).requires_grad_()
        weight = torch.rand(ROWS, generator=generator)
        loss = values.loss(output, target, weight)
        loss.backward()
        double = output.detach().double().requires_grad_()
        log_probability = double - double.exp().sum(-1, keepdim=True).log()
        cross = -(expected * log_probability).sum(-1)  # (E, B)
        reference = sum(((member * weight.double()).mean() for member in cross), torch.zeros(()))
        reference.backward()
        assert loss.item() == pytest.approx(reference.item(), rel=1e-5)
        assert output.grad is not None
        assert double.grad is not None
        assert relative_error(output.grad, double.grad) < 1e-5

    def test_the_error_is_zero_where_the_prediction_is_right_however_random(self):
        values = categories()
        right, wrong = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
        target = torch.tensor([right])
        assert values.error(logits(right, right), target).tolist() == pytest.approx([0], abs=1e-6)
        divergence = sum(p * math.log(p / q) for p, q in zip(right, wrong, strict=True))
        got = values.error(logits(right, wrong), target)
        assert got.tolist() == pytest.approx([divergence / 2], abs=1e-6)

    def test_a_nan_reaches_the_loss_and_no_other_row(self):
        values, drawn = categories(ATOMS, -10, 10), draws(1.0)
        clean = values.target(**drawn, rule=TargetRule.min)
        drawn["reward"][5] = float("nan")
        target = values.target(**drawn, rule=TargetRule.min)
        assert not target[5].isfinite().all()
        others = torch.arange(ROWS) != 5
        assert torch.equal(target[others], clean[others])
        assert values.loss(drawn["output"], target, torch.ones(ROWS)).isnan()


class TestScalars:
    OUTPUT = torch.tensor([[[1.0], [4.0]], [[3.0], [2.0]]])  # (2, 2, 1)

    @pytest.mark.parametrize(
        ("rule", "value"),
        [
            (TargetRule.min, [1.0, 2.0]),
            (TargetRule.mean, [2.0, 3.0]),
            (TargetRule.own, [[1.0, 4.0], [3.0, 2.0]]),
        ],
    )
    def test_the_target_is_reward_plus_discounted_value_and_bonus(self, rule, value):
        reward, discount = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 0.0])
        bonus = torch.tensor([0.5, 100.0])  # the second row has no future
        target = ScalarValues().target(self.OUTPUT, reward, discount, bonus, rule)
        expected = reward + discount * (torch.tensor(value) + bonus)
        torch.testing.assert_close(target, expected)

    def test_the_loss_is_the_mean_over_rows_and_the_sum_over_members(self):
        target, weight = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.5])
        # members: errors (-1, 3) and (1, 1); weighted squares (1, 4.5) and (1, 0.5)
        loss = ScalarValues().loss(self.OUTPUT, target, weight)
        assert float(loss) == pytest.approx((1 + 4.5) / 2 + (1 + 0.5) / 2)

    def test_the_error_is_absolute_and_averaged_over_members(self):
        error = ScalarValues().error(self.OUTPUT, torch.tensor([2.0, 1.0]))
        assert error.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("config", [ValueConfig(), ValueConfig(atoms=11)])
def test_low_precision_outputs_are_computed_on_in_full_precision(config):
    values = make_values(config, CPU)
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(2, 8, values.width, generator=generator).bfloat16()
    zeros = torch.zeros(8)
    with torch.autocast("cpu", torch.bfloat16):
        target = values.target(output, zeros, torch.ones(8), zeros, TargetRule.min)
        loss = values.loss(output, target, torch.ones(8))
        mean = values.expectation(output)
    assert {target.dtype, loss.dtype, mean.dtype} == {torch.float32}
    assert torch.equal(mean, values.expectation(output.float()))


def test_no_target_carries_a_gradient():
    for config in (ValueConfig(), ValueConfig(atoms=5)):
        values = make_values(config, CPU)
        output = torch.ones(2, 4, values.width, requires_grad=True)
        target = values.target(output, torch.ones(4), torch.ones(4), torch.ones(4), TargetRule.own)
        assert not target.requires_grad
        assert not values.error(output, target).requires_grad
