"""Episodes that begin where demonstrations have been (S3RL, Zhao et al. 2024, arXiv:2403.00673).

Good states come within reach before a policy can find its way to them. The states of a data set are
divided into clusters by one number, the reward that was still to come or had come; a cluster is
drawn, then one of its states, so that the few states near a rare reward are begun in as often as
the many before. The environment draws, with its own random stream.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import EnvSpec, SupportsStateReset
from robot_rl.core.errors import CheckpointError, ConfigError, SpecMismatchError
from robot_rl.datasets.episode import Episode
from robot_rl.training.config import SnapshotConfig, SnapshotValue

if TYPE_CHECKING:
    from robot_rl.datasets.reader import EpisodeDataset

_ROUNDS = 100
"""Of k-means; on a line it settles in fewer."""


class Snapshots:
    """States to begin in, in clusters one behind another; a `ResetStateSource`."""

    def __init__(
        self, states: dict[str, Tensor], sizes: Tensor, *, until: int, episode_steps: int,
        digest: str, sentence: str,
    ) -> None:  # fmt: skip
        """Use `open_snapshots`."""
        self._states, self._sizes = states, sizes
        self._firsts = sizes.cumsum(0) - sizes
        self.until, self.episode_steps = until, episode_steps
        self.sentence = sentence
        """The states, in one line."""
        self._digest = digest

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """States by the names of their parts, (count, W): of a cluster each, drawn alike."""
        unit = torch.rand(2, count, generator=generator, device=self._sizes.device).double()
        cluster = (unit[0] * len(self._sizes)).long()
        row = self._firsts[cluster] + (unit[1] * self._sizes[cluster]).long()
        return {name: part[row] for name, part in self._states.items()}

    def state_dict(self) -> dict[str, str]:
        """Digest of the states; what is drawn of them follows from the environment's state."""
        return {"digest": self._digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the same states.

        Raises:
            CheckpointError: They are others than the run began with.
        """
        if state.get("digest") != self._digest:
            raise CheckpointError(
                "the states of training.snapshots.data are not those that the run began in (their "
                f"digest was {str(state.get('digest'))[:12]}, and is {self._digest[:12]} now): the "
                "data set has grown, or another was named; name a copy of the old one"
            )


def open_snapshots(
    config: SnapshotConfig, widths: Mapping[str, int], spec: EnvSpec
) -> Snapshots:  # fmt: skip
    """Read the states of a data set; errors are those of `snapshot_resets`."""
    from robot_rl.datasets.reader import EpisodeDataset  # pyarrow is an extra

    dataset = EpisodeDataset(Path(config.data), images=False)
    _check(dataset, dict(widths), spec, config.data)
    parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in dataset.spec.states}
    values: list[NDArray[np.float64]] = []
    for episode in dataset:
        values.append(_values(episode, config)[episode.valid])
        for name, state in episode.states.items():
            parts[name].append(state[episode.valid])
    value = np.concatenate([np.zeros(0), *values])
    if not len(value):
        raise ConfigError(f"training.snapshots.data={config.data} holds no valid step")
    labels = clusters_of(value, config.clusters)
    order = np.argsort(labels, kind="stable")
    sizes, device = np.bincount(labels), spec.device
    spread = ", ".join(f"{size:,}" for size in sizes)
    return Snapshots(
        {n: torch.from_numpy(np.concatenate(one)[order]).to(device) for n, one in parts.items()},
        torch.from_numpy(sizes).to(device), until=config.steps,
        episode_steps=config.episode_steps, digest=dataset.digest,
        sentence=f"snapshots: episodes of the first {config.steps:,} env-steps begin in "
        f"{len(value):,} states of {config.data}, clusters of {spread}",
    )  # fmt: skip


def clusters_of(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """K-means on a line: a label for every value, (M,), ascending with it; none is empty.

    Args:
        values: (M,).
        count: Clusters; fewer come out where there are fewer different values.
    """
    different = np.unique(values)
    middles = different[np.linspace(0, len(different) - 1, min(count, len(different))).astype(int)]
    labels = np.zeros(len(values), np.int64)
    for _ in range(_ROUNDS):
        labels = np.searchsorted((middles[1:] + middles[:-1]) / 2, values)
        taken = np.unique(labels)
        moved = np.array([values[labels == label].mean() for label in taken])
        labels = np.searchsorted(taken, labels)
        if np.array_equal(moved, middles):
            break
        middles = moved
    return labels


def _values(episode: Episode, config: SnapshotConfig) -> NDArray[np.float64]:
    """Of every step the reward from it on, or before it, (T,)."""
    reward = np.where(episode.valid, episode.reward, 0.0).astype(np.float64)
    before = np.cumsum(reward) - reward
    if config.value is SnapshotValue.reward_so_far:
        return before
    if config.discount == 1:
        return reward.sum() - before
    to_come = 0.0 if episode.terminated[-1] else float(reward[-1]) / (1 - config.discount)
    values = np.empty_like(reward)
    for step in reversed(range(len(reward))):
        to_come = reward[step] + config.discount * to_come
        values[step] = to_come
    return values


def _check(
    dataset: "EpisodeDataset", expected: dict[str, int], spec: EnvSpec, where: str
) -> None:  # fmt: skip
    stored = dict(dataset.spec.states)
    if not stored:
        raise ConfigError(
            f"training.snapshots.data={where} holds no states of the simulation; expected a data "
            "set of robot-rl collect states=true: robots and other programs record none"
        )
    if stored != expected:
        raise SpecMismatchError(
            f"training.snapshots.data={where} holds states {stored} (part: width), and this run's "
            f"envs have {expected}; expected a data set of the same task and robot"
        )
    robot = None if spec.robot is None else spec.robot.identity()
    if dataset.spec.robot != robot:
        raise SpecMismatchError(
            f"training.snapshots.data={where} holds states of the robot {dataset.spec.robot}, and "
            f"this run's is {robot}; expected the same"
        )


def snapshot_resets(
    config: SnapshotConfig, spec: EnvSpec, env: SupportsStateReset | None
) -> Snapshots:
    """Let an environment begin its first episodes in states of a data set.

    Args:
        env: The environment; None where it cannot begin episodes in given states.

    Raises:
        ConfigError: The environment cannot, or the data set has no states.
        DatasetError: It is damaged, or none.
        SpecMismatchError: The states are of other envs.
    """
    if env is None:
        raise ConfigError(
            f"training.snapshots.data={config.data} was named, and this environment cannot begin "
            "episodes in given states; expected env=sim, without a base (learner=residual)"
        )
    snapshots = open_snapshots(config, env.state_widths, spec)
    env.set_reset_states(snapshots)
    return snapshots
