"""Learned rewards: trains a success classifier, tests it, and finds what fools it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.command_line import read_options
from robot_rl.core.errors import ConfigError, DatasetError, RewardError, unknown_name

if TYPE_CHECKING:
    from robot_rl.rewards.labels import LabelConfig
    from robot_rl.rewards.training import Quality

HELP = """Learns a reward from episodes: a classifier that says when a task is done.

usage: robot-rl reward train data=datasets/... out=rewards/... [option=value ...]
       robot-rl reward evaluate reward=rewards/... data=datasets/... [option=value ...]
       robot-rl reward mine reward=rewards/... data=datasets/... out=datasets/...

  train       an ensemble of small networks, calibrated; precision and recall on held-out episodes
  evaluate    precision and recall on other episodes
  mine        a data set of the episodes that fool it: successes that are none

options of train, labels and parts:
  data=                  data sets of episodes, failures among them: data=[datasets/a,datasets/b]
  out=                   folder of the reward
  labels=end             what a success is: end, the last frames of episodes that succeeded; a
                         reward term, as inserted>=0.5; reward>=1. Several are stages in order:
                         labels=[grasp>=0.5,lift>=0.9,hold>=0.5]
  positive_steps=10      last frames of a success, with labels=end
  margin_steps=20        frames before them that are left out, as nobody knows
  validation_share=0.15  part of the episodes that stops, calibrates and chooses the threshold
  holdout_share=0.25     part of the episodes that only measures

options of train, network and decision:
  groups=actor           observation groups that are read: of a robot, actor alone
  cameras=               cameras that are read: cameras=[wrist]
  encoder=conv           conv, resnet, keypoints or vit, of each camera
  shift=4                pixels by which frames are moved at random
  members=3              networks; where they disagree the frame is uncertain
  hidden=64,64           widths of their hidden layers
  precision=0.98         that the threshold is chosen for
  max_disagreement=0.25  from which on a frame is uncertain
  hold=3 hold_window=4   success is said after 3 of the last 4 frames

options of train, training:
  updates=2000           at most; stops after patience=8 looks, one per interval=100 updates
  batch_size=256 lr=0.001 weight_decay=0.001
  hard_share=0.3         of the frames without success, drawn from those that fool it most
  seed=0                 of parts, weights and minibatches

options of evaluate and mine:
  reward=                folder of a reward
  data=                  data sets that it is tested on
  labels=                what a success is there; as the reward was trained if empty
  out=                   folder of plots, or of the new data set

A run learns by it with reward.model=rewards/...; "Rewards" in the documentation says more.

