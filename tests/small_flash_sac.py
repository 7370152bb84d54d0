"""FlashSAC with networks of sixteen units."""

from collections.abc import Mapping
from typing import Any

from policies.networks.gaussian_actor import GaussianActorConfig, LogStdBound
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig
from robot_rl.learners.values import ValueConfig


def small_flash_sac(
    spec: EnvSpec, seed: int = 0, *, actor: Mapping[str, Any] | None = None,
    critic: Mapping[str, Any] | None = None, **settings: Any,
) -> FlashSAC:  # fmt: skip
    """Settings as in its config; actor and critic as in theirs."""
    flash = {"kind": NetworkKind.flash, "width": 16, "blocks": 1, "normalize": False}
    bounds = {"log_std_min": -10.0, "log_std_bound": LogStdBound.tanh}
    values = ValueConfig(atoms=21, low=-5.0, high=5.0)
    config = FlashSACConfig(
        **{"batch_size": 16, "values": values, **settings},
        actor=GaussianActorConfig(**{**flash, **bounds, **(actor or {})}),
        critic=QEnsembleConfig(**{**flash, **(critic or {})}),
    )
    return FlashSAC(config, spec, seed=seed)
