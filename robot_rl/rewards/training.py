"""Training of a success classifier: balanced minibatches, hard negatives, calibration, threshold.

    episodes to learn from   -> minibatches, half of them of each level of success
    episodes to calibrate    -> when to stop; temperature and offset; threshold
    episodes to measure      -> precision, recall, calibration error: looked at once, at the end

Frames that are no success and that the members take for one are the hard negatives: a share of
every minibatch is drawn from the hardest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError, DatasetError
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.optimization import DescentConfig, Optimizer, ScheduleConfig
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier, member_frames
from robot_rl.rewards.hold import held_frames
from robot_rl.rewards.labels import Frames, LabelConfig, LabelledData, split_episodes
from robot_rl.rewards.quality import (
    CalibrationBins,
    Confusion,
    Curve,
    calibration_bins,
    choose_threshold,
    episode_confusion,
    frame_confusion,
    precision_curve,
)

_CHUNK = 4096
"""Frames that are judged at once."""
_EXAMPLES, _EXAMPLE_BYTES = 1000, 16_000_000
"""Most frames of success, and bytes of them, that are kept."""
_HARDEST = 0.02
"""Share of the frames without success that hard negatives are drawn from."""
_CALIBRATION_STEPS = 200
"""Of Newton's method with a line search; it needs ten."""