examples:
  robot-rl collect task=reach task.kind=sparse episodes=150 out=datasets/reach
  robot-rl collect task=reach task.kind=sparse expert=random noise=0 out=datasets/reach append=true
  robot-rl reward train data=datasets/reach labels=reached out=rewards/reach
  robot-rl train task=reach task.kind=sparse learner=rlpd training.prior.run=datasets/reach \\
      reward.model=rewards/reach
  robot-rl collect task=reach task.kind=sparse expert=runs/<run> out=datasets/played
  robot-rl reward mine reward=rewards/reach data=datasets/played out=datasets/fooled
  robot-rl reward train data=[datasets/reach,datasets/fooled] labels=reached out=rewards/reach_2"""


@dataclass(kw_only=True)
class TrainOptions:
    """Options of `train` beside those of labels, network and training."""

    data: list[Path]
    """Data sets."""
    out: Path
    """Folder of the reward."""
    cameras: list[str] = field(default_factory=list[str])
    """Cameras that are read."""
    encoder: str = "conv"
    """Encoder of each camera: conv, resnet, keypoints or vit."""
    shift: int = 4
    """Random shift of frames [pixels]."""


@dataclass(kw_only=True)
class TestOptions:
    """Options of `evaluate` and `mine`."""

    reward: Path
    """Folder of a reward."""
    data: list[Path]
    """Data sets."""
    labels: list[str] = field(default_factory=list[str])
    """Success in these data; that of the reward if empty."""
    out: Path | None = None
    """Folder of plots, or of the new data set."""


def run(words: Sequence[str]) -> int:
    """Run the command that the first word names; returns the exit code."""
    command = words[0] if words else ""
    if command not in _COMMANDS:
        raise ConfigError(
            f"{unknown_name('command of reward', command, _COMMANDS)}; see: robot-rl reward --help"
        )
    return _COMMANDS[command](words[1:])


def _train(words: Sequence[str]) -> int:
    import torch

    from policies.networks.images import ImageConfig, ImageEncoderKind
    from robot_rl.rewards.artefact import LearnedReward, save_reward
    from robot_rl.rewards.classifier import ClassifierConfig
    from robot_rl.rewards.labels import LabelConfig, read_frames
    from robot_rl.rewards.training import FitConfig, fit
    from robot_rl.training.runs.provenance import plain

    torch.set_num_threads(1)
    options, labels, training, network = _read_all(
        words, TrainOptions, LabelConfig, FitConfig, ClassifierConfig
    )
    if options.out.exists():
        raise RewardError(f"out={options.out} exists already; choose another folder")
    left_out = (ImageEncoderKind.none, ImageEncoderKind.pretrained)  # a reward is whole in a folder
    kinds = [kind.value for kind in ImageEncoderKind if kind not in left_out]
    if options.encoder not in kinds:
        raise ConfigError(unknown_name("encoder", options.encoder, kinds))
    if options.cameras:
        kind = ImageEncoderKind[options.encoder]
        images = ImageConfig(
            encoder=kind, cameras=options.cameras, shift=options.shift, channels=[16, 32, 32],
            strides=[2, 2, 2],  # a robot's computer judges every period, and learns on its CPU
        )  # fmt: skip
        network = ClassifierConfig(**{**vars(network), "images": images})
    data = read_frames(options.data, labels, network.groups, network.cameras)
    _say_data(data.counts, data.frames, labels)
    if data.num_copies:
        print(f"copies      {data.num_copies} episodes; each is in the part of its original")
    began = time.monotonic()
    fitted = fit(data, labels, network, training, progress=_progress)
    for rule, good, threshold in zip(
        labels.rules, fitted.reached_precision, fitted.classifier.threshold.tolist(), strict=True
    ):
        text = f"threshold of {rule.text}: {threshold:.3f}"
        if not good:
            text += (
                f"; warning: none has the precision {network.precision:g} on the validation "
                "episodes: collect more of what fools it, or ask for less"
            )
        print(text)
    quality = fitted.holdout
    reward = LearnedReward(
        classifier=fitted.classifier, labels=plain(labels),
        shapes={name: tuple(group.shape[1:]) for name, group in data.frames.obs.items()},
        control_dt=data.spec.control_dt, robot=data.spec.robot,
        data={
            "digests": data.digests, "episodes": fitted.parts, "training": plain(training),
            "updates": fitted.updates,
        },
        quality=quality.to_dict(), examples=fitted.successes,
    )  # fmt: skip
    save_reward(options.out, reward)
    print(f"trained in {time.monotonic() - began:.1f} s; best after {fitted.updates} updates")
    _show(quality)
    _draw(quality, options.out / "plots")
    print(f"reward      {options.out}")
    print(f"next        robot-rl train ... reward.model={options.out}")
    return 0


def _evaluate(words: Sequence[str]) -> int:
    from robot_rl.rewards.training import evaluate

    options = read_options(TestOptions, words)
    reward, labels, data = _opened(options)
    _say_data(data.counts, data.frames, labels)
    if overlap := set(data.digests.values()) & set(reward.data["digests"].values()):
        names = [name for name, digest in data.digests.items() if digest in overlap]
        print(f"warning: {', '.join(names)}: it was trained on a part of these episodes")
    quality = evaluate(reward.classifier, data.frames, labels)
    _show(quality)
    if options.out is not None:
        _draw(quality, options.out)
    return 0


def _mine(words: Sequence[str]) -> int:
    from robot_rl.datasets.edit import joint_spec
    from robot_rl.datasets.reader import EpisodeDataset
    from robot_rl.datasets.writer import write_new
    from robot_rl.rewards.mining import find_false_positives

    options = read_options(TestOptions, words)
    if options.out is None:
        raise ConfigError("out is missing; say where the data set goes, as out=datasets/fooled")
    reward, labels, data = _opened(options)
    sets = [EpisodeDataset(folder) for folder in options.data]
    spec = joint_spec(sets)
    found = find_false_positives(reward.classifier, data.frames)
    print(
        f"{len(found.episodes)} of {len(data.succeeded)} episodes fool it, in {found.frames:,} of "
        f"{found.others:,} frames without success; {found.held:,} by {found.rule}"
    )
    if not len(found.episodes):
        print(f"nothing is written to {options.out}")
        return 0
    every = [(one, number) for one in sets for number in range(len(one))]
    chosen = (one.episode(number) for one, number in (every[i] for i in found.episodes))
    count = write_new(options.out, spec, chosen)
    print(f"wrote {count} episodes to {options.out}")
    text = ",".join(map(str, [*reward.data["digests"], options.out]))
    rules = ",".join(rule.text for rule in labels.rules)
    print(f"next        robot-rl reward train data=[{text}] 'labels=[{rules}]' out=...")
    return 0


def _opened(options: TestOptions) -> tuple[Any, "LabelConfig", Any]:
    """A reward, labels, and the frames of the data sets."""
    from robot_rl.rewards.artefact import load_reward
    from robot_rl.rewards.labels import LabelConfig, read_frames

    reward = load_reward(options.reward)
    given = {**reward.labels, **({"labels": options.labels} if options.labels else {})}
    labels = LabelConfig(**given)
    if len(labels.rules) != len(reward.stages):
        raise ConfigError(
            f"labels={options.labels} has {len(labels.rules)} stages, the reward {options.reward} "
            f"has {len(reward.stages)}: {', '.join(reward.stages)}"
        )
    config = reward.classifier.config
    data = read_frames(options.data, labels, config.groups, config.cameras)
    for name, shape in reward.shapes.items():
        got = tuple(data.frames.obs[name].shape[1:])
        if got != shape:
            raise DatasetError(
                f"the reward {options.reward} reads '{name}' of shape {shape}, the data have "
                f"{got}; expected data of the task that it was trained on"
            )
    return reward, labels, data


def _read_all(words: Sequence[str], *schemas: type[Any]) -> tuple[Any, ...]:
    """Options of several dataclasses out of one command line."""
    names = {entry.name: schema for schema in schemas for entry in fields(schema)}
    del names["images"]  # made of options of their own
    parts: dict[type[Any], list[str]] = {schema: [] for schema in schemas}
    for word in words:
        name, equals, _ = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}' is not an option; expected key=value")
        if name not in names:
            raise ConfigError(unknown_name("option", name, names))
        parts[names[name]].append(word)
    return tuple(read_options(schema, part) for schema, part in parts.items())


def _say_data(counts: dict[str, int], frames: Any, labels: "LabelConfig") -> None:
    for folder, count in counts.items():
        print(f"data        {folder}: {count} episodes")
    for stage, rule in enumerate(labels.rules):
        hits, others = frames.counts(stage)
        print(f"label       {rule.text}: {hits:,} frames of success, {others:,} not")


def _progress(update: int, loss: float, validation: float) -> None:
    print(f"{update:>6} updates   loss {loss:.4f}   validation {validation:.4f}", flush=True)


def _show(quality: "Quality") -> None:
    """Precision and recall as a table, with 95 % intervals."""
    print(f"on {quality.episodes} episodes, {quality.frames:,} frames; 95 % intervals in brackets")
    for one in quality.stages:
        print(f"{one.rule:<24}{'precision':<30}{'recall':<30}false positives / negatives")
        for name in ("frames", "held", "episodes"):
            told = getattr(one, name)
            print(
                f"  {name:<22}{told.precision!s:<30}{told.recall!s:<30}"
                f"{told.false_positive:,} / {told.false_negative:,}"
            )
        print(f"  calibration error     {one.calibration_error:.4f}")
    print(f"  uncertain             {100 * quality.uncertain:.1f} % of the frames")


def _draw(quality: "Quality", folder: Path) -> None:
    """Curves of precision and calibration, one picture a stage."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from robot_rl.training.storage.durable import storage_errors

    with storage_errors("draw into", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(quality.stages):
            figure = Figure(figsize=(9, 4), layout="constrained")
            FigureCanvasAgg(figure)
            left, right = figure.subplots(1, 2)
            left.step(one.curve.recall, one.curve.precision, where="post")
            left.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
            right.plot([0, 1], [0, 1], color="0.7")
            right.plot(one.bins.probability, one.bins.frequency, marker="o")
            right.set(xlabel="probability", ylabel="share of successes", xlim=(0, 1), ylim=(0, 1))
            figure.suptitle(f"{one.rule}, {quality.episodes} held-out episodes")
            figure.savefig(folder / f"stage_{number}.png", dpi=100)
    print(f"plots       {folder}")


_COMMANDS = {"train": _train, "evaluate": _evaluate, "mine": _mine}
