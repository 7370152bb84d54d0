"""Puts steps of all envs together from the blocks of collectors elsewhere.

To the training loop it is a collector like the one that steps envs itself, and `collect` adds
rows of N envs. Each collector has `MAX_REQUESTS` at most, given as blocks are taken: who learns
slowly is not flooded, who collects slowly is waited for, and updates per step are what was asked.
A collector that is away leaves invalid rows, which are not counted as steps and keep its old
episodes apart from the new ones; normalisers see the others' observations in their place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.training.cluster.remote_collector import (
    Block,
    CollectRequest,
    Weights,
    joined_obs,
    joined_steps,
    weights_of,
)
from robot_rl.training.collector import Collector, missing_step
from robot_rl.training.ranks import Ranks

MAX_REQUESTS = 2
"""Blocks that each collector is ahead, at most: one to work on while the other travels."""


class Fleet(Protocol):
    """K collectors, each with requests that wait for it."""

    @property
    def count(self) -> int:
        """K."""
        ...

    @property
    def lost(self) -> int:
        """Number of those that were lost and replaced so far."""
        ...

    def begin(self, seed: int, states: Sequence[Mapping[str, Any] | None]) -> None:
        """All begin new episodes.

        Args:
            seed: Each derives its own from it, and so does every one that replaces another.
            states: One per collector: what `states` gave, or None.
        """
        ...

    def publish(self, weights: Weights) -> None:
        """Weights that go with every request from now on."""
        ...

    def request(self, collector: int, request: CollectRequest) -> None:
        """Give one a request; it works off its requests one after another."""
        ...

    def waiting(self, collector: int) -> int:
        """Orders that it has and whose blocks have not been taken."""
        ...

    def up(self, collector: int) -> bool:
        """True if it works; false while the one in the place of a lost one is coming up.

        Raises:
            RankError: It is lost again and again before it has a block.
        """
        ...

    def take(self, collector: int) -> Block | None:
        """Its oldest block; waits for it. None where it was lost just now, with its requests.

        Raises:
            RankError: It ended by an error, or is lost again and again.
            NonFiniteError: Its envs report a value that is not a number.
        """
        ...

    def wait(self) -> None:
        """Wait until any collector is up.

        Raises:
            RankError: None comes up.
        """
        ...

    def states(self) -> list[Mapping[str, Any] | None]:
        """State that the envs of each go on from; of one that is away, its last."""
        ...

    def close(self) -> None:
        """End them all; allowed more than once."""
        ...


class RemoteEnv:
    """A `BatchEnv` in name: collectors reset and step it, and check it after every block."""

    def __init__(self, template: BatchEnv, num_envs: int, fleet: Fleet) -> None:
        self.fleet = fleet
        """The collectors."""
        self.template = template
        """One env like them."""
        self.spec: EnvSpec = replace(
            template.spec, num_envs=num_envs, resumable=False, steps_beside=False
        )
        """Of all envs; episodes begin anew on resume."""

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        """Collectors do this."""
        self._refuse("reset")

    def step(self, action: Tensor) -> NoReturn:
        """Collectors do this."""
        self._refuse("stepped")

    def check(self) -> None:
        """Collectors do this, and what they find comes with the next block."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: it is in the collector's state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""

    def close(self) -> None:
        """End the collectors."""
        self.fleet.close()
        self.template.close()

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(f"envs of cluster.collectors cannot be {what} by the learner's process")


@dataclass
class _Part:
    """Steps at hand of one collector."""

    seen: Obs | None = None
    """Observation of its envs, the newest that was taken."""
    block: Block | None = None
    at: int = 0
    """Steps of the block that are used."""


