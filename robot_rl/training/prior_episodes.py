"""Episodes of a data set as rows of a replay, one after another in a single world.

Where both sides name reward terms, these must be the same and are weighed as the run weighs its
own. Demonstrations mostly have a single reward: it is taken as it is, as is the sum of all terms
where the run has none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.buffers.row_description import check_rows
from robot_rl.buffers.row_layout import FLAGS, RowLayout
from robot_rl.core.env import EnvSpec, EnvStep
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec

if TYPE_CHECKING:
    from robot_rl.training.lookout import Lookout


def read_episodes(
    folder: Path,
    own: ReplayBuffer,
    spec: EnvSpec,
    groups: Sequence[str],
    *,
    seed: int,
    look: "Lookout | None" = None,
) -> tuple[ReplayBuffer, str, str]:
    """Read a data set of episodes.

    Args:
        folder: Of the data set.
        own: Replay of the run they are mixed into; decides discount, steps and reward weights.
        spec: Its environment.
        groups: Observation groups to read.
        seed: Seed of the draws.
        look: Adds groups.

    Returns:
        The transitions, a digest of the data set, and what is to be said about its rewards.

    Raises:
        ConfigError: It holds no transitions.
        DatasetError: It is damaged, or not ours.
        SpecMismatchError: The transitions do not fit; the message names both sides.
    """
    dataset = EpisodeDataset(folder)
    weighed = bool(dataset.spec.reward_names and spec.reward_names)
    told = dataset.spec
    if look is not None:
        told = replace(told, groups={**told.groups, **look.widths})
    description = row_description(told)
    if not weighed:
        description["reward_names"] = list(spec.reward_names)
    check_rows(description, own.description, str(folder))
    count = sum(dataset.lengths)
    if count < own.n_step:
        raise ConfigError(
            f"training.prior.run: {folder} holds {count} transitions; expected at least "
            f"{own.n_step}"
        )
    names = spec.reward_names if weighed else ()
    replay = ReplayBuffer(
        replace(spec, num_envs=1, reward_names=names), groups, capacity=count, gamma=own.gamma,
        n_step=own.n_step, seed=seed,
    )  # fmt: skip
    replay.refill(_rows(dataset, replay.layout, look))
    if weighed:
        replay.share_weights(own)
    alike = bool(dataset.spec.reward_names) == bool(spec.reward_names)
    return replay, dataset.digest, "" if alike else ", with the rewards stored there"


def row_description(spec: DatasetSpec) -> dict[str, Any]:
    """What rows of all that a data set has would hold, as `describe_rows` tells it."""
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
    }


def _rows(dataset: EpisodeDataset, layout: RowLayout, look: "Lookout | None") -> Iterator[Tensor]:
    """Episodes as steps of one world, (T, 1, W) each."""
    for stored in dataset:
        episode = stored if look is None else look(stored)
        rows = torch.zeros(episode.num_steps, layout.width)
        obs = {name: torch.from_numpy(episode.obs[name][:-1]) for name in layout.groups}
        layout.pack(obs, _step(episode, layout), rows)
        yield rows[:, None]


def _step(episode: Episode, layout: RowLayout) -> EnvStep:
    """All steps of an episode as one step of as many worlds."""
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
