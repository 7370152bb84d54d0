"""Small learners of stored experience, and batches that have what they ask for."""

from dataclasses import replace
from typing import Any

import torch

from policies.networks.deterministic_actor import NormalActorConfig
from policies.networks.flow import FlowPolicyConfig
from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.mlp import Activation
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec
from robot_rl.core.transition import Batch
from robot_rl.learners.cql import CQL, MONTE_CARLO, CQLConfig, CQLPenaltyConfig
from robot_rl.learners.h2o import H2O, H2OConfig, H2OPenaltyConfig
from robot_rl.learners.iql import IQL, IQLConfig
from robot_rl.learners.qc import QC, QCConfig
from robot_rl.learners.sac import TargetConfig
from tests.fakes import LinearWorld, ToyEnv, random_batch

ROWS = 16
SETTINGS: dict[str, Any] = {
    "batch_size": ROWS, "target": TargetConfig(entropy=False), "init_temperature": 0.5,
}  # fmt: skip


def small_cql(
    spec: EnvSpec, seed: int = 0, *, critic: dict[str, Any] | None = None,
    conservatism: dict[str, Any] | None = None, actor: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:  # fmt: skip
    """SAC with a conservative penalty; networks of sixteen units."""
    config = CQLConfig(
        **(SETTINGS | settings),
        actor=GaussianActorConfig(hidden=[16], **(actor or {})),
        critic=QEnsembleConfig(**{"hidden": [16], **(critic or {})}),
        conservatism=CQLPenaltyConfig(
            **{"weight": 5.0, "actions": 3, "next_actions": 1, **(conservatism or {})}
        ),
    )
    return CQL(config, spec, seed=seed)


def small_h2o(
    spec: EnvSpec, seed: int = 0, *, dynamics_gap: dict[str, Any] | None = None,
    actor: dict[str, Any] | None = None, critic: dict[str, Any] | None = None, **settings: Any,
) -> Any:  # fmt: skip
    """SAC with the weights and the penalty of H2O; networks of sixteen units."""
    config = H2OConfig(
        **(SETTINGS | settings),
        actor=GaussianActorConfig(hidden=[16], **(actor or {})),
        critic=QEnsembleConfig(hidden=[16], **(critic or {})),
        dynamics_gap=H2OPenaltyConfig(**{"weight": 0.5, "successors": 3, **(dynamics_gap or {})}),
    )
    return H2O(config, spec, seed=seed)


def small_iql(spec: EnvSpec, seed: int = 0, **settings: Any) -> IQL:
    """IQL with networks of sixteen units."""
    shapes: dict[str, Any] = {
        "actor": NormalActorConfig(hidden=[16], **settings.pop("actor", {})),
        "critic": QEnsembleConfig(hidden=[16], **settings.pop("critic", {})),
        "value": QEnsembleConfig(hidden=[16], members=1, **settings.pop("value", {})),
    }
    config = IQLConfig(**{"batch_size": ROWS, **settings}, **shapes)
    return IQL(config, spec, seed=seed)


def small_qc(spec: EnvSpec, seed: int = 0, **settings: Any) -> QC:
    """Q-chunking with networks of sixteen units, which plans anew in every step."""
    shapes: dict[str, Any] = {
        "actor": FlowPolicyConfig(
            **{"hidden": [16], "steps": 2, "activation": Activation.silu}
            | settings.pop("actor", {})
        ),
        "critic": QEnsembleConfig(**{"hidden": [16]} | settings.pop("critic", {})),
    }
    fields = {
        "batch_size": ROWS, "chunk_length": 3, "replan_interval": 1, "candidates": 4,
        "next_candidates": 3,
    }  # fmt: skip
    return QC(QCConfig(**(fields | settings), **shapes), spec, seed=seed)


def chunked(spec: EnvSpec, rows: int = ROWS, seed: int = 0, length: int = 3) -> Batch:
    """`stored` with chunks, of which every fourth is cut after one action, or after two."""
    generator = torch.Generator().manual_seed(seed + 200)
    chunk = torch.rand(rows, length, spec.action_size, generator=generator) * 2 - 1
    valid = torch.ones(rows, length, dtype=torch.bool)
    valid[::4, 1:] = False
    valid[1::4, 2:] = False
    batch = stored(spec, rows, seed)
    return replace(batch, extra={**batch.extra, "chunk": chunk, "valid": valid})


def stored(spec: EnvSpec, rows: int = ROWS, seed: int = 0) -> Batch:
    """A batch with the returns that were reached, unknown in one row, and unequal weights."""
    generator = torch.Generator().manual_seed(seed + 100)
    reached = torch.randn(rows, generator=generator)
    reached[0] = -torch.inf
    weight = torch.tensor([0.5, 2.0, 1.0, 1.5]).repeat(rows // 4)
    batch = random_batch(spec, rows, seed)
    return replace(
        batch, weight=weight, extra={MONTE_CARLO: reached, "source": torch.arange(rows) % 2}
    )


def warmed(make: Any, **settings: Any) -> tuple[Any, EnvSpec]:
    """A learner whose normalisers have statistics and whose targets lag behind."""
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=0)
    learner = make(env.spec, **{"tau": 0.5, **settings})
    for seed in range(3):
        learner.observe(env.step(torch.ones(32, 2)))
        learner.update(chunked(env.spec, seed=9 + seed))
    return learner, env.spec
