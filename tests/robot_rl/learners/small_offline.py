"""Small learners of stored experience, and batches that have what they ask for."""

from dataclasses import replace
from typing import Any

import torch

from policies.networks.deterministic_actor import NormalActorConfig
from policies.networks.flow import FlowPolicyConfig
from policies.networks.mlp import Activation
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec
from robot_rl.core.transition import Batch
from robot_rl.learners.cql import CQL, MONTE_CARLO, CQLConfig, CQLPenaltyConfig
from robot_rl.learners.h2o import H2O, H2OConfig, H2OPenaltyConfig
from robot_rl.learners.iql import IQL, IQLConfig
from robot_rl.learners.qc import QC, QCConfig
from robot_rl.learners.sac import TargetConfig
from tests.fakes import GAUSSIAN, HIDDEN, LinearWorld, ToyEnv, random_batch, small_learner

ROWS = 16
SETTINGS: dict[str, Any] = {
    "batch_size": ROWS, "target": TargetConfig(entropy=False), "init_temperature": 0.5,
}  # fmt: skip
CONSERVATIVE = {"weight": 5.0, "actions": 3, "next_actions": 1}
small_cql: Any = small_learner(
    CQL, CQLConfig, {**GAUSSIAN, "conservatism": (CQLPenaltyConfig, CONSERVATIVE)}, **SETTINGS
)
GAP = {"weight": 0.5, "successors": 3}
small_h2o: Any = small_learner(
    H2O, H2OConfig, {**GAUSSIAN, "dynamics_gap": (H2OPenaltyConfig, GAP)}, **SETTINGS
)
small_iql = small_learner(
    IQL, IQLConfig,
    {
        **GAUSSIAN, "actor": (NormalActorConfig, HIDDEN),
        "value": (QEnsembleConfig, {**HIDDEN, "members": 1}),
    },
    batch_size=ROWS,
)  # fmt: skip
FLOW = {**HIDDEN, "steps": 2, "activation": Activation.silu}
small_qc = small_learner(  # plans anew in every step
    QC, QCConfig, {**GAUSSIAN, "actor": (FlowPolicyConfig, FLOW)},
    batch_size=ROWS, chunk_length=3, replan_interval=1, candidates=4, next_candidates=3,
)  # fmt: skip


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


def warmed(make: Any, *, updates: int = 3, **settings: Any) -> tuple[Any, EnvSpec]:
    """A learner whose normalisers have statistics and whose targets lag behind."""
    env = ToyEnv(LinearWorld(), 32)
    env.reset(seed=0)
    learner = make(env.spec, **{"tau": 0.5, **settings})
    for seed in range(updates):
        learner.observe(env.step(torch.ones(32, 2)))
        learner.update(chunked(env.spec, seed=9 + seed))
    return learner, env.spec
