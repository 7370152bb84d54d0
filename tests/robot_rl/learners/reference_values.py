"""Targets of categorical values in double precision, by the dense form of the projection."""

import torch
from torch import Tensor

from robot_rl.learners.values import TargetRule


def categorical_target(
    output: Tensor, reward: Tensor, discount: Tensor, bonus: Tensor, rule: TargetRule,
    low: float, high: float,
) -> Tensor:  # fmt: skip
    """Projection in double precision by the triangular kernel: (B, K), or (E, B, K) with `own`."""
    atoms = output.shape[-1]
    z = low + (high - low) / (atoms - 1) * torch.arange(atoms, dtype=torch.float64)
    probability = output.double().exp() / output.double().exp().sum(-1, keepdim=True)
    moved = (reward.double() + discount.double() * bonus.double())[:, None]
    moved = (moved + discount.double()[:, None] * z).clamp(low, high)  # (B, K)
    distance = (moved[:, :, None] - z).abs() * (atoms - 1) / (high - low)  # (B, K, K)
    projected = torch.einsum("mbk,bkj->mbj", probability, (1 - distance).clamp_min(0))
    if rule is TargetRule.own:
        return projected
    if rule is TargetRule.mean:
        return projected.mean(0)
    means = (probability * z).sum(-1)  # (M, B)
    return torch.stack([projected[int(means[:, b].argmin()), b] for b in range(len(reward))])
