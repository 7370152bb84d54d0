"""Batch norm: whose statistics, when, and that they are those of torch."""

import pytest
import torch
from torch import Tensor, nn

from policies.networks.layers import UnitBatchNorm


def rows(count: int, seed: int = 0) -> Tensor:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x * torch.tensor([1.0, 10.0, 0.1, 3.0]) + torch.tensor([0.0, 5.0, -2.0, 1.0])


def trained(members: int | None = None) -> UnitBatchNorm:
    torch.manual_seed(0)
    norm = UnitBatchNorm(members, 4, momentum=0.1)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    return norm


def test_values_gradients_and_running_statistics_are_those_of_torch() -> None:
    ours, theirs = trained(), nn.BatchNorm1d(4, momentum=0.1)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight[0])
        theirs.bias.copy_(ours.bias[0])
    for seed in range(3):
        x, y = rows(32, seed).requires_grad_(), rows(32, seed).requires_grad_()
        torch.testing.assert_close(ours(x), theirs(y), rtol=1e-5, atol=1e-5)
        (ours(x) ** 3).sum().backward()
        (theirs(y) ** 3).sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-3)
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.running_mean[0], theirs.running_mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.running_var[0], theirs.running_var, rtol=1e-5, atol=1e-5)
    theirs.eval()
    with torch.no_grad():
        torch.testing.assert_close(ours(rows(5)), theirs(rows(5)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("frozen", ["no gradients", "evaluation mode"])
def test_without_learning_a_row_does_not_feel_its_neighbours(frozen: str) -> None:
    norm = trained(2)
    norm(rows(64))
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm.train(frozen == "no gradients")
    with torch.set_grad_enabled(frozen != "no gradients"):
        alone, among = norm(rows(64)[:1]), norm(rows(64))
    torch.testing.assert_close(among[:, :1], alone, rtol=0, atol=0)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_one_row_is_no_division_by_zero() -> None:
    norm = trained()
    assert norm(rows(1)).isfinite().all()
    assert norm.running_var.isfinite().all()


def test_statistics_of_half_precision_rows_are_taken_in_float32() -> None:
    norm = trained()
    # In bfloat16 a sum of 512 rows near 100 could not tell them apart.
    x = (100 + torch.linspace(-1, 1, 512)[:, None].expand(512, 4)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = norm(x)
    exact = x.double()
    assert out.dtype is torch.float32
    expected = 0.9 + 0.1 * exact.var(0)
    torch.testing.assert_close(norm.running_var[0].double(), expected, rtol=1e-5, atol=0)
