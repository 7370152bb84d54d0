"""FlashSAC with networks of sixteen units."""

from collections.abc import Mapping
from typing import Any

import torch

from policies.gaussian_actor import GaussianActor, GaussianActorConfig, LogStdBound
from policies.q_ensemble import QEnsemble, QEnsembleConfig
from policies.trunks.kinds import NetworkKind
from robot_rl.core.env import EnvSpec
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig
from robot_rl.learners.values import ValueConfig, make_values


def small_flash_sac(
    spec: EnvSpec, seed: int = 0, *, actor: Mapping[str, Any] | None = None,
    critic: Mapping[str, Any] | None = None, **settings: Any,
) -> FlashSAC:  # fmt: skip
    """Settings as in its config; actor and critic as in theirs."""
    group = "critic" if "critic" in spec.groups else "actor"
    torch.manual_seed(seed)
    flash = {"kind": NetworkKind.flash, "width": 16, "blocks": 1, "normalize": False}
    bounds = {"log_std_min": -10.0, "log_std_bound": LogStdBound.tanh}
    values = ValueConfig(atoms=21, low=-5.0, high=5.0)
    config = FlashSACConfig(**{"batch_size": 16, "values": values, **settings})
    return FlashSAC(
        config,
        GaussianActor(
            GaussianActorConfig(**{**flash, **bounds, **(actor or {})}),
            spec.groups["actor"].shape[0], spec.action_size,
        ),
        QEnsemble(
            QEnsembleConfig(**{**flash, **(critic or {})}), group, spec.groups[group].shape[0],
            spec.action_size, outputs=make_values(config.values, spec.device).width,
        ),
        action_size=spec.action_size, device=spec.device, seed=seed,
    )  # fmt: skip
