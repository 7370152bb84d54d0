"""Transitions of before: another run's saved replay, or a data set, mixed into every minibatch.

They are read once, when training begins, and never written. A data set is one of episodes
(`prior_episodes.py`), or a folder with the segments of a replay and `dataset.json`, which names
them and says what they hold:

    {"format": 1, "rows": {columns, reward_names, control_dt, robot},
     "shape": [steps, envs, floats], "total_steps": ..., "entries": [{segment, sha256, ...}]}
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.buffers.frames import image_bytes, is_image
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.buffers.returns import RowLayout, check_rows, picked_columns
from robot_rl.buffers.saved_rows import read_steps
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import CheckpointError, ConfigError, SpecMismatchError
from robot_rl.core.learner import Learner, MonteCarloReturns
from robot_rl.core.seeding import derive_seed
from robot_rl.datasets.files.manifest import is_dataset
from robot_rl.training.config import PriorConfig, Weighting
from robot_rl.training.ranks import check_room, replay_of
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.durable import replace_json, storage_errors
from robot_rl.training.storage.segments import SegmentStore

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter  # pyarrow is an extra


_DATASET = "dataset.json"
_FORMAT = 1
_SEEN = 65_536
"""Transitions whose observations the normalisers see first."""
_SEEN_WITH_IMAGES = 1024
"""Likewise where each has stacks of frames, whose copies take memory."""


class Prior:
    """Experience of before in memory, drawn with a random stream of its own."""

    def __init__(
        self, path: Path, replay: ReplayBuffer, digest: str, note: str = "",
        *, succeeded: Tensor | None = None, held_out: ReplayBuffer | None = None,
    ) -> None:  # fmt: skip
        """Use `open_prior`."""
        self.path = path
        self.replay = replay
        """Read only."""
        self.held_out = held_out
        """Never learned from."""
        self._digest, self._note, self._succeeded = digest, note, succeeded

    def set_sampling_weights(self, config: PriorConfig) -> None:
        """Draw episodes as the config says, by rewards as they are valued now.

        Raises:
            ConfigError: Nobody knows which episodes succeeded.
        """
        if config.weighting is Weighting.none:
            return
        told = self.replay.trajectories()
        if config.weighting is Weighting.returns:
            total = told.totals()
            low, high = total[told.valid].aminmax()
            good = (total - low) / (high - low).clamp(min=1e-9)
        elif self._succeeded is None:
            raise ConfigError(
                f"training.prior.weighting=success: {self.path} does not say which episodes "
                "succeeded; expected a data set that judges success: name it with "
                "robot-rl data relabel ... success=true, or take weighting=returns"
            )
        else:
            good = self._succeeded.float()
        good = torch.where(told.valid, good, -torch.inf)  # rows that are not hold zeros
        self.replay.set_sampling_weights(torch.exp((good - 1) / config.weighting_temperature))

    def warm_start_normalizers(self, learner: Learner) -> None:
        """Let the normalisers see these observations first: they may lie far from all others."""
        stored = self.replay.strided_sample(_SEEN_WITH_IMAGES if self.replay.has_images else _SEEN)
        valid = stored.weight > 0  # rows that are not hold zeros
        if bool(valid.any()):
            learner.observe_stored({name: group[valid] for name, group in stored.obs.items()})

    @property
    def sentence(self) -> str:
        """The transitions that are mixed in, and their memory."""
        size = self.replay.num_bytes / 1e6
        held = f"{len(self.replay):,} transitions, {size:,.0f} MB"
        if self.held_out is not None:
            held += f" ({len(self.held_out):,} more are held out)"
        return f"prior: {held}, from {self.path}{self._note}"

    def state_dict(self) -> dict[str, Any]:
        """Digest of the transitions, and their random stream."""
        return {"digest": self._digest, "generator": self.replay.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on drawing from the same transitions.

        Raises:
            CheckpointError: They are others than the run began with.
        """
        if state["digest"] != self._digest:
            raise CheckpointError(
                f"the transitions in {self.path} are not those that the run was mixed with (they "
                f"had the digest {state['digest'][:12]}, these have {self._digest[:12]}): the run "
                "they are from went on, or another folder was named; begin a new run, or name a "
                "copy of the old ones with training.prior.run=..."
            )
        self.replay.generator.set_state(state["generator"])


