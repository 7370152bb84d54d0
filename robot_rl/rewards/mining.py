"""Hard negatives: episodes with frames that a classifier takes for a success, and that are none.

A policy that learns by a classifier looks for such frames by itself, so that the episodes of this
very policy are where to look. Labelled by the task's own rule or by a person, they join the data
that the next classifier learns from.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.rewards.classifier import SuccessClassifier
from robot_rl.rewards.hold import held_frames
from robot_rl.rewards.labels import Frames
from robot_rl.rewards.training import judge_frames


@dataclass(frozen=True, kw_only=True)
class FalsePositives:
    """Frames that fool a classifier."""

    episodes: NDArray[np.int64]
    """Numbers of the episodes that have some, ascending."""
    frames: int
    """Frames without success that are called one."""
    held: int
    """Frames without success that the k-of-m rule calls one: those that pay."""
    others: int
    """Frames without success in all episodes."""
    rule: str
    """The k-of-m rule in words."""


def find_false_positives(classifier: SuccessClassifier, frames: Frames) -> FalsePositives:
    """Look for frames that the classifier calls a success, and whose last stage is not reached.

    Args:
        classifier: The judge.
        frames: Of whole episodes; those of which nobody knows count on neither side.
    """
    config = classifier.config
    found = classifier.decide(judge_frames(classifier, frames.obs))
    held = held_frames(found.reached, frames.episode, config.hold, config.hold_window)[:, -1]
    other = frames.valid & frames.known[:, -1] & (frames.label[:, -1] == 0)
    wrong = found.reached[:, -1] & other
    return FalsePositives(
        episodes=np.unique(frames.episode[wrong].numpy()), frames=int(wrong.sum()),
        held=int((held & other).sum()), others=int(other.sum()),
        rule=f"{config.hold} of the last {config.hold_window} frames",
    )  # fmt: skip