@dataclass(kw_only=True)
class FitConfig:
    """Training of a classifier."""

    updates: int = 2000
    """Most updates."""
    batch_size: int = 256
    """Frames of a minibatch, each member its own."""
    lr: float = 1e-3
    """Step size of AdamW, which falls to a tenth by half a cosine."""
    weight_decay: float = 1e-3
    """Decay of the weights."""
    hard_share: float = 0.3
    """Share of the frames without success in a minibatch that are hard negatives."""
    interval: int = 100
    """Updates between two looks at the validation episodes and at what is hard."""
    patience: int = 8
    """Looks without a lower loss after which training stops."""
    seed: int = 0
    """Of the division into parts, the weights and the minibatches."""

    def __post_init__(self) -> None:
        for name in ("updates", "batch_size", "interval", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise ConfigError(f"seed must be at least 0, got {self.seed}")
        if not 0 <= self.hard_share <= 0.9:
            raise ConfigError(f"hard_share must lie in [0, 0.9], got {self.hard_share}")
        if not self.lr > 0 or self.weight_decay < 0:
            raise ConfigError(
                f"lr must be above 0 and weight_decay at least 0, got {self.lr} and "
                f"{self.weight_decay}"
            )


@dataclass(frozen=True, kw_only=True)
class StageQuality:
    """Quality of one stage on some episodes."""

    rule: str
    """Label."""
    frames: Confusion
    """Decisions about single frames."""
    held: Confusion
    """Decisions by the k-of-m rule, frame by frame."""
    episodes: Confusion
    """Episodes in which the k-of-m rule ever said success, beside those with a success."""
    calibration_error: float
    """Expected calibration error."""
    curve: Curve
    bins: CalibrationBins

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "label": self.rule, "frames": self.frames.to_dict(), "held": self.held.to_dict(),
            "episodes": self.episodes.to_dict(),
            "calibration_error": round(self.calibration_error, 6),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Quality of a classifier on some episodes."""

    stages: list[StageQuality]
    uncertain: float
    """Share of frames about which the members disagree."""
    episodes: int
    frames: int

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "episodes": self.episodes, "frames": self.frames, "uncertain": round(self.uncertain, 6),
            "stages": [one.to_dict() for one in self.stages],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained classifier."""

    classifier: SuccessClassifier
    holdout: Quality
    """Measured on episodes that decided nothing."""
    reached_precision: list[bool]
    """Per stage: the wanted precision was reached on the validation episodes."""
    updates: int
    """Updates after which the loss was lowest."""
    parts: dict[str, int]
    """Episodes of each part."""
    losses: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    """Update, training loss, validation loss."""
    successes: Obs = field(default_factory=dict[str, Tensor])
    """Frames that it learned success from, evenly spread over the data, groups (B, ...)."""


def fit(
    data: LabelledData, labels: LabelConfig, config: ClassifierConfig, training: FitConfig, *,
    progress: Callable[[int, float, float], object] = lambda *_: None,
) -> Fitted:  # fmt: skip
    """Train, calibrate, choose thresholds, measure.

    Args:
        data: Frames with labels.
        labels: Rules, and shares of the parts.
        config: Shape and decision.
        training: Updates.
        progress: Is told update, training loss and validation loss.

    Raises:
        DatasetError: A part has no success or nothing else.
    """
    learn, validate, measure = split_episodes(data, labels, training.seed)
    frames = _usable(data.frames.of_episodes(learn))
    held_out = _usable(data.frames.of_episodes(validate))
    shapes = {name: group.shape[1:] for name, group in data.frames.obs.items()}
    seed = derive_seed(training.seed, "classifier")
    classifier = SuccessClassifier(config, shapes, len(labels.rules), seed)
    classifier.update_statistics(frames.obs)
    best, losses = _descend(classifier, frames, held_out, training, progress)
    calibrate(classifier, held_out)
    reached = set_thresholds(classifier, held_out)
    quality = evaluate(classifier, data.frames.of_episodes(measure), labels)
    return Fitted(
        classifier=classifier, holdout=quality, reached_precision=reached, updates=best,
        parts={"train": len(learn), "validation": len(validate), "holdout": len(measure)},
        losses=losses, successes=_successes(frames),
    )  # fmt: skip


def masked_loss(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """Mean cross entropy over members and the stages that are known.

    Args:
        logits: (E, B, S).
        label: (B, S) or (E, B, S), 0 or 1.
        known: Of the label's shape, bool.
    """
    each = cross_entropy(logits, label.expand_as(logits), reduction="none")
    weight = known.expand_as(logits).to(each.dtype)
    return (each * weight).sum() / weight.sum().clamp_min(1.0)


@torch.no_grad()
def judge_frames(classifier: SuccessClassifier, obs: Obs) -> Tensor:
    """Calibrated probabilities of each member about many frames, (E, B, S)."""
    count = len(next(iter(obs.values())))
    return torch.cat([
        classifier.probabilities({name: group[at : at + _CHUNK] for name, group in obs.items()})
        for at in range(0, count, _CHUNK)
    ], dim=1)  # fmt: skip


def calibrate(classifier: SuccessClassifier, frames: Frames) -> None:
    """Set temperature and offset of every stage by the likelihood of held-out frames.

    Targets are Platt's, a little inside 0 and 1, so that frames which are divided without a mistake
    leave a finite answer.

    Args:
        classifier: Changed in place.
        frames: Of episodes that it did not learn from.
    """
    classifier.temperature.fill_(1.0)
    classifier.offset.fill_(0.0)
    logits = torch.logit(judge_frames(classifier, frames.obs).double().clamp(1e-12, 1 - 1e-12))
    for stage in range(classifier.stages):
        known = frames.known[:, stage]
        label = frames.label[known, stage].double()
        hits, others = float(label.sum()), float((1 - label).sum())
        target = torch.where(label > 0, (hits + 1) / (hits + 2), 1 / (others + 2))
        scale, offset = fit_scale(logits[:, known, stage], target)
        classifier.temperature[stage] = 1 / scale
        classifier.offset[stage] = offset


def fit_scale(logits: Tensor, target: Tensor) -> tuple[float, float]:
    """Scale and offset of logits whose mean probability fits targets best.

    Args:
        logits: (E, B), float64.
        target: (B,), float64, in (0, 1).

    Returns:
        s > 0 and b of mean_e sigmoid(s l_e + b).
    """
    free = torch.zeros(2, dtype=torch.float64, requires_grad=True)  # log s, b
    optimizer = torch.optim.LBFGS(
        [free], max_iter=_CALIBRATION_STEPS, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        mean = torch.sigmoid(free[0].exp() * logits + free[1]).mean(0).clamp(1e-12, 1 - 1e-12)
        value = -(target * mean.log() + (1 - target) * (1 - mean).log()).mean()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return float(free[0].detach().clamp(-4, 4).exp()), float(free[1].detach().clamp(-20, 20))


def set_thresholds(classifier: SuccessClassifier, frames: Frames) -> list[bool]:
    """Choose the threshold of every stage on held-out frames; returns where it is precise enough.

    Frames about which the members disagree do not count: they are never called a success.
    """
    members = judge_frames(classifier, frames.obs)
    found = classifier.decide(members)
    sure = found.disagreement <= classifier.config.max_disagreement
    reached: list[bool] = []
    for stage in range(classifier.stages):
        known = frames.known[:, stage] & sure[:, stage]
        curve = precision_curve(
            found.probability[known, stage].numpy(), frames.label[known, stage].numpy() > 0
        )
        threshold, good = choose_threshold(curve, classifier.config.precision)
        classifier.threshold[stage] = threshold
        reached.append(good)
    return reached


def evaluate(classifier: SuccessClassifier, frames: Frames, labels: LabelConfig) -> Quality:
    """Measure on whole episodes.

    Raises:
        DatasetError: There is no frame.
    """
    if not len(frames):
        raise DatasetError("there is no frame to evaluate with; name a data set with episodes")
    found = classifier.decide(judge_frames(classifier, frames.obs))
    config = classifier.config
    held = held_frames(found.reached, frames.episode, config.hold, config.hold_window)
    made: list[StageQuality] = []
    episode = frames.episode.numpy()
    _, first = np.unique(episode, return_index=True)
    for stage, rule in enumerate(labels.rules):
        known = (frames.known[:, stage] & frames.valid).numpy()
        label = frames.label[:, stage].numpy() > 0
        probability = found.probability[:, stage].double().numpy()
        said = held[:, stage].numpy()
        bins = calibration_bins(probability[known], label[known])
        made.append(StageQuality(
            rule=rule.text,
            frames=frame_confusion(
                found.reached[:, stage].numpy()[known], label[known], episode[known]
            ),
            held=frame_confusion(said[known], label[known], episode[known]),
            episodes=episode_confusion(
                np.logical_or.reduceat(said, first), np.logical_or.reduceat(label & known, first)
            ),
            calibration_error=bins.error, bins=bins,
            curve=precision_curve(probability[known], label[known]),
        ))  # fmt: skip
    return Quality(
        stages=made, uncertain=float(found.uncertain.float().mean()), episodes=len(first),
        frames=len(frames),
    )  # fmt: skip


def _successes(frames: Frames) -> Obs:
    """Frames in which all stages are reached, as many as are kept."""
    rows = ((frames.label > 0) & frames.known).all(-1).nonzero()[:, 0]
    size = sum(group[0].numel() * group.element_size() for group in frames.obs.values())
    most = min(_EXAMPLES, _EXAMPLE_BYTES // size)
    chosen = rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).round().long()]
    return {name: group[chosen].clone() for name, group in frames.obs.items()}


def _usable(frames: Frames) -> Frames:
    """Frames that are valid and of which some stage is known."""
    return frames.take(frames.valid & frames.known.any(-1))


def _descend(
    classifier: SuccessClassifier, frames: Frames, held_out: Frames, config: FitConfig,
    progress: Callable[[int, float, float], object],
) -> tuple[int, list[tuple[int, float, float]]]:  # fmt: skip
    """Update the members until the loss on held-out frames falls no more; keep the best weights."""
    schedule = ScheduleConfig(end=0.1, decay=config.updates)
    optimizer = Optimizer(
        classifier.parameters(), config.lr, DescentConfig(lr_schedule=schedule),
        weight_decay=config.weight_decay, max_grad_norm=1.0,
    )  # fmt: skip
    batches = Minibatches(classifier, frames, config)
    best, kept, losses = (0, float("inf")), _copied(classifier), list[tuple[int, float, float]]()
    total = torch.zeros(())
    for update in range(1, config.updates + 1):
        obs, label, known = batches.draw()
        loss = masked_loss(classifier.logits(obs), label, known)
        optimizer.step(loss)
        total += loss.detach()
        if update % config.interval and update != config.updates:
            continue
        validation = _balanced_loss(classifier, held_out)
        losses.append(
            (update, float(total) / (update - (losses[-1][0] if losses else 0)), validation)
        )
        progress(*losses[-1])
        total.zero_()
        if validation < best[1]:
            best, kept = (update, validation), _copied(classifier)
        elif len(losses) - best[0] // config.interval > config.patience:
            break
        batches.find_hard()
    classifier.load_state_dict(kept)
    return best[0], losses


def _copied(classifier: SuccessClassifier) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in classifier.state_dict().items()}


@torch.no_grad()
def _balanced_loss(classifier: SuccessClassifier, frames: Frames) -> float:
    """Cross entropy of held-out frames, successes and others weighed alike, mean over stages."""
    probability = judge_frames(classifier, frames.obs).double().clamp(1e-9, 1 - 1e-9)
    each = -torch.where(frames.label > 0, probability.log(), (1 - probability).log()).mean(0)
    parts = [
        each[:, stage][frames.known[:, stage] & ((frames.label[:, stage] > 0) == won)].mean()
        for stage in range(classifier.stages)
        for won in (True, False)
    ]
    return float(torch.stack(parts).mean())


class Minibatches:
    """Draws frames of all levels of success alike often, and of those that are hard more often."""

    def __init__(self, classifier: SuccessClassifier, frames: Frames, config: FitConfig) -> None:
        """Sort the frames by how many stages they have reached."""
        self._classifier, self._frames, self._config = classifier, frames, config
        self._generator = torch.Generator().manual_seed(derive_seed(config.seed, "minibatches"))
        level = ((frames.label > 0) & frames.known).sum(-1)
        self._levels = [
            rows
            for count in range(classifier.stages + 1)
            if len(rows := (level == count).nonzero()[:, 0])
        ]
        self._lower = (level < classifier.stages).nonzero()[:, 0]
        self.hard = self._lower[:0]
        """Rows of the hardest frames; none before `find_hard`."""

    def draw(self) -> tuple[Obs, Tensor, Tensor]:
        """A minibatch: groups (E, B, ...), labels and whether they are known (E, B, S)."""
        config, members = self._config, self._classifier.config.members
        rows = torch.cat([self._drawn(level, members, share) for level, share in self._shares()], 1)
        obs = member_frames(self._classifier, self._frames.obs, rows, self._generator)
        assert rows.shape[1] <= config.batch_size
        return obs, self._frames.label[rows], self._frames.known[rows]

    def find_hard(self) -> None:
        """Look for frames that are taken for more than they are."""
        if not len(self._lower) or not self._config.hard_share:
            return
        obs = {name: group[self._lower] for name, group in self._frames.obs.items()}
        probability = judge_frames(self._classifier, obs).mean(0)
        wrong = (1 - self._frames.label[self._lower]) * self._frames.known[self._lower]
        hardness = (probability * wrong).amax(-1)
        count = min(len(self._lower), max(self._config.batch_size, int(_HARDEST * len(hardness))))
        self.hard = self._lower[hardness.topk(count).indices]

    def _shares(self) -> Iterator[tuple[Tensor, int]]:
        """Rows to draw from, and how many are drawn."""
        share = self._config.batch_size // len(self._levels)
        for place, rows in enumerate(self._levels):
            last = place == len(self._levels) - 1
            hard = 0 if last or not len(self.hard) else int(self._config.hard_share * share)
            yield rows, share - hard
            if hard:
                yield self.hard, hard

    def _drawn(self, rows: Tensor, members: int, count: int) -> Tensor:
        places = torch.randint(len(rows), (members, count), generator=self._generator)
        return rows[places]