def open_prior(
    config: PriorConfig, own: ReplayBuffer, spec: EnvSpec, groups: Sequence[str], *, seed: int,
    augment: "ObservationAugmenter | None" = None, returns: MonteCarloReturns | None = None,
    held_out: float = 0.0, copies: int = 1,
) -> Prior:  # fmt: skip
    """Read the transitions of before.

    Args:
        own: Replay of the run they are mixed into; decides discount, steps and reward weights.
        held_out: Part of the episodes of a data set that is kept apart.
        copies: How many processes of this machine read them.

    Raises:
        ConfigError: There is no run and no data set, or it holds no transitions, or more than the
            memory does, or success is asked for that nobody judged.
        CheckpointError: What is there is damaged.
        DatasetError: It is a data set of episodes, and damaged or not ours.
        SpecMismatchError: The transitions do not fit; the message names both sides.
    """
    path = Path(config.run)
    check_place(config)
    if is_dataset(path):
        from robot_rl.training.prior_episodes import read_episodes  # pyarrow is an extra

        read = read_episodes(
            path, own, spec, groups, seed=derive_seed(seed, "prior"), returns=returns,
            held_out=held_out, augment=augment, copies=copies,
        )  # fmt: skip
        _check_valid(path, read.replay)
        return Prior(
            path, read.replay, read.digest, read.note, succeeded=read.succeeded,
            held_out=read.held_out,
        )  # fmt: skip
    if returns is not None and returns.failure_reward:
        raise ConfigError(
            f"learner.conservatism.failure_reward {returns.failure_reward} needs to know which "
            f"episodes failed, and the replay in {path} does not; expected a data set that judges "
            'success (see "Data sets of episodes"), or failure_reward=0'
        )
    saved, segments = read_saved(path)
    first = saved[0]
    check_rows(first["rows"], own.description, str(path))
    total_steps, slots = int(first["total_steps"]), first["shape"][0]
    envs = sum(one["shape"][1] for one in saved)
    held = min(total_steps, slots)
    if held < 1:
        raise ConfigError(f"training.prior.run: {path} holds no transitions yet")
    as_before = replace(spec, num_envs=envs)
    room = (slots if own.has_images else held) * envs  # frames lie beside the slots of their rows
    if own.has_images:
        _check_frames(path, saved, segments, as_before, groups)
    check_room(
        path, room, RowLayout(spec, groups), spec.device, copies,
        frames=image_bytes(as_before, groups, room),
    )  # fmt: skip
    replay = ReplayBuffer(
        as_before, groups, capacity=room, gamma=own.gamma,
        n_step=own.n_step, chunks=own.chunks, interventions=own.interventions,
        seed=derive_seed(seed, "prior"), returns=returns, compile=own.compile,
    )  # fmt: skip
    columns = torch.tensor(picked_columns(first["rows"], replay.layout))
    steps = zip(*(read_steps(one["entries"], segments) for one in saved), strict=True)
    kept = (
        torch.cat([rows[:, columns] for _, rows in each])
        for each in steps
        if each[0][0] >= total_steps - held
    )
    if own.has_images:
        replay.take_saved(first, kept, segments)
    else:
        replay.refill(kept)
    replay.share_weights(own)
    _check_valid(path, replay)
    return Prior(path, replay, _digest(saved, replay.stacks))


def check_place(config: PriorConfig) -> None:
    """Refuse a place where there is nothing, before anything is made."""
    if not Path(config.run).exists():
        raise ConfigError(
            f"training.prior.run: there is no '{config.run}'; expected the folder of a data set "
            "(robot-rl data info) or of a run"
        )


