"""Train with a learner of your own, which lies in this file: DDPG (arXiv:1509.02971)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from configs.compose import compose
from configs.schema import make_env
from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.learner import Learner
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.networks import deterministic_actor, make_critic, seed_weights
from robot_rl.learners.off_policy import OffPolicyConfig, OffPolicyLearner
from robot_rl.training.collector import Collector


@dataclass(kw_only=True)
class DDPGConfig(OffPolicyConfig):
    """Step sizes, discount and batch size are fields of `OffPolicyConfig`."""

    noise: float = 0.1
    """Standard deviation of the exploration noise."""
    actor: DeterministicActorConfig = field(
        default_factory=lambda: DeterministicActorConfig(hidden=[32])
    )
    critic: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(hidden=[32], members=1))


class DDPG(OffPolicyLearner):
    """One critic, one deterministic actor, slowly moving copies of both."""

    estimation = None

    def __init__(self, config: DDPGConfig, spec: EnvSpec, *, seed: int, **shared: Any) -> None:
        """Make networks and targets; `shared` joins the processes of a run of several."""
        self.config = config
        seed_weights(seed)
        self.actor, self.critic = (
            deterministic_actor(config.actor, spec),
            make_critic(config.critic, spec),
        )
        super().__init__(config, spec, self.actor, self.critic, seed=seed, **shared)
        self.target_actor, self.target_critic = moving_copy(self.actor), moving_copy(self.critic)

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        action = self.actor(obs)
        if explore:
            noise = torch.randn(action.shape, generator=self.generator, device=self.device)
            action = (action + self.config.noise * noise).clamp(-1, 1)
        return action

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """A step of the critic, one of the actor, and of their copies."""
        self.updates += 1
        return self.finish(self.cuda_graphs.run(self._step, batch), batch)

    def _step(self, batch: Batch) -> UpdateResult:
        with self.train_mode(batch) as batch:
            with torch.no_grad():  # time limits and n-step returns are resolved in the discount
                following = self.target_critic(batch.next_obs, self.target_actor(batch.next_obs))
                target = batch.reward + batch.discount * following[0, :, 0]
            error = self.critic(batch.obs, batch.action)[0, :, 0] - target  # (B,)
            critic_loss = (batch.weight * error.square()).mean()
            self.critic_optimizer.step(critic_loss)
            value = self.critic(batch.obs, self.actor(batch.obs))[0, :, 0]  # (B,)
            actor_loss = -(batch.weight * value).mean()
            self.actor_optimizer.step(actor_loss)
            for copy, network in (
                (self.target_actor, self.actor),
                (self.target_critic, self.critic),
            ):
                soft_update([*copy.parameters()], [*network.parameters()], self.config.tau)
        metrics = {"critic_loss": critic_loss.detach()}
        return UpdateResult(metrics, {"actor_loss": actor_loss.detach()}, error.detach().abs())

    def _parts(self) -> dict[str, Any]:
        return {
            **super()._parts(), "target_actor": self.target_actor,
            "target_critic": self.target_critic,
        }  # fmt: skip


if __name__ == "__main__":
    # 1. `Learner` says what a learner must have; tests/contracts/learner.py what it must keep.
    config = compose(["task=hover"]).config
    env = make_env(config, num_envs=16, device=torch.device("cpu"), seed=0, evaluation=False)
    learner: Learner = DDPG(DDPGConfig(batch_size=32), env.spec, seed=0)
    # 2. Steps and updates in turn; a trainer adds evaluation, checkpoints and resuming.
    replay = ReplayBuffer(
        env.spec, (*learner.actor_groups, *learner.critic_groups), capacity=3200,
        gamma=learner.gamma, n_step=learner.n_step, seed=0,
    )  # fmt: skip
    collector = Collector(env, learner, replay, random_steps=320, seed=0)
    collector.start()
    for step in range(200):
        collector.collect()
        if step >= 40:
            metrics, _ = learner.update(replay.sample(learner.samples_per_update))
            if step % 40 == 0:
                print(f"step {step}: " + ", ".join(f"{k} {v:.3f}" for k, v in metrics.items()))
