"""Episodes of a data set as rows of a replay, one after another in a single env.

Where both sides name reward terms, these must be the same and are weighed as the run weighs its
own. Demonstrations mostly have a single reward: it is taken as it is, as is the sum of all terms
where the run has none. Pictures become the stacks that the environment has of them.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from robot_rl.buffers.frames import image_bytes
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.buffers.returns import FLAGS, RowLayout, check_rows
from robot_rl.core.base_action import BASE_ACTION, BasePolicy
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.ranks import check_room

_logger = logging.getLogger(__name__)


class ObservationAugmenter(Protocol):
    """Adds groups to the observations of episodes that were stored without them."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Groups that it adds."""
        ...

    @property
    def changes_rewards(self) -> bool:
        """True if the stored rewards are not what is learned from."""
        ...

    def __call__(self, episode: Episode) -> Episode:
        """The episode with them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Replay made of a data set of episodes."""

    replay: ReplayBuffer
    digest: str
    note: str
    """Remark about its rewards."""
    succeeded: Tensor | None
    """True where a row's episode did, (T, 1) bool, where the data set knows."""
    held_out: ReplayBuffer | None
    """Episodes that are not learned from."""


def read_episodes(
    folder: Path, own: ReplayBuffer, spec: EnvSpec, groups: Sequence[str], *, seed: int,
    returns: MonteCarloReturns | None = None, held_out: float = 0.0,
    augment: ObservationAugmenter | None = None, copies: int = 1,
) -> Episodes:  # fmt: skip
    """Read a data set of episodes; arguments and errors are those of `open_prior`."""
    dataset = EpisodeDataset(folder, images=own.has_images or augment is not None)
    check_cameras(folder, dataset.spec, spec, groups)
    weighed = bool(dataset.spec.reward_names and spec.reward_names)
    told = dataset.spec
    if augment is not None:
        told = replace(told, groups={**told.groups, **augment.widths})
    description = row_description(told)
    if not weighed:
        description["reward_names"] = list(spec.reward_names)
    check_rows(description, own.description, str(folder))
    judged = dataset.spec.judges_success
    if returns is not None and returns.failure_reward and not judged:
        raise ConfigError(
            f"learner.conservatism.failure_reward {returns.failure_reward} needs to know which "
            f"episodes failed, and {folder} judges no success; name those that did with "
            "robot-rl data relabel ... success=true, or take failure_reward=0"
        )
    counted = [int(i * held_out + 1e-9) for i in range(len(dataset) + 1)]
    apart = [i for i in range(len(dataset)) if counted[i + 1] > counted[i]]
    single = replace(spec, num_envs=1, reward_names=spec.reward_names if weighed else ())
    lengths = dataset.lengths
    check_room(
        folder, sum(lengths), RowLayout(single, groups), spec.device, copies,
        frames=image_bytes(single, groups, sum(lengths)),
    )  # fmt: skip

    def filled(
        numbers: Sequence[int], wanted: MonteCarloReturns | None
    ) -> tuple[ReplayBuffer, Tensor]:
        count = sum(lengths[i] for i in numbers)
        if count < own.n_step:
            raise ConfigError(
                f"training.prior.run: {folder} holds {count} transitions"
                + (" to hold out" if numbers is apart else "")
                + f"; expected at least {own.n_step}"
                + (", or training.offline.held_out=0" if apart else "")
            )
        # With images room for the frame behind each episode, so that none is lost.
        replay = ReplayBuffer(
            single, groups, capacity=count + len(numbers) * own.has_images,
            gamma=own.gamma, n_step=own.n_step, chunks=own.chunks,
            interventions=own.interventions, seed=seed, returns=wanted, compile=own.compile,
        )  # fmt: skip
        success: list[Tensor] = []
        replay.refill(_rows(dataset, numbers, replay, augment, success))
        if weighed:
            replay.share_weights(own)
        return replay, torch.cat(success)[:, None]

    chosen = set(apart)
    replay, success = filled([i for i in range(len(dataset)) if i not in chosen], returns)
    if replay.monte_carlo is not None:
        replay.monte_carlo.success[: len(success)] = success  # with images there is more room
    alike = bool(dataset.spec.reward_names) == bool(spec.reward_names)
    alike |= augment is not None and augment.changes_rewards
    return Episodes(
        replay=replay, digest=dataset.digest,
        note="" if alike else ", with the rewards stored there",
        succeeded=replay.trajectories().any_in_episode(success) if judged else None,
        held_out=filled(apart, None)[0] if apart else None,
    )  # fmt: skip


def row_description(spec: DatasetSpec) -> dict[str, Any]:
    """Description of rows of all that a data set has, as `describe_rows` tells it."""
    columns = [
        *([f"obs/{name}", width] for name, width in spec.groups.items()),
        ["action", spec.action_size],
        ["reward", max(1, len(spec.reward_names))],
        *([f"next_obs/{name}", width] for name, width in spec.groups.items()),
        *([flag, 1] for flag in FLAGS),
    ]
    return {
        "columns": columns,
        "reward_names": list(spec.reward_names),
        "control_dt": spec.control_dt,
        "robot": None if spec.robot is None else dict(spec.robot),
        "meaning": dict(spec.meaning),
    }


