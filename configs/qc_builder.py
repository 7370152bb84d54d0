"""The learner of Q-chunking from typed configs: a flow of chunks, critics of chunks, the queue."""

from dataclasses import dataclass, field

import torch

from configs.learner_builders import surroundings
from policies.bases.best_chunk import BestChunk
from policies.bases.flow import FlowPolicy, FlowPolicyConfig
from policies.bases.queued import QueuedPolicy
from policies.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.env import EnvSpec
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.offline.qc import QC, QCConfig
from robot_rl.learners.optimization import Reduce


@dataclass(kw_only=True)
class QCLearnerConfig(QCConfig):
    """Q-chunking and the networks that are handed to it."""

    actor: FlowPolicyConfig = field(default_factory=FlowPolicyConfig)
    """Velocity network of the proposals."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Value networks of chunks; they choose on the robot too, and so see what the actor sees."""


def build_qc(
    config: QCLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> QC:  # fmt: skip
    """Q-chunking for an environment."""
    torch.manual_seed(derive_seed(seed, "initial weights"))
    length, width = config.chunk_length, spec.groups["actor"].shape[0]
    actor = FlowPolicy(config.actor, width, spec.action_size, length)
    critic = QEnsemble(config.critic, "actor", width, length * spec.action_size)
    chooser = BestChunk(actor, critic, config.candidates)

    def queued(network: BestChunk) -> BestChunk | QueuedPolicy:
        if length == 1:
            return network
        return QueuedPolicy(
            network, chunk_length=length, replan_interval=config.replan_interval
        )  # fmt: skip

    return QC(
        config, actor, critic, chooser, wrap=queued,
        **surroundings(spec, seed, stream_seed, reduce),
    )  # fmt: skip