class AsyncCollector(Collector):
    """One `collect` takes as many rows as there are envs."""

    def __init__(
        self, env: RemoteEnv, learner: Learner, replay: ReplayBuffer, *,
        random_steps: int, seed: int, ranks: Ranks | None = None, block_steps: int,
    ) -> None:  # fmt: skip
        """Join the parts; arguments as of `Collector`.

        Args:
            learner: Sees every step; its policy's weights are sent.
            block_steps: Steps that a collector sends at once.
        """
        super().__init__(env, learner, replay, random_steps=random_steps, seed=seed, ranks=ranks)
        self._fleet = env.fleet
        self._block_steps = block_steps
        self._share = env.spec.num_envs // self._fleet.count
        self._groups = (*learner.actor_groups, *learner.critic_groups)
        self._parts: list[_Part] = []
        self._published = -1
        self._requested = 0  # env-steps, counted as if no request were ever lost
        self._surplus = 0  # rows taken beyond whole steps of all envs
        self._states: list[Mapping[str, Any] | None] = [None] * self._fleet.count
        self._lag, self._lag_rows = 0, 0
        self._apart = False  # the newest row is one of nobody

    def start(self) -> None:
        """Begin the first episodes."""
        self._begin()

    def begin_anew(self) -> None:
        """Begin new episodes in the middle of a run, an invalid row after the old ones."""
        self._begin()
        if len(self.replay):
            self.replay.add(*self._joined([None] * self._fleet.count))
        self._return.zero_()
        self._length.zero_()

    def collect(self) -> None:
        """Take the next steps of all collectors until there are rows for a step of all envs."""
        while self._surplus < self.env.spec.num_envs:
            self._surplus += self._gather()
        self._surplus -= self.env.spec.num_envs
        self.env_steps += self.env.spec.num_envs

    def statistics(self) -> dict[str, float]:
        """As of `Collector`, and how the collectors are doing."""
        present = sum(part.block is not None for part in self._parts)
        lag = self._lag / max(1, self._lag_rows)
        self._lag = self._lag_rows = 0
        return {
            **super().statistics(),
            "rollout/collectors": float(present),
            "rollout/lost_collectors": float(self._fleet.lost),
            "rollout/updates_behind": lag,
        }

    def state_dict(self) -> dict[str, Any]:
        """As of `Collector`, and what the envs go on from."""
        return {**super().state_dict(), "worlds": self._fleet.states()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; `begin_anew` must follow."""
        super().load_state_dict(state)
        self._states = list(state["worlds"])

    def _begin(self) -> None:
        self._parts = [_Part() for _ in range(self._fleet.count)]
        self._requested = self.env_steps
        self._fleet.begin(derive_seed(self._seed, f"step {self.env_steps}"), self._states)

    def _gather(self) -> int:
        """Add one step of whoever has one; returns how many rows are of use."""
        blocks = [self._next(number) for number in range(self._fleet.count)]
        obs, step = self._joined(blocks)
        if not any(blocks):
            if not self._apart:
                self.replay.add(obs, step)
                self._apart = True
            self._fleet.wait()
            return 0
        self._apart = False
        versions = [block.version for block in blocks if block is not None]
        self.replay.add(obs, step, policy_version=min(versions))
        self._learner.observe(step)
        self._count(step, step.ended)
        rows = len(versions) * self._share
        self._invalid -= len(step.valid) - rows  # nobody took those
        self._lag += sum(self.policy_version - version for version in versions) * self._share
        self._lag_rows += rows
        return rows

    def _next(self, number: int) -> Block | None:
        """The block that the next step of a collector is in; None where it is away."""
        part = self._parts[number]
        if part.block is not None and part.at < part.block.steps:
            return part.block
        there, part.block, part.at = part.block is not None, None, 0
        if self._fleet.up(number):
            self._send_requests(number)
            part.block = self._fleet.take(number)
        if part.block is None and there:  # its episodes will never end
            envs = slice(number * self._share, (number + 1) * self._share)
            self._return[envs] = 0
            self._length[envs] = 0
        return part.block

    def _send_requests(self, number: int) -> None:
        if self._fleet.waiting(number) == MAX_REQUESTS:
            return
        if self._published != self.policy_version:
            self._fleet.publish(weights_of(self._learner))
            self._published = self.policy_version
        while self._fleet.waiting(number) < MAX_REQUESTS:
            request = CollectRequest(
                steps=self._block_steps,
                version=self.policy_version,
                at_random=self._requested < self._random_steps,
                env_steps=self.env_steps,
            )
            self._fleet.request(number, request)
            self._requested += self._block_steps * self._share

    def _joined(self, blocks: list[Block | None]) -> tuple[Obs, EnvStep]:
        """The step of all envs, and what was acted on; moves on by it."""
        spec = self.env.spec
        taken: dict[int, tuple[Obs, EnvStep]] = {}
        for number, (part, block) in enumerate(zip(self._parts, blocks, strict=True)):
            if block is not None:
                taken[number] = block.step(part.at, spec.device)
                part.at += 1
                part.seen = taken[number][1].obs
        # The present ones' again: normalisers take in whatever stands in a row, valid or not.
        known = [part.seen for part, block in zip(self._parts, blocks, strict=True) if block]
        known += [part.seen for part in self._parts if part.seen is not None]
        seen = next(filter(None, known), None) or self._blank()
        for number in range(len(blocks)):
            taken.setdefault(number, (seen, missing_step(spec, seen, self._share)))
        rows = [taken[number] for number in range(len(blocks))]
        return joined_obs([obs for obs, _ in rows]), joined_steps([step for _, step in rows])

    def _blank(self) -> Obs:
        """An observation of a collector's envs, where none was seen yet."""
        groups = {name: self.env.spec.groups[name] for name in self._groups}
        return {
            name: torch.zeros((self._share, *group.shape), dtype=group.dtype).to(
                self.env.spec.device
            )
            for name, group in groups.items()
        }