def _rows(
    dataset: EpisodeDataset, numbers: Sequence[int], replay: ReplayBuffer,
    augment: ObservationAugmenter | None, success: list[Tensor],
) -> Iterator[Tensor]:  # fmt: skip
    """Episodes as steps of one env, (T, 1, W) each; their success, (T,) bool, is added.

    Their pictures are given to the replay, which takes the rows.
    """
    layout = replay.layout
    succeeded = unpaid = 0
    for stored in dataset.episodes(numbers):
        episode = stored if augment is None else augment(stored)
        if augment is not None and augment.changes_rewards and stored.success.any():
            succeeded += 1
            unpaid += not (episode.reward > 0).any()
        rows = torch.zeros(episode.num_steps, layout.width)
        obs = {name: torch.from_numpy(episode.obs[name][:-1]) for name in layout.groups}
        layout.pack(obs, _step(episode, layout), rows)
        success.append(torch.from_numpy(episode.success))
        for name, depth in replay.stacks.items():
            frames = torch.from_numpy(episode.images[name.removeprefix(IMAGE_PREFIX)])
            replay.add_frames(name, frame_stacks(frames, depth))
        yield rows[:, None]
    if unpaid:
        _logger.warning(
            "the run's reward pays nothing in %d of %d stored episodes that succeeded; of those "
            "that end in their first frame of success it sees one: a classifier needs hold=1 "
            "hold_window=1 for them (robot-rl reward train)", unpaid, succeeded,
        )  # fmt: skip


def frame_stacks(frames: Tensor, depth: int) -> Tensor:
    """Stacks of the last frames of an episode, (T + 1, S, H, W, C), oldest first.

    Before the first frame there is that frame, as the environment has it.

    Args:
        frames: Of a camera, (T + 1, H, W, C).
        depth: S.
    """
    back = torch.arange(depth - 1, -1, -1)
    which = (torch.arange(len(frames))[:, None] - back).clamp(min=0)
    return frames[which]


def check_cameras(folder: Path, stored: DatasetSpec, spec: EnvSpec, groups: Iterable[str]) -> None:
    """Refuse pictures that the environment's cameras do not take.

    Args:
        groups: That a learner reads.

    Raises:
        SpecMismatchError: A camera is missing, or its pictures have another shape.
    """
    for group in groups:
        if not group.startswith(IMAGE_PREFIX):
            continue
        name, wanted = group.removeprefix(IMAGE_PREFIX), tuple(spec.groups[group].shape[-3:])
        if name not in stored.images:
            raise SpecMismatchError(
                f"{folder} has no pictures of the camera '{name}', which this learner sees; it has "
                f"{', '.join(stored.images) or 'none'}: collect with env.cameras=[{name}]"
            )
        if tuple(stored.images[name]) != wanted:
            raise SpecMismatchError(
                f"pictures of the camera '{name}' in {folder} have the shape "
                f"{tuple(stored.images[name])}, and this run's have {wanted}; expected the same"
            )


def _step(episode: Episode, layout: RowLayout) -> EnvStep:
    """All steps of an episode as one step of as many envs."""
    after = {name: torch.from_numpy(episode.obs[name][1:]) for name in layout.groups}
    terms = episode.reward_terms if layout.reward_names else None
    return EnvStep(
        obs=after,
        next_obs=after,
        reward=torch.from_numpy(episode.reward),
        reward_terms=None if terms is None else torch.from_numpy(terms),
        terminated=torch.from_numpy(episode.terminated),
        truncated=torch.from_numpy(episode.truncated),
        success=torch.from_numpy(episode.success),
        valid=torch.from_numpy(episode.valid),
        action=torch.from_numpy(episode.action),
        intervened=torch.from_numpy(episode.intervened),
    )


class BaseActions:
    """Runs a base along episodes, each from a new plan on; their own actions stay what they are."""

    changes_rewards = False
    """Stored rewards stay."""

    def __init__(self, base: BasePolicy, spec: EnvSpec) -> None:
        """Take a base of one env, and the envs that the run learns in."""
        self._base, self._spec = base, spec
        self.widths: Mapping[str, int] = {BASE_ACTION: spec.action_size}
        """The group that is added."""

    def __call__(self, episode: Episode) -> Episode:
        """The episode with `base_action`, (T + 1, A), after what was observed in each frame."""
        starting, actions = torch.ones(1, dtype=torch.bool), []
        frames: Obs = {name: torch.from_numpy(rows) for name, rows in episode.obs.items()}
        for group in self._base.groups:
            if group.startswith(IMAGE_PREFIX):
                frames[group] = self._stacks(episode, group)
        for t in range(episode.num_steps + 1):
            obs = {name: rows[t : t + 1] for name, rows in frames.items()}
            action = self._base.next(obs) if t else self._base.restart(starting, obs)
            actions.append(action.numpy())
        return replace(episode, obs={**episode.obs, BASE_ACTION: np.concatenate(actions)})

    def _stacks(self, episode: Episode, group: str) -> Tensor:
        """Stacks of a camera as the base sees them, (T + 1, S, H, W, C)."""
        wanted = self._spec.groups[group]
        frames = episode.images.get(group.removeprefix(IMAGE_PREFIX))
        if frames is None or frames.shape[1:] != wanted.shape[-3:]:
            got = {name: rows.shape[1:] for name, rows in episode.images.items()}
            raise SpecMismatchError(
                f"the base sees '{group}' with frames of {wanted.shape[-3:]}, and the stored "
                f"episodes have pictures of {got or 'no camera'}; expected that camera: collect "
                "with env.cameras=[...]"
            )
        return frame_stacks(torch.from_numpy(frames), wanted.stack)
