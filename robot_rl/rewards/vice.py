"""A success classifier that learns on while a run goes on: VICE.

What the policy visits are examples of what is no success, and the classifier's own successes stay
the examples of what is one (Fu et al. 2018, arXiv:1805.11686; off-policy as Singh et al. 2019,
arXiv:1904.07854). A policy cannot fool it for long: where it goes for its reward becomes an example
against that. Where it succeeds, frames are examples of both, and the answer there is one half, with
less everywhere else. So the reward is the probability itself, and every minibatch is paid by the
newest classifier, whatever it said when the step was taken. As in the code of Singh et al., the
examples of a minibatch are mixed two by two (mixup, Zhang et al. 2018, arXiv:1710.09412), here
vectors alone.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.optimization import DescentConfig, Optimizer
from robot_rl.rewards.artefact import LearnedReward
from robot_rl.rewards.classifier import member_frames
from robot_rl.rewards.env import Value, ViceConfig


def rows_kept(config: ViceConfig, num_envs: int) -> int:
    """Frames that are kept: whole steps of all envs."""
    return max(config.keep // num_envs, 1) * num_envs


class ViceJudge:
    """A `StepJudge` that learns from what it judges."""

    def __init__(
        self, reward: LearnedReward, config: ViceConfig, num_envs: int, device: torch.device, *,
        seed: int,
    ) -> None:  # fmt: skip
        """Go on from a trained classifier.

        Args:
            reward: The classifier, and frames in which it was shown success.
            config: How it learns on.
            num_envs: N.
            device: Of the frames.
            seed: Of the minibatches.

        Raises:
            ConfigError: It has several stages, or kept no successes.
        """
        if len(reward.stages) > 1:
            raise ConfigError(
                f"reward.vice.interval={config.interval} learns on by frames in which all is "
                f"reached, and the reward has {len(reward.stages)} stages: train one with one label"
            )
        if not reward.examples:
            raise ConfigError(
                f"reward.vice.interval={config.interval} needs the successes that the reward was "
                "trained on, which it did not keep: train it again with robot-rl reward train"
            )
        self.config = config
        self._classifier = copy.deepcopy(reward.classifier).to(device)
        self._classifier.requires_grad_(True)
        self._classifier.temperature.fill_(1.0)  # was found for what it had seen then
        self._classifier.offset.fill_(0.0)
        self._successes = {name: group.to(device) for name, group in reward.examples.items()}
        rows = rows_kept(config, num_envs)
        self._visited = {
            name: torch.zeros(rows, *group.shape[1:], dtype=group.dtype, device=device)
            for name, group in self._successes.items()
        }
        self._whole = torch.zeros(rows, dtype=torch.bool, device=device)
        self._steps = 0
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(derive_seed(seed, "vice"))
        self._optimizer = Optimizer(
            self._classifier.parameters(), config.lr, DescentConfig(), weight_decay=1e-3,
            max_grad_norm=1.0,
        )  # fmt: skip

    @property
    def groups(self) -> tuple[str, ...]:
        """Observation groups that are read."""
        return self._classifier.groups

    def judge(self, obs: Obs) -> Value:
        """Probability of success in the newest frames; sees them as examples against it."""
        frames = self._newest(obs)
        count = len(next(iter(frames.values())))
        at = self._steps % len(self._whole)
        for name, group in frames.items():
            self._visited[name][at : at + count] = group
        whole = torch.ones(count, dtype=torch.bool, device=self._generator.device)
        for name in self._classifier.vectors:  # those of a faulted env may be no numbers
            whole &= frames[name].isfinite().all(-1)
        self._whole[at : at + count] = whole
        lessons = self._steps // self.config.interval
        self._steps += count
        if self._steps // self.config.interval > lessons:
            self._learn()
        probability = self._probability(frames)
        return Value(
            reward=probability, success=probability > 0.5,
            uncertain=torch.zeros_like(probability, dtype=torch.bool),
        )  # fmt: skip

    def begin(self, mask: Tensor) -> None:
        """Nothing is held over several frames."""

    def paid(self, batch: Batch, weight: float) -> Batch:
        """The batch with the rewards that the newest classifier gives for its successors.

        Args:
            batch: B rows of single steps.
            weight: Reward of certain success.
        """
        return replace(batch, reward=weight * self._probability(self._newest(batch.next_obs)))

    def state_dict(self) -> dict[str, Any]:
        """Classifier, optimiser, what was visited, and the random stream."""
        return {
            "classifier": {k: v.clone() for k, v in self._classifier.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
            "visited": {name: group.clone() for name, group in self._visited.items()},
            "whole": self._whole.clone(), "steps": self._steps,
            "generator": self._generator.get_state(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: it goes on bit-equal."""
        self._classifier.load_state_dict(state["classifier"])
        self._optimizer.load_state_dict(state["optimizer"])
        for name, group in state["visited"].items():
            self._visited[name].copy_(group)
        self._whole.copy_(state["whole"])
        self._steps = int(state["steps"])
        self._generator.set_state(state["generator"])

    @torch.no_grad()
    def _probability(self, frames: Obs) -> Tensor:
        """(N,)."""
        return self._classifier.probabilities(frames).mean(0)[:, 0]

    def _newest(self, obs: Obs) -> Obs:
        """Groups that are read, of stacks of images the newest frame."""
        images = self._classifier.images
        return {
            name: obs[name][:, -1:] if name in images else obs[name]
            for name in self._classifier.groups
        }

    def _learn(self) -> None:
        seen = self._whole.nonzero()[:, 0]
        if not len(seen):
            return
        known = torch.arange(len(next(iter(self._successes.values()))), device=seen.device)
        half = self.config.batch_size // 2
        label = torch.cat([torch.ones(half), torch.zeros(half)]).to(self._generator.device)
        for _ in range(self.config.updates):
            drawn = (
                self._drawn(self._successes, known, half),
                self._drawn(self._visited, seen, half),
            )
            obs = {name: torch.cat([group, drawn[1][name]], 1) for name, group in drawn[0].items()}
            told = label.expand(self._classifier.config.members, -1)[..., None]  # (E, B, 1)
            if not self._classifier.images:
                obs, told = self._mixed(obs, told)
            self._optimizer.step(cross_entropy(self._classifier.logits(obs), told))

    def _drawn(self, source: Obs, known: Tensor, rows: int) -> Obs:
        """Frames for every member, groups (E, B, ...), of the places that are known."""
        shape, device = (self._classifier.config.members, rows), self._generator.device
        places = known[torch.randint(len(known), shape, generator=self._generator, device=device)]
        return member_frames(self._classifier, source, places, self._generator)

    def _mixed(self, obs: Obs, label: Tensor) -> tuple[Obs, Tensor]:
        """Every row mixed with another one of its member, in an even share."""
        members, rows = label.shape[:2]
        device = self._generator.device
        other = torch.rand(members, rows, generator=self._generator, device=device).argsort(-1)
        share = torch.rand(members, rows, 1, generator=self._generator, device=device)

        def mix(values: Tensor) -> Tensor:
            paired = values.gather(1, other[..., None].expand_as(values))
            return share * values + (1 - share) * paired

        return {name: mix(group) for name, group in obs.items()}, mix(label)
