"""Steps of Adam by hand: schedules, decay, whose gradients, whose step size."""

import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robot_rl.learners.off_policy import OffPolicyConfig
from robot_rl.learners.optimization import (
    Optimizer,
    Precision,
    ScheduleConfig,
    warn_without_bf16_units,
)
from tests.fakes import copied

LR = 0.1


def weights(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


def optimizer(params: list[nn.Parameter], made: dict[str, Any] | None = None, **config: Any):
    return Optimizer(params, LR, OffPolicyConfig(**config), **(made or {}))


def strides(w: nn.Parameter, adam: Optimizer, count: int) -> list[float]:
    """How far each of so many steps down a slope of 1 goes: Adam's rate, as all slopes agree."""
    found = []
    for _ in range(count):
        before = float(w.detach())
        adam.step(w.sum())
        found.append(before - float(w.detach()))
    return found


def test_the_step_size_falls_by_half_a_cosine_and_stays_at_its_end():
    w = weights(1.0)
    adam = optimizer([w], lr_schedule=ScheduleConfig(decay=4, end=0.2))
    shares = [0.2 + 0.4 * (1 + math.cos(math.pi * min(step / 4, 1))) for step in range(6)]
    assert strides(w, adam, 6) == pytest.approx([LR * share for share in shares], rel=1e-4)
    assert shares[4:] == [0.2, 0.2]


def test_the_step_size_rises_from_nothing_where_it_warms_up():
    w, other = weights(1.0), weights(1.0)
    assert strides(w, optimizer([w], lr_schedule=ScheduleConfig(warmup=2)), 4) == pytest.approx(
        [0.0, LR / 2, LR, LR], rel=1e-4
    )
    cold = optimizer([other], {"warm_up": False}, lr_schedule=ScheduleConfig(warmup=2))
    assert strides(other, cold, 1) == pytest.approx([LR], rel=1e-4)


def test_a_schedule_follows_the_learner_through_phases_of_other_intervals():
    w, other = weights(1.0), weights(1.0)
    adam, again = (
        optimizer([one], lr_schedule=ScheduleConfig(decay=4, end=0.0)) for one in (w, other)
    )
    adam.interval = 1
    first = strides(w, adam, 2)
    adam.interval = 2
    assert first + strides(w, adam, 1) == pytest.approx(
        [LR * 0.5 * (1 + math.cos(math.pi * step / 4)) for step in (0, 1, 2)], rel=1e-4
    )
    again.load_state_dict(copied(adam.state_dict()))  # four updates are over in three steps
    assert strides(other, again, 1) == pytest.approx([0.0], abs=1e-6)


@pytest.mark.parametrize(("counted", "interval", "steps"), [(False, 2, 2), (True, 4, 4)])
def test_a_schedule_that_is_new_goes_by_the_updates_that_were_done(counted, interval, steps):
    """A state of before updates were counted tells its steps, of which each is some updates."""
    w, other = weights(1.0), weights(1.0)
    plain = optimizer([w])
    again = optimizer([other], {"interval": interval}, lr_schedule=ScheduleConfig(decay=8, end=0.0))
    strides(w, plain, steps)
    state = copied(plain.state_dict())
    if not counted:
        del state["updates"]
    again.load_state_dict(state)
    assert strides(other, again, 1) == pytest.approx([LR / 2], rel=1e-4)


@pytest.mark.parametrize(("before", "now"), [(0.3, 0.0), (0.0, 0.3)])
def test_decay_and_constants_stay_as_configured_after_a_load(before, now):
    """A run that begins with another's learner may be told otherwise."""
    w, other = weights(2.0), weights(2.0)
    adam = optimizer([w], weight_decay=before, adam_betas=[0.5, 0.9])
    adam.step((w * 0.0).sum())
    again = optimizer([other], weight_decay=now)
    again.load_state_dict(copied(adam.state_dict()))
    for _ in range(2):
        again.step((other * 0.0).sum())
    assert other.item() == pytest.approx(2.0 * (1 - LR * now) ** 2)
    (group,) = again.state_dict()["param_groups"]
    assert (group["betas"], group["weight_decay"]) == ((0.9, 0.999), now)


def test_other_leaves_of_the_loss_get_no_gradient():
    w, other = weights(1.0), weights(1.0)
    optimizer([w]).step((w * other).sum())
    assert w.grad is not None
    assert other.grad is None


def test_gradients_are_joined_before_they_are_clipped_and_weights_projected_last():
    w = weights(3.0, 4.0)
    seen: list[Tensor] = []

    def reduce(params: Any) -> None:
        for p in params:
            p.grad.mul_(2.0)

    def project() -> None:
        seen.append(w.detach().clone())
        w.data /= w.data.norm()

    adam = optimizer([w], {"reduce": reduce, "after_step": project}, max_grad_norm=1.0)
    adam.step((w * torch.tensor([3.0, 4.0])).sum())
    assert w.grad is not None
    torch.testing.assert_close(w.grad, torch.tensor([0.6, 0.8]), rtol=1e-5, atol=0)
    assert float(seen[0].norm()) != pytest.approx(1.0)
    assert float(w.detach().norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_every_step_is_that_of_torch_bit_for_bit_also_after_a_load(decay):
    ours, theirs = ([weights(1.0, -2.0), weights(0.5)] for _ in range(2))
    mine = optimizer(ours, weight_decay=decay)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    plain = kind(theirs, LR, weight_decay=decay, fused=True)
    for step in range(6):
        if step == 3:
            state = copied(mine.state_dict())
            mine = optimizer(ours, weight_decay=decay)
            mine.load_state_dict(state)
        mine.step(torch.cat([(w - step) ** 3 for w in ours]).sum())
        plain.zero_grad()
        torch.cat([(w - step) ** 3 for w in theirs]).sum().backward()
        plain.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(mine.state_dict()["state"][0]["step"], plain.state[b]["step"])
        assert a.grad is not None


def test_a_parameter_that_the_loss_does_not_reach_stays_where_it_is():
    moved, idle = weights(1.0), weights(1.0)
    adam = optimizer([moved, idle])
    for _ in range(3):
        moved.grad, idle.grad = torch.ones(1), None
        adam.descend()
    assert float(moved.detach()) == pytest.approx(1.0 - 3 * LR, rel=1e-5)
    assert float(idle.detach()) == 1.0


@pytest.fixture
def said_anew() -> Iterator[None]:
    warn_without_bf16_units.cache_clear()
    yield
    warn_without_bf16_units.cache_clear()


@pytest.mark.usefixtures("said_anew")
@pytest.mark.parametrize(
    ("known", "precision", "said"),
    [
        ({"architecture": "x86_64", "cpu_name": "Old 7"}, Precision.bf16, 1),
        ({"architecture": "x86_64", "cpu_name": "Old 7"}, Precision.fp32, 0),
        ({"architecture": "x86_64", "avx512_bf16": True}, Precision.bf16, 0),
        ({"architecture": "aarch64"}, Precision.bf16, 0),
    ],
)
def test_bf16_without_units_for_it_is_said_once(known, precision, said, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            optimizer([weights(1.0)], precision=precision)
    assert len(caplog.messages) == said
    assert all("Old 7" in message and "fp32" in message for message in caplog.messages)
