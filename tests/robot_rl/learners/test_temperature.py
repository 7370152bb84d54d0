"""The temperature: four losses with one fixed point, and what they differ in."""

import math

import pytest
import torch

from robot_rl.learners.off_policy import MaximumEntropyConfig, Temperature, TemperatureLoss
from tests.fakes import CPU

TRAINED = [TemperatureLoss.alpha, TemperatureLoss.log_alpha, TemperatureLoss.softplus]
ONES = torch.ones(4)


def temperature(
    loss: TemperatureLoss, start: float = 0.2, per_action: float = -1.0, lr: float = 1e-2
) -> Temperature:
    config = MaximumEntropyConfig(
        temperature_loss=loss, init_temperature=start, target_entropy_per_action=per_action,
        temperature_lr=lr,
    )  # fmt: skip
    return Temperature(config, target_entropy=config.target_entropy(3), device=CPU)


@pytest.mark.parametrize("loss", TemperatureLoss)
@pytest.mark.parametrize("start", [1e-3, 200.0])
def test_it_starts_where_it_is_told(loss, start):
    assert float(temperature(loss, start).value()) == pytest.approx(start, rel=1e-5)


@pytest.mark.parametrize("loss", TRAINED)
def test_it_falls_above_the_target_entropy_rises_below_and_rests_at_it(loss):
    for entropy, sign in ((-1.0, -1), (-5.0, 1), (-3.0, 0)):  # target: three actions times -1
        alpha = temperature(loss)
        alpha.step(-entropy * ONES, ONES)
        change = float(alpha.value()) - 0.2
        assert change * sign > 0 if sign else change == pytest.approx(0.0, abs=2e-7)


@pytest.mark.parametrize(
    ("loss", "slope"),
    [
        (TemperatureLoss.alpha, 0.2),  # d exp(x) / dx = alpha
        (TemperatureLoss.log_alpha, 1.0),
        (TemperatureLoss.softplus, 1 - math.exp(-0.2)),  # sigmoid of the inverse of softplus
    ],
)
def test_the_gradient_goes_through_alpha_its_logarithm_or_softplus(loss, slope):
    alpha = temperature(loss)
    alpha.step(torch.tensor([1.0, 2.0, 3.0, 5.0]), torch.tensor([1.0, 1.0, 0.0, 2.0]))
    surplus = ((-1 + 3) + (-2 + 3) + 2 * (-5 + 3)) / 4
    assert alpha.parameter.grad is not None
    assert float(alpha.parameter.grad) == pytest.approx(slope * surplus, rel=1e-5)


def test_a_fixed_temperature_stays_where_its_config_says():
    donor, heir = temperature(TemperatureLoss.softplus, 5.0), temperature(TemperatureLoss.fixed)
    for _ in range(3):
        heir.step(-100.0 * ONES, ONES)
    assert float(heir.value()) == pytest.approx(0.2, rel=1e-6)
    heir.load_state_dict(donor.state_dict())
    assert float(heir.value()) == pytest.approx(0.2)


def test_decay_of_weights_and_clipping_are_for_networks_not_for_the_temperature():
    config = MaximumEntropyConfig(
        init_temperature=1e-3, temperature_lr=0.1, weight_decay=1.0, max_grad_norm=1e-6
    )
    alpha = Temperature(config, target_entropy=config.target_entropy(3), device=CPU)
    alpha.step(3.0 * ONES, ONES)  # at the target: decay would pull log(alpha) towards 0
    assert float(alpha.value()) == pytest.approx(1e-3, rel=1e-6)
    alpha.step(4.0 * ONES, ONES)
    assert alpha.parameter.grad is not None
    assert abs(float(alpha.parameter.grad)) == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize("before", TemperatureLoss)
@pytest.mark.parametrize("after", TRAINED)
def test_the_state_of_another_loss_is_taken_over_at_the_same_temperature(before, after):
    donor, heir = temperature(before, start=5.0), temperature(after)
    donor.step(4 * ONES, ONES)
    heir.load_state_dict(donor.state_dict())
    assert float(heir.value()) == pytest.approx(float(donor.value()), rel=1e-5)
    soft = TemperatureLoss.softplus
    means = heir.state_dict()["optimizer"]["state"]
    kept = before is not TemperatureLoss.fixed and (before is soft) == (after is soft)
    assert bool(means) == kept  # Adam's means are those of the parameter
    heir.step(4 * ONES, ONES)
    assert math.isfinite(float(heir.value()))
