"""Replays of a learner beside robots: all steps; demonstrations with the steps of persons.

Both are rings of a single env, filled in the order of the store's log, so that the same log gives
the same rings. With single-step transitions a step is added as soon as its successor is known, and
steps of several robots lie between each other. Learners of several steps, chunks or returns need a
row's followers behind it: for them an episode is added as a whole when it is over.

A person's part of an episode is a trajectory of its own among the demonstrations: its last step
bootstraps from its true successor, and no sum of rewards goes beyond it.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.buffers.frames import image_bytes
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner, MonteCarloReturns
from robot_rl.core.seeding import derive_seed
from robot_rl.link.transitions import Changed, Ended, Episode, Event, Outcome, Transition
from robot_rl.training.config import TrainerConfig, Weighting
from robot_rl.training.prior import Prior, open_prior
from robot_rl.training.ranks import check_memory

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter  # pyarrow is an extra


class _Place(NamedTuple):
    """Numbers of a step in the rings, -1 where it is not, and whether nothing follows it there."""

    step: int
    cut: bool
    prior: int
    prior_cut: bool


class _Places:
    """Places of the steps of one episode, by their indices; few bytes each, as labels come late."""

    __slots__ = ("_cuts", "_indices", "_priors", "_steps")

    def __init__(self) -> None:
        self._indices, self._steps, self._priors = array("l"), array("q"), array("q")
        self._cuts = array("B")

    def add(self, index: int, place: _Place) -> None:
        self._indices.append(index)
        self._steps.append(place.step)
        self._priors.append(place.prior)
        self._cuts.append(place.cut + 2 * place.prior_cut)

    def of(self, index: int) -> _Place:
        k = bisect_left(self._indices, index)
        if self._indices[k : k + 1] != array("l", [index]):  # they did not rise: the newest one
            k = len(self._indices) - 1 - self._indices[::-1].index(index)
        cuts = self._cuts[k]
        return _Place(self._steps[k], bool(cuts & 1), self._priors[k], bool(cuts & 2))


class OnlineReplay:
    """The ring of all steps, and the ring of demonstrations and persons' steps."""

    def __init__(
        self, config: TrainerConfig, spec: EnvSpec, learner: Learner, *, seed: int,
        augment: "ObservationAugmenter | None" = None,
    ) -> None:  # fmt: skip
        """Make the rings, and read the demonstrations of `training.prior`, as `open_prior` does.

        Raises:
            ConfigError: Rows are to be drawn by priority, or stored episodes by a weighting, or
                there is no memory for the frames of two rings.
            CheckpointError: The demonstrations are damaged.
            SpecMismatchError: They are of other envs.
        """
        if config.replay.priority > 0 or config.prior.weighting is not Weighting.none:
            raise ConfigError(
                "learning on a robot draws all rows alike: set training.replay.priority=0 and "
                "training.prior.weighting=none"
            )
        # A person judges the sum of rewards, not its terms.
        self.spec = replace(spec, num_envs=1, reward_names=(), reward_weights=())
        """One env with a single reward."""
        groups = (*learner.actor_groups, *learner.critic_groups)
        if frames := image_bytes(self.spec, groups, config.replay_capacity):
            check_memory(
                2 * frames, spec.device, copies=1,
                what=f"two replays of {config.replay_capacity:,} steps with pictures",
                remedy="lower training.replay_capacity",
            )  # fmt: skip
        wanted = learner.monte_carlo_returns
        returns = wanted if wanted is not None and wanted.online else None
        of_stored = wanted if config.offline.updates else returns

        def ring(capacity: int, purpose: str, returns: MonteCarloReturns | None) -> ReplayBuffer:
            return ReplayBuffer(
                self.spec, groups, capacity=capacity, gamma=learner.gamma, n_step=learner.n_step,
                chunks=learner.chunk_length > 0, interventions=learner.intervention_mask,
                returns=returns, compile=learner.compile, seed=derive_seed(seed, purpose),
            )  # fmt: skip

        self.steps = ring(config.replay_capacity, "online", returns)
        """All steps of all robots."""
        self.demonstrations: Prior | None = None
        """Those that the run began with."""
        stored = 0
        if config.prior.run:
            self.demonstrations = open_prior(
                config.prior,
                self.steps,
                self.spec,
                groups,
                seed=seed,
                returns=of_stored,
                augment=augment,
            )
            stored = len(self.demonstrations.replay)
        self.prior = ring(stored + config.replay_capacity, "demonstrations", of_stored)
        """Demonstrations, and steps in which a person acted."""
        if self.demonstrations is not None:
            self.prior.copy_frames(self.demonstrations.replay)
            self.prior.refill([_one_after_another(self.demonstrations.replay)])
            self.prior.copy_successes(self.demonstrations.replay)
            self.demonstrations.replay = self.prior
        # Returns are sums over neighbouring rows, too.
        self._waits = learner.n_step > 1 or learner.chunk_length > 0 or returns is not None
        self._waiting: dict[Episode, list[Transition]] = defaultdict(list)
        self._over: set[Episode] = set()
        self._places: dict[Episode, _Places] = defaultdict(_Places)
        self.interventions = 0
        """Persons' steps that were added to the demonstrations."""

    def take(self, event: Event) -> Iterator[EnvStep]:
        """Take an event of the assembler; yields the steps that were added, each of one env."""
        if isinstance(event, Changed):
            self._change(event)
        elif isinstance(event, Ended):
            yield from self._release(event.episode)
        elif self._waits and event.episode not in self._over:
            self._waiting[event.episode].append(event)
        else:
            yield self._add(event, cut=self._waits)

    def _release(self, episode: Episode) -> Iterator[EnvStep]:
        """Add an episode that is over; behind its last row another one begins."""
        self._over.add(episode)
        waiting = self._waiting.pop(episode, [])
        for event in waiting:
            yield self._add(event, cut=event is waiting[-1])

    def _add(self, event: Transition, *, cut: bool) -> EnvStep:
        """Add a step; with `cut` nothing that follows in the ring belongs to it."""
        frame, outcome = event.frame, event.outcome
        assert frame.action is not None
        device = self.spec.device
        obs, after = _tensors(frame.obs, device), _tensors(event.next_obs, device)
        flags = (outcome.terminated, outcome.truncated, outcome.success, event.measured)
        terminated, truncated, success, measured, intervened = (
            torch.tensor([flag], device=device) for flag in (*flags, frame.intervened)
        )
        step = EnvStep(
            obs=after, next_obs=after, reward=torch.tensor([outcome.reward], device=device),
            terminated=terminated, truncated=truncated, success=success, valid=measured,
            action=torch.tensor(frame.action, device=device)[None], intervened=intervened,
        )  # fmt: skip
        place = _Place(self.steps.total_steps, cut, -1, cut or event.ends_intervention)
        about = {"stamp_ns": int(frame.stamp * 1e9), "policy_version": frame.policy_version}
        self.steps.add(obs, step, **about)
        if frame.intervened:
            place = place._replace(prior=self.prior.total_steps)
            self.prior.add(obs, step, **about)
            self.interventions += 1
        self._places[event.episode].add(event.index, place)
        self._judge(place, outcome)  # what a label voids was measured: the label may be undone
        return step

    def _change(self, event: Changed) -> None:
        """Judge a step anew, where it is: in the rings, or waiting for the end of its episode."""
        waiting = self._waiting.get(event.episode, [])
        for k, one in enumerate(waiting):
            if one.index == event.index:
                waiting[k] = replace(one, outcome=event.outcome)
                return
        self._judge(self._places[event.episode].of(event.index), event.outcome)

    def _judge(self, place: "_Place", outcome: Outcome) -> None:
        reward, terminated, truncated, valid, success, _ = outcome
        for ring, step, cut in (
            (self.steps, place.step, place.cut), (self.prior, place.prior, place.prior_cut)
        ):  # fmt: skip
            if step >= 0:
                ring.amend(
                    step, reward=reward, terminated=terminated,
                    truncated=(truncated or cut) and not terminated, valid=valid, success=success,
                )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Random streams, and the digest of the demonstrations; the rows come from the log."""
        prior: dict[str, Any] = {"generator": self.prior.generator.get_state()}
        if self.demonstrations is not None:
            prior = self.demonstrations.state_dict()
        return {"steps": self.steps.generator.get_state(), "prior": prior}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict` beside the rows.

        Raises:
            CheckpointError: The demonstrations are others than the run began with.
        """
        self.steps.generator.set_state(state["steps"])
        if self.demonstrations is not None:
            self.demonstrations.load_state_dict(state["prior"])
        else:
            self.prior.generator.set_state(state["prior"]["generator"])


def _one_after_another(replay: ReplayBuffer) -> Tensor:
    """Rows of all envs as rows of one, (N T, 1, W): nothing follows the last of each."""
    rows = replay.ordered_rows().transpose(0, 1).clone()  # (N, T, W)
    columns = replay.layout.columns
    rows[:, -1, columns["truncated"]] = 1 - rows[:, -1, columns["terminated"]]
    return rows.reshape(-1, 1, rows.shape[-1])


def _tensors(obs: Mapping[str, NDArray[Any]], device: torch.device) -> Obs:
    return {name: torch.tensor(group, device=device)[None] for name, group in obs.items()}
