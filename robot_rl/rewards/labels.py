"""Frames of stored episodes with labels of success, and their division by episode.

A step is judged by the frame that it led to. One rule makes a binary label; several make stages,
each label of which says that this stage is reached. Frames that a rule does not know, such as those
shortly before a success that was only judged at the episode's end, are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError, DatasetError, unknown_name
from robot_rl.core.meaning import meaning_of_groups
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.rewards.classifier import episode_obs

END, REWARD = "end", "reward"
"""Rules that are not named after a reward term."""
_FORM = re.compile(r"([A-Za-z_][\w./-]*?)(?:>=(-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))?")


@dataclass(frozen=True, kw_only=True)
class LabelRule:
    """Meaning of success in a frame."""

    name: str
    """`end`: the last frames of episodes that succeeded; `reward`, or a reward term: steps in which
    it is at least `at_least`."""
    at_least: float = 0.5

    @classmethod
    def parse(cls, text: str) -> "LabelRule":
        """Rule out of `end`, `reward>=1` or `<term>>=0.5`; a number that is left out is 0.5.

        Raises:
            ConfigError: It has another form.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None or (found[1] == END and found[2]):
            raise ConfigError(
                f"label '{text}' cannot be read; expected end, reward>=<number> or "
                "<reward term>>=<number>"
            )
        return cls(name=found[1], at_least=float(found[2] or 0.5))

    @property
    def text(self) -> str:
        """The rule as `parse` reads it."""
        return END if self.name == END else f"{self.name}>={self.at_least:g}"

    def check(self, spec: DatasetSpec, where: object) -> None:
        """Refuse a data set that does not know.

        Raises:
            DatasetError: It has no such reward term, or judges no success.
        """
        if self.name == END and not spec.judges_success:
            raise DatasetError(
                f"label=end was asked of {where}, which judges no success; name it with robot-rl "
                "data relabel ... success=true, or choose label=reward>=<number>"
            )
        known = (END, REWARD, *spec.reward_names)
        if self.name not in known:
            raise DatasetError(f"{where}: {unknown_name('label', self.name, known)}")


@dataclass(kw_only=True)
class LabelConfig:
    """Labels of frames, and their division."""

    labels: list[str] = field(default_factory=lambda: [END])
    """Rules, one for a binary label, several for stages in their order: end, reward>=1,
    inserted>=0.5."""
    positive_steps: int = 10
    """Last frames of a successful episode that are successes by label=end."""
    margin_steps: int = 20
    """Frames before these that label=end does not know: they are left out."""
    validation_share: float = 0.15
    """Share of the episodes that choose calibration and threshold."""
    holdout_share: float = 0.25
    """Share of the episodes that only measure."""

    def __post_init__(self) -> None:
        if not self.rules:
            raise ConfigError("labels is empty; expected a rule such as labels=[end]")
        if self.positive_steps < 1 or self.margin_steps < 0:
            raise ConfigError(
                "positive_steps must be at least 1 and margin_steps at least 0, got "
                f"{self.positive_steps} and {self.margin_steps}"
            )
        shares = (self.validation_share, self.holdout_share)
        if min(shares) <= 0 or sum(shares) > 0.8:
            raise ConfigError(
                "validation_share and holdout_share must be above 0 and leave at least 0.2 to "
                f"learn from, got {shares[0]} and {shares[1]}"
            )

    @property
    def rules(self) -> tuple[LabelRule, ...]:
        """The rules."""
        return tuple(LabelRule.parse(text) for text in self.labels)


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Frames with labels, in the order of their episodes."""

    obs: Obs
    """Groups, (B, D) each; images (B, 1, H, W, C)."""
    label: Tensor
    """(B, S), 1 where the stage is reached, else 0."""
    known: Tensor
    """(B, S) bool: false where nobody knows."""
    episode: Tensor
    """(B,) int64, number of the frame's episode, ascending."""
    valid: Tensor
    """(B,) bool: false for frames that must not be learned from."""

    def __len__(self) -> int:
        return len(self.episode)

    def take(self, rows: Tensor) -> "Frames":
        """Some of the frames: places, (R,) int64, or a mask, (B,) bool."""
        return Frames(
            obs={name: group[rows] for name, group in self.obs.items()}, label=self.label[rows],
            known=self.known[rows], episode=self.episode[rows], valid=self.valid[rows],
        )  # fmt: skip

    def counts(self, stage: int) -> tuple[int, int]:
        """Usable frames in which a stage is reached, and those in which it is not."""
        known = self.known[:, stage] & self.valid
        hits = int((self.label[known, stage] > 0).sum())
        return hits, int(known.sum()) - hits

    def of_episodes(self, numbers: NDArray[np.int64]) -> "Frames":
        """Frames of these episodes."""
        return self.take(torch.isin(self.episode, torch.from_numpy(numbers)))


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """Frames of one or several data sets, and what these are."""

    frames: Frames
    spec: DatasetSpec
    digests: dict[str, str]
    """Folder -> digest of all that is in it."""
    counts: dict[str, int]
    """Folder -> episodes."""
    sets: NDArray[np.int64]
    """Number of the data set of every episode."""
    succeeded: NDArray[np.bool_]
    """True for episodes in which every stage was reached at some time."""
    originals: NDArray[np.int64]
    """Number of the first episode of the same content, of every episode: its own if no copy."""

    @property
    def num_copies(self) -> int:
        """Episodes that are there already, mostly in another data set."""
        return int((self.originals != np.arange(len(self.originals))).sum())


