"""Steps the environment with the learner and stores what happened."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep, Obs
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.training.ranks import Ranks

WEIGHT_CHANGE = "rollout/reward_weight_change"
"""Metric: how far a curriculum has moved the reward weights; returns before and after differ."""


class Collector:
    """One `collect` is one step of all N envs. Episode statistics stay on the device."""

    def __init__(
        self,
        env: BatchEnv,
        learner: Learner,
        replay: ReplayBuffer,
        *,
        random_steps: int,
        seed: int,
        ranks: Ranks | None = None,
        set_global_step: Callable[[int], None] | None = None,
    ) -> None:
        """Join the parts; `start` or `load_state_dict` must come before the first `collect`.

        Args:
            set_global_step: Tells the envs how far the run is, all ranks together, before each
                step; None where nothing in them depends on it.
        """
        self.env, self.replay = env, replay
        self._learner, self._seed = learner, seed
        self._random_steps = random_steps
        self._ranks = ranks or Ranks()
        self._set_global_step = set_global_step
        self._spec = spec = env.spec
        self._generator = torch.Generator(device=spec.device)
        self._generator.manual_seed(derive_seed(seed, "random actions"))
        self._obs: Obs = {}
        self._return = torch.zeros(spec.num_envs, device=spec.device)
        self._length = torch.zeros(spec.num_envs, device=spec.device)
        # episodes, returns, lengths, successes, terminations: sums that forget
        self._ended = torch.zeros(5, device=spec.device)
        self._keep = torch.tensor(1 - 1 / (spec.num_envs + 1), device=spec.device)
        self._invalid = torch.zeros((), dtype=torch.int64, device=spec.device)
        self._reward_weights: Tensor | None = None  # as of the newest step
        self.env_steps = 0
        """Steps taken, of all envs of all ranks together."""
        self.policy_version = self._acting_version = 0
        """Version of the policy that acts, counted by the trainer; stored with every step."""

    def start(self) -> None:
        """Begin the first episodes."""
        self._obs = copied_obs(self.env.reset(seed=self._seed))
        self._learner.begin(torch.ones_like(self._return, dtype=torch.bool))

    def begin_anew(self) -> None:
        """Begin new episodes in the middle of a run, whose envs could not be restored.

        An invalid row between the old and the new episodes keeps n-step returns apart. Those that a
        learner sums for its scale of rewards are not cut: the old episodes' fade in the new ones.
        """
        spec, obs = self._spec, self.env.reset()
        if len(self.replay):
            self.replay.add(self._obs, missing_step(spec, obs, spec.num_envs))
        self._obs = copied_obs(obs)
        self._return.zero_()
        self._length.zero_()
        self._learner.begin(torch.ones_like(self._return, dtype=torch.bool))

    @property
    def exploring_at_random(self) -> bool:
        """True while actions are drawn uniformly."""
        return self.env_steps < self._random_steps

    def collect(self) -> None:
        """Act once in every env and store the step."""
        self.store(self.env.step(self.act()))

    def act(self) -> Tensor:
        """Choose the next action of every env, (N, A); `store` takes the step that it leads to."""
        spec, ranks = self._spec, self._ranks
        self._acting_version = self.policy_version  # updates may come before the step is stored
        if self.exploring_at_random:
            shape = (spec.num_envs, spec.action_size)
            action = torch.rand(shape, generator=self._generator, device=spec.device) * 2 - 1
        else:
            action = self._learner.act(self._obs, explore=True)
        if ranks.count > 1 and self._set_global_step is not None:
            others = spec.num_envs * (ranks.count - 1)
            self._set_global_step(self.env_steps + others)  # they count their own themselves
        return action

    def store(self, step: EnvStep) -> None:
        """Add a step to the replay; the learner and the statistics see it."""
        spec, ranks = self._spec, self._ranks
        self.replay.add(self._obs, step, policy_version=self._acting_version)
        self._learner.observe(ranks.join_step(step) if ranks.count > 1 else step)
        ended = step.terminated | step.truncated
        self._count(step, ended)
        self._learner.begin(ended)
        for name, group in self._obs.items():
            group.copy_(step.obs[name])
        self.env_steps += spec.num_envs * ranks.count

    def statistics(self) -> dict[str, float]:
        """Means over about the last N episodes, newer ones weighing more; waits for all ranks.

        A plain mean over an interval would swing with the envs' common time limit: lost episodes
        end early, and whole ones together. `rollout/invalid_steps` counts all env-steps that
        were dropped since the run began: an env that the engine gave up, a lost sensor.
        """
        sums = torch.cat([self._ended, self._invalid[None]]).double().cpu()
        episodes, total, length, success, terminated, invalid = self._ranks.total(sums).tolist()
        dropped = {"rollout/invalid_steps": invalid, **self._weight_change()}
        if episodes == 0:
            return dropped
        spec = self._spec
        return {
            **dropped,
            "rollout/return": total / episodes,
            "rollout/episode_seconds": length / episodes * spec.control_dt,
            **({"rollout/success": success / episodes} if spec.judges_success else {}),
            "rollout/terminated": terminated / episodes,
        }

    def weighs_as(self, weights: Sequence[float]) -> bool:
        """True if the newest step's rewards had these weights, to 1 % of their sum.

        Args:
            weights: As `EnvSpec.reward_weights`; none count as these.
        """
        now = self._reward_weights
        own = self._spec.reward_weights if now is None else tuple(now.tolist())
        if len(own) != len(weights):
            return True
        return _distance(own, weights) <= 0.01 * sum(map(abs, weights))

    def _weight_change(self) -> dict[str, float]:
        """Distance of the reward weights from the first ones, part of their sum; none unmoved."""
        first, now = self._spec.reward_weights, self._reward_weights
        if not first or now is None:
            return {}
        moved = _distance(now.tolist(), torch.tensor(first).tolist())
        return {WEIGHT_CHANGE: moved / max(sum(map(abs, first)), 1e-9)} if moved else {}

    def state_dict(self) -> dict[str, Any]:
        """Observation to act on, running sums, counter and RNG."""
        return {
            "obs": copied_obs(self._obs),
            "return": self._return.clone(),
            "length": self._length.clone(),
            "ended": self._ended.clone(),
            "invalid": self._invalid.clone(),
            "generator": self._generator.get_state(),
            "world_steps": self.env_steps,
            "policy_version": self.policy_version,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; the environment is restored beside it."""
        device = self._spec.device
        self._obs = {name: group.to(device, copy=True) for name, group in state["obs"].items()}
        self._return.copy_(state["return"])
        self._length.copy_(state["length"])
        self._ended.copy_(state["ended"])
        self._invalid.copy_(state["invalid"])
        self._generator.set_state(state["generator"])
        self.env_steps = int(state["world_steps"])
        self.policy_version = int(state["policy_version"])

    def _count(self, step: EnvStep, ended: Tensor) -> None:
        # An invalid row may hold NaN, which no later product with zero would silence.
        self._invalid += (~step.valid).sum()
        self._reward_weights = step.reward_weights
        self._return += torch.where(step.valid, step.reward, 0.0)
        self._length += step.valid
        rows = [ended, self._return, self._length, step.success, step.terminated]
        sums = torch.stack([row * ended for row in rows]).sum(-1)
        self._ended.mul_(self._keep ** sums[0]).add_(sums)
        self._return *= ~ended
        self._length *= ~ended


def missing_step(spec: EnvSpec, obs: Obs, count: int) -> EnvStep:
    """A step that nobody took, with an `obs` that normalisers may see: nothing in it is valid."""
    device = spec.device
    none = torch.zeros(count, dtype=torch.bool, device=device)
    terms = len(spec.reward_names)
    return EnvStep(
        obs=obs, next_obs=obs, reward=torch.zeros(count, device=device), terminated=none,
        truncated=none, success=none, valid=none, intervened=none,
        action=torch.zeros(count, spec.action_size, device=device),
        reward_terms=torch.zeros(count, terms, device=device) if terms else None,
    )  # fmt: skip


def copied_obs(obs: Obs) -> Obs:
    """Observations that the next step does not overwrite."""
    return {name: group.clone() for name, group in obs.items()}


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(first, second, strict=True))
