"""Plays episodes in rounds: one in each env, all begun together from the round's own seed.

So an episode follows from the seed and its number alone: a collection that was killed goes on at
the round it was in, and every episode comes out as it would have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.cli.collection.experts import Casting, CollectOptions, Expert
from robot_rl.core.env import BatchEnv, EnvSpec, Obs, SupportsStateReset
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.recorder import EpisodeRecorder, spec_of
from sim.env import SimEnv
from sim.rendering.player import Agent

_MAX_SEED = 2**31
"""Foreign environments take no larger seeds."""


class Disturbance:
    """Gaussian noise, and bursts: a random action that is held for a while.

    With it a data set also shows what to do beside the expert's way.
    """

    def __init__(self, options: CollectOptions, spec: EnvSpec, mask: Tensor) -> None:
        """Prepare N envs; `begin` starts their episodes.

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
        """Episodes begin in all envs."""
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


def states_of(options: CollectOptions, env: BatchEnv) -> SupportsStateReset | None:
    """Source of the states of the envs; None where none were asked for.

    Raises:
        ConfigError: They were, and this environment does not tell them.
    """
    if not options.states:
        return None
    if not isinstance(env, SimEnv):
        raise ConfigError(
            f"states=true was asked for, and {type(env).__name__} does not tell the states of its "
            "envs; expected env=sim"
        )
    return env


def state_widths(source: SupportsStateReset | None) -> dict[str, int]:
    """Parts of the states that are stored, with their widths; empty where none are."""
    return {} if source is None else dict(source.state_widths)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An episode that was played."""

    number: int
    """Counted from 0 over all rounds."""
    expert: int
    """Index of the expert that played it."""
    episode: Episode | None
    """None where the engine gave the env up."""


class Rounds:
    """Worlds in which experts play."""

    def __init__(
        self,
        env: BatchEnv,
        experts: Sequence[Expert],
        casting: Casting,
        options: CollectOptions,
        *,
        seed: int,
        words: str,
    ) -> None:
        self._env, self._experts, self._casting = env, experts, casting
        self._options, self._seed = options, seed
        self._states = states_of(options, env)
        widths = state_widths(self._states)
        self._recorder = EpisodeRecorder(spec_of(env.spec, widths), task=words)
        self._all = torch.ones(env.spec.num_envs, dtype=torch.bool, device=env.spec.device)
        env.reset(seed=0, mask=self._all)
        self._fresh = env.state_dict() if env.spec.resumable else None

    @torch.no_grad()
    def play(self, number: int, worlds: int) -> Iterator[list[Attempt]]:
        """Play a round until the first episodes of the first `worlds` envs have ended.

        Yields:
            What ended in a step, by env; in the end every env was in it once.

        Raises:
            NonFiniteError: An observation, a reward or an action was not a number.
        """
        count = self._env.spec.num_envs
        cast = self._casting.of(number * count, count)
        # By N, too: fewer envs would draw the same first starts.
        seed = derive_seed(self._seed, f"round {number} of {count} worlds") % _MAX_SEED
        act = self._actors(cast, worlds, seed)
        obs = self._begin(seed)
        playing = np.arange(count) < worlds
        counts: list[NDArray[np.bool_]] = []  # of each step, (N,)
        while playing.any():
            step = self._env.step(act(obs))
            counts.append(step.counts.cpu().numpy().copy())
            recorded = self._recorder.add(step, states=self._states_now())
            found = {one.world: one.episode for one in recorded}
            ended = step.ended.cpu().numpy() & playing
            playing &= ~ended
            obs = step.obs
            if ended.any():
                self._env.check()
                yield [
                    Attempt(number=number * count + world, expert=cast[world],
                            episode=_whole(found.get(world), [one[world] for one in counts]))
                    for world in np.flatnonzero(ended).tolist()
                ]  # fmt: skip

    def _begin(self, seed: int) -> Obs:
        if self._fresh is not None:
            self._env.load_state_dict(self._fresh)  # a curriculum begins anew, too
        obs = self._env.reset(seed=seed, mask=self._all)  # all at once: a mask staggers nothing
        self._recorder.begin(obs, states=self._states_now())
        return obs

    def _states_now(self) -> dict[str, Tensor] | None:
        """States of all envs, (N, W) each, if they are stored."""
        return None if self._states is None else self._states.world_states()

    def _actors(self, cast: Sequence[int], worlds: int, seed: int) -> "_Actors":
        return _Actors(self._experts, cast, worlds, self._options, self._env, seed)


class _Actors:
    """The experts of a round, each in its envs."""

    def __init__(
        self, experts: Sequence[Expert], cast: Sequence[int], worlds: int,
        options: CollectOptions, env: BatchEnv, seed: int,
    ) -> None:  # fmt: skip
        device = env.spec.device
        chosen = torch.tensor(cast, device=device)
        self._parts: list[tuple[Tensor, Agent]] = []
        disturbed = torch.zeros_like(chosen, dtype=torch.bool)
        everyone = torch.ones_like(disturbed)
        for index in sorted(set(cast[:worlds])):
            agent = experts[index].make(seed)
            agent.begin(everyone)
            self._parts.append(((chosen == index)[:, None], agent))
            disturbed |= (chosen == index) & experts[index].disturbed
        self._disturb = Disturbance(options, env.spec, disturbed)
        self._disturb.begin(seed)
        self._begun = everyone

    def __call__(self, obs: Obs) -> Tensor:
        mask, agent = self._parts[0]
        action = agent.act(obs)
        for mask, agent in self._parts[1:]:
            action = torch.where(mask, agent.act(obs), action)
        return self._disturb(action)


def _whole(episode: Episode | None, counts: Sequence[np.bool_]) -> Episode | None:
    """The episode that ended in the last of these steps, unless the engine gave its env up."""
    return episode if episode is not None and all(counts[-episode.num_steps :]) else None