def read_frames(
    folders: Sequence[Path], config: LabelConfig, groups: Sequence[str], cameras: Sequence[str]
) -> LabelledData:
    """Read all frames of data sets with their labels.

    Args:
        folders: Data sets of the same content.
        config: Labels.
        groups: Observation groups that are read.
        cameras: Cameras that are read.

    Raises:
        DatasetError: A set lacks a group, a camera or a label, or they do not go together.
    """
    if not folders:
        raise DatasetError("data is empty; name data sets as data=datasets/peg")
    sets = [EpisodeDataset(folder, images=bool(cameras)) for folder in folders]
    first = sets[0]
    for one in sets:
        specs = (_as_seen(first.spec, groups), _as_seen(one.spec, groups))
        specs[0].check_same(specs[1], str(first.folder), str(one.folder))
        for rule in config.rules:
            rule.check(one.spec, one.folder)
    for name in groups:
        if name not in first.spec.groups:
            raise DatasetError(f"{first.folder}: {unknown_name('group', name, first.spec.groups)}")
    for name in cameras:
        if name not in first.spec.images:
            raise DatasetError(f"{first.folder}: {unknown_name('camera', name, first.spec.images)}")
    parts: list[Frames] = []
    succeeded: list[bool] = []
    for one in (episode for dataset in sets for episode in dataset):
        parts.append(_frames(one, len(parts), first.spec, config, groups, cameras))
        hit = (parts[-1].label > 0) & parts[-1].known
        succeeded.append(bool(hit.any(0).all()))
    names = [*groups, *(IMAGE_PREFIX + name for name in cameras)]
    frames = Frames(
        obs={name: torch.cat([part.obs[name] for part in parts]) for name in names},
        **{
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("label", "known", "episode", "valid")
        },
    )
    return LabelledData(
        frames=frames, spec=first.spec, succeeded=np.array(succeeded),
        digests={str(one.folder): one.digest for one in sets},
        counts={str(one.folder): len(one) for one in sets},
        sets=np.repeat(np.arange(len(sets)), [len(one) for one in sets]),
        originals=_originals([digest for one in sets for digest in one.episode_digests]),
    )  # fmt: skip


def label_episode(
    episode: Episode, names: Sequence[str], config: LabelConfig
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Labels of the frames after the first, (T, S), and whether they are known, (T, S) bool.

    Args:
        episode: T steps.
        names: Of the reward terms.
        config: Labels.
    """
    steps = episode.num_steps
    label = np.zeros((steps, len(config.rules)), np.float32)
    known = np.ones(label.shape, bool)
    for stage, rule in enumerate(config.rules):
        if rule.name == END:
            if episode.success[-1]:
                first = max(0, steps - config.positive_steps)
                label[first:, stage] = 1.0
                known[max(0, first - config.margin_steps) : first, stage] = False
            continue
        terms = episode.reward_terms
        value = episode.reward
        if terms is not None and rule.name in names:
            value = terms[:, names.index(rule.name)]
        label[:, stage] = value >= rule.at_least
    return label, known


def split_episodes(
    data: LabelledData, config: LabelConfig, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the episodes to learn from, to calibrate with, and to measure with.

    Every data set is divided on its own, and of it successes and others, so that each part has
    some of both where there are enough. Copies of an episode are in the part of the first of them:
    what was learned from does not measure.

    Raises:
        DatasetError: A part has no success, or none but successes.
    """
    rng = np.random.default_rng(seed)
    parts: list[list[int]] = [[], [], []]
    first = data.originals == np.arange(len(data.originals))
    for number in range(int(data.sets.max()) + 1):
        for won in (True, False):
            episodes = np.flatnonzero((data.sets == number) & (data.succeeded == won) & first)
            order = rng.permutation(episodes).tolist()
            count = len(order)
            ends = [round(config.holdout_share * count)]
            ends.append(ends[0] + round(config.validation_share * count))
            for part, found in zip(
                (2, 1, 0), (order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] :]),
                strict=True,
            ):  # fmt: skip
                parts[part] += found
    made = tuple(np.flatnonzero(np.isin(data.originals, part)) for part in parts)
    for name, part in zip(("learn from", "calibrate with", "measure with"), made, strict=True):
        frames = data.frames.of_episodes(part)
        for stage, rule in enumerate(config.rules):
            hits, others = frames.counts(stage)
            if hits == 0 or others == 0:
                raise DatasetError(
                    f"label {rule.text}: the {len(part)} episodes to {name} have {hits} frames of "
                    f"success and {others} others, and need some of both; collect "
                    "more episodes, failures among them, or choose other shares or another label"
                )
    return made  # type: ignore[return-value]


def _as_seen(spec: DatasetSpec, groups: Sequence[str]) -> DatasetSpec:
    """A spec that tells the meaning of these groups alone: frames show no action."""
    seen = meaning_of_groups(spec.meaning, groups)
    return replace(spec, meaning={name: value for name, value in seen.items() if name == "terms"})


def _originals(digests: Sequence[str]) -> NDArray[np.int64]:
    first: dict[str, int] = {}
    return np.array([first.setdefault(digest, i) for i, digest in enumerate(digests)], np.int64)


def _frames(
    episode: Episode, number: int, spec: DatasetSpec, config: LabelConfig,
    groups: Sequence[str], cameras: Sequence[str],
) -> Frames:  # fmt: skip
    label, known = label_episode(episode, spec.reward_names, config)
    return Frames(
        obs=episode_obs(episode, groups, cameras),
        label=torch.from_numpy(label),
        known=torch.from_numpy(known),
        episode=torch.full((len(label),), number),
        valid=torch.from_numpy(episode.valid),
    )
