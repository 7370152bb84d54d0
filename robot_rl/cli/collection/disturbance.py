"""Disturbs actions, so that a data set also shows what to do beside the expert's way."""

import torch
from torch import Tensor

from robot_rl.cli.collection.options import CollectOptions
from robot_rl.core.env import EnvSpec
from robot_rl.core.seeding import derive_seed


class Disturbance:
    """Gaussian noise, and bursts: a random action that is held for a while."""

    def __init__(self, options: CollectOptions, spec: EnvSpec, mask: Tensor) -> None:
        """Prepare N worlds; `begin` starts their episodes.

        Args:
            options: How much, and for how long.
            spec: The environment.
            mask: Worlds whose actions are disturbed, (N,) bool.
        """
        self._options, self._mask = options, mask[:, None]
        self._shape = (spec.num_envs, spec.action_size)
        self._steps = options.noise_seconds / spec.control_dt  # may be infinite
        self._generator = torch.Generator(device=spec.device)
        self._held = torch.zeros(self._shape, device=spec.device)
        self._left = torch.zeros(spec.num_envs, dtype=torch.int64, device=spec.device)
        self._step = 0

    def begin(self, seed: int) -> None:
        """Episodes begin in all worlds."""
        self._generator.manual_seed(derive_seed(seed, "disturbed actions"))
        self._left.zero_()
        self._step = 0

    def __call__(self, action: Tensor) -> Tensor:
        """Actions of one step, disturbed, (N, A), in [-1, 1]."""
        self._step += 1
        if self._step > self._steps:
            return action
        options = self._options
        noise = torch.randn(self._shape, generator=self._generator, device=action.device)
        changed = (action + options.noise * noise).clamp(-1.0, 1.0)
        if options.bursts:
            changed = self._burst(changed)
        return torch.where(self._mask, changed, action)

    def _burst(self, action: Tensor) -> Tensor:
        rows, device = self._shape[0], action.device
        chance = torch.rand(rows, generator=self._generator, device=device)
        anew = 2 * torch.rand(self._shape, generator=self._generator, device=device) - 1
        begins = (chance < self._options.bursts) & (self._left == 0)
        self._held = torch.where(begins[:, None], anew, self._held)
        self._left = torch.where(begins, self._options.burst_steps, self._left)
        action = torch.where((self._left > 0)[:, None], self._held, action)
        self._left = (self._left - 1).clamp_min(0)
        return action