def _check_frames(
    path: Path, saved: Sequence[Mapping[str, Any]], segments: SegmentStore, spec: EnvSpec,
    groups: Sequence[str],
) -> None:  # fmt: skip
    """Refuse a saved replay without the pictures that a learner sees."""
    if len(saved) > 1:
        raise ConfigError(
            f"training.prior.run: {path} was trained by {len(saved)} processes, and pictures are "
            "read of one alone; name a run of one process, or a data set (robot-rl collect)"
        )
    known = saved[0].get("frames", {})
    for name in groups:
        if not is_image(spec.groups[name]):
            continue
        if name not in known or not known[name]["entries"]:
            raise SpecMismatchError(
                f"{path} stored no pictures '{name}', which this learner sees; it has "
                f"{', '.join(known) or 'none'}: name a run that saw them, or a data set"
            )
        wanted = list(spec.groups[name].shape)
        shape = known[name].get("shape")
        if shape is None:  # older runs tell stacks and bytes alone
            stack = known[name]["places"].shape[-1]
            size = segments.read(known[name]["entries"][0])["rows"].shape[-1]
        else:
            stack, size = shape[0], math.prod(shape[1:])
        if (shape or wanted) != wanted or [stack, size] != [wanted[0], math.prod(wanted[1:])]:
            raise SpecMismatchError(
                f"pictures '{name}' in {path} have {size} bytes each and stacks of {stack} "
                f"(frames, height, width, channels: {shape or 'not told'}), and this run's are "
                f"{wanted}; expected the same"
            )


def _check_valid(path: Path, replay: ReplayBuffer) -> None:
    if not bool(replay.trajectories().valid.any()):
        raise ConfigError(
            f"training.prior.run: none of the {len(replay):,} transitions in {path} is valid, so "
            "that there is nothing to learn from; name others"
        )


def write_dataset(folder: Path | str, replay: ReplayBuffer) -> Path:
    """Save the transitions of a replay as a new data set.

    Raises:
        ConfigError: The replay holds nothing or images, or something is in the folder already.
        StorageError: The disk refused.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} exists already and is not empty; choose a new folder for the data set"
        )
    if not len(replay):
        raise ConfigError(
            f"a data set was to be written to {folder}, and the replay holds no transitions; "
            "expected at least one: collect some first"
        )
    content = {"format": _FORMAT, **replay.export(SegmentStore(folder))}
    with storage_errors("write the data set", folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_json(folder / _DATASET, content)
    return folder


def read_saved(path: Path) -> tuple[list[Mapping[str, Any]], SegmentStore]:
    """Replays saved in a folder, as `ReplayBuffer.export` tells them, and their segments.

    Returns:
        The replay of every process that trained the run, of as many steps each; and the segments.

    Raises:
        ConfigError: There is no run, or it did not save its replay, or has none.
        CheckpointError: What is there is damaged.
    """
    if (path / _DATASET).is_file():
        return [_read_dataset(path / _DATASET)], SegmentStore(path)
    run = RunFolder.open(path)
    segments = SegmentStore(run.replay)
    state = CheckpointStore(run.checkpoints, segments=segments, read_only=True).load().state
    if "replay" not in state:
        raise ConfigError(
            f"the run {path} learned from demonstrations and has no replay; "
            f"name those, which are training.demonstrations.data of {run.config_path}"
        )
    saved = state["replay"]
    if "rows_saved" not in saved:
        raise ConfigError(
            f"the run {path} learned beside robots, and keeps their steps in "
            "its log instead of a replay; make a data set of them and name that: robot-rl data "
            f"convert {path} datasets/<name>"
        )
    if not saved["rows_saved"]:
        raise ConfigError(
            f"the run {path} did not save its replay "
            "(training.save_replay=false); name one that did"
        )
    if "rows" not in saved:
        raise ConfigError(
            f"the replay of {path} was saved by an earlier version, which did "
            "not say what its rows hold; resume that run for a moment, which saves it anew"
        )
    return [saved, *(replay_of(one, segments) for one in state.get("ranks", []))], segments


def _read_dataset(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        version = int(content["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the data set {path} cannot be read: {error}") from error
    if version > _FORMAT:
        raise CheckpointError(
            f"the data set {path} has format {version}, this program reads up to {_FORMAT}"
        )
    return content


def _digest(saved: Sequence[Mapping[str, Any]], cameras: Iterable[str]) -> str:
    """One digest of the segments that were read; their content was checked against theirs then."""
    parts = [part for one in saved for part in (one, *(one["frames"][name] for name in cameras))]
    each = "".join(str(entry["sha256"]) for part in parts for entry in part["entries"])
    return hashlib.sha256(each.encode()).hexdigest()
