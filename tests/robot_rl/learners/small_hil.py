"""Small learners for learning with people, and batches that have what they ask for."""

from dataclasses import replace
from typing import Any

import torch

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.flow import FlowPolicyConfig
from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.gripper import GripperConfig
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.residual import ResidualActorConfig
from robot_rl.core.env import EnvSpec
from robot_rl.core.transition import Batch
from robot_rl.learners.expo import EXPO, EXPOConfig
from robot_rl.learners.hil_serl import HILSERL, HILSERLConfig
from robot_rl.learners.silri import SiLRI, SiLRIConfig
from tests.fakes import GAUSSIAN, HIDDEN, small_learner
from tests.robot_rl.learners.small_offline import FLOW, ROWS, chunked

SCORER = {"network": QEnsembleConfig(**{**HIDDEN, "members": 1})}
small_hil_serl: Any = small_learner(
    HILSERL, HILSERLConfig, {**GAUSSIAN, "gripper": (GripperConfig, SCORER)}, batch_size=ROWS
)

small_silri: Any = small_learner(
    SiLRI, SiLRIConfig,
    {
        **GAUSSIAN, "actor": (DeterministicActorConfig, HIDDEN),
        "expert": (GaussianActorConfig, HIDDEN), "gripper": (GripperConfig, SCORER),
        "multiplier": (QEnsembleConfig, {**HIDDEN, "members": 1}),
    },
    batch_size=ROWS,
)  # fmt: skip
small_expo: Any = small_learner(  # plans anew in every step
    EXPO, EXPOConfig,
    {
        "actor": (FlowPolicyConfig, FLOW), "critic": (QEnsembleConfig, {**HIDDEN, "members": 4}),
        "edit": (ResidualActorConfig, {**HIDDEN, "initial_std": 0.2, "layer_norm": False}),
    },
    batch_size=ROWS, candidates=3, next_candidates=3,
)  # fmt: skip


def with_people(spec: EnvSpec, rows: int = ROWS, seed: int = 0) -> Batch:
    """`chunked`, in which a person acted in every third row; every second is stored experience."""
    batch = chunked(spec, rows, seed)
    return replace(batch, extra={**batch.extra, "intervened": torch.arange(rows) % 3 == 0})
