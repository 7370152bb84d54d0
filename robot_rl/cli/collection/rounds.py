"""Plays episodes in rounds: one in each world, all begun together from the round's own seed.

So an episode follows from the seed and its number alone: a collection that was killed goes on at
the round it was in, and every episode comes out as it would have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robot_rl.cli.collection.disturbance import Disturbance
from robot_rl.cli.collection.experts import Casting, Expert
from robot_rl.cli.collection.options import CollectOptions
from robot_rl.cli.collection.states import state_widths, states_of
from robot_rl.core.env import BatchEnv, Obs
from robot_rl.core.seeding import derive_seed
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.recorder import EpisodeRecorder, spec_of
from sim.viewing.player import Agent

_SEEDS = 2**31
"""Foreign environments take no larger seeds."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An episode that was played."""

    number: int
    """Counted from 0 over all rounds."""
    expert: int
    """Who played it."""
    episode: Episode | None
    """None where the engine gave the world up."""


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
        """Join the parts.

        Args:
            env: N worlds.
            experts: Who acts.
            casting: Who plays which episode.
            options: How actions are disturbed.
            seed: Seed of everything.
            words: What is to be done.
        """
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
        """Play a round until the first episodes of some worlds have ended.

        Args:
            number: Of the round, from 0.
            worlds: The first so many are looked at.

        Yields:
            What ended in a step, by world; in the end every world was in it once.

        Raises:
            NonFiniteError: An observation, a reward or an action was not a number.
        """
        count = self._env.spec.num_envs
        cast = self._casting.of(number * count, count)
        # By N, too: fewer worlds would draw the same first starts.
        seed = derive_seed(self._seed, f"round {number} of {count} worlds") % _SEEDS
        act = self._actors(cast, worlds, seed)
        obs = self._begin(seed)
        playing = np.arange(count) < worlds
        while playing.any():
            step = self._env.step(act(obs))
            recorded = self._recorder.add(step, states=self._states_now())
            found = {one.world: one.episode for one in recorded}
            ended = step.ended.cpu().numpy() & playing
            playing &= ~ended
            obs = step.obs
            if ended.any():
                self._env.check()
                yield [
                    Attempt(number=number * count + world, expert=cast[world],
                            episode=_whole(found.get(world)))
                    for world in np.flatnonzero(ended).tolist()
                ]  # fmt: skip

    def _begin(self, seed: int) -> Obs:
        if self._fresh is not None:
            self._env.load_state_dict(self._fresh)  # a curriculum begins anew, too
        obs = self._env.reset(seed=seed, mask=self._all)  # all at once: a mask staggers nothing
        self._recorder.begin(obs, states=self._states_now())
        return obs

    def _states_now(self) -> dict[str, Tensor] | None:
        """States of all worlds, (N, W) each, if they are stored."""
        return None if self._states is None else self._states.world_states()

    def _actors(self, cast: Sequence[int], worlds: int, seed: int) -> "_Actors":
        return _Actors(self._experts, cast, worlds, self._options, self._env, seed)


class _Actors:
    """The experts of a round, each in its worlds."""

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


def _whole(episode: Episode | None) -> Episode | None:
    """The episode, unless the engine gave its world up."""
    return episode if episode is not None and bool(episode.valid.all()) else None
