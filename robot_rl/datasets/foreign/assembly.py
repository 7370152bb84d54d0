"""From what others keep to episodes of ours: groups, ranges, ends, and what they do not say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError, unknown_name
from robot_rl.datasets.episode import Episode, Flags
from robot_rl.datasets.spec import DatasetSpec

Array = NDArray[Any]


class Done(StrEnum):
    """Meaning of a `done` that does not say whether the task or a time limit ended it."""

    terminated = "terminated"
    truncated = "truncated"


@dataclass(frozen=True, kw_only=True)
class ImportChoices:
    """Settings that foreign data do not contain, or express differently."""

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Observation group -> keys of theirs that make it, side by side; empty takes each key as a
    group, and a single one as `actor`."""
    control_dt: float | None = None
    """Time between two actions [s]; None takes what the data say."""
    action_range: tuple[float, float] | None = None
    """Values of their actions for -1 and 1; None if these lie in [-1, 1] already."""
    done: Done = Done.terminated
    """Meaning of their `done`."""
    task: str = ""
    """Task in words, where the data do not say."""
    robot: Mapping[str, Any] | None = None
    """Robot, as of `RobotSpec.identity`; None takes the one that the data name."""


@dataclass(frozen=True, kw_only=True)
class RawEpisode:
    """An episode as others keep it."""

    where: str
    """File and episode, for messages."""
    frames: Mapping[str, Array]
    """Observations by their keys, each (T + 1, ...)."""
    action: Array
    """(T, A)."""
    reward: Array
    """(T,)."""
    terminated: Array
    """(T,)."""
    truncated: Array
    """(T,)."""
    more: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Further fields of an `Episode` that the data have."""
    task: str = ""
    """Task in words, if the data say so."""
    digest: str = ""
    """`Episode.digest` of the one that was exported; empty for those of others."""
    digest_place: str = "the attribute 'robot_rl_sha256'"
    """Place in the data, for messages."""


DIGEST = "robot_rl_sha256"
"""Key under which exports keep the digest of an episode."""


@dataclass
class BehindDone:
    """Steps that demonstrations have behind the first `done`, which are left out."""

    steps: int = 0
    episodes: int = 0
    reward: float = 0.0
    """Sum of theirs."""
    total: int = 0
    """Steps of all episodes so far, those that are left out included."""

    @property
    def note(self) -> str:
        """The sentence about them."""
        return (
            f"{self.steps:,} of {self.total:,} steps are left out, with their reward of "
            f"{self.reward:g}: they lie behind the first end, in {self.episodes:,} episodes; "
            "done=truncated keeps them"
        )


@dataclass
class Source:
    """Data of others that are being read."""

    path: Path
    raw: Iterator[RawEpisode] = field(default_factory=lambda: iter(()))
    control_dt: float | None = None
    """As the data say [s]."""
    count: int | None = None
    """Episodes that there should be, if the data say so."""
    own: DatasetSpec | None = None
    """Of a data set of ours that the data were exported from."""
    reward_names: tuple[str, ...] = ()
    """Of the reward terms, if the data have terms and name them."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what is left out; complete when the last episode was read."""
    behind_done: BehindDone = field(default_factory=BehindDone)


def imported(source: Source, choices: ImportChoices) -> tuple[DatasetSpec, Iterator[Episode]]:
    """The episodes of a source, and the spec that all of them must meet.

    Raises:
        DatasetError: There is no episode, or the data do not say enough.
    """
    some = _with_steps(source)
    first = next(some, None)
    if first is None:
        raise DatasetError("there is no episode with a step to import; expected at least one")
    groups = choices.groups or _groups(first.frames, source.own)
    sample = _episode(first, groups, choices)
    spec = _spec(sample, source, choices, first)
    raw = chain([first], some)
    return spec, (_as_exported(one, groups, choices, spec) for one in raw)


def without_successor(frames: Mapping[str, Array], terminated: bool) -> dict[str, Array]:
    """Frames (T, ...) that lack the last successor, as far as they make transitions.

    After a termination nothing that follows counts: the last frame is repeated. Else the last
    action is left out by the caller, and these T frames hold T - 1 transitions.
    """
    if not terminated:
        return dict(frames)
    return {name: np.concatenate([value, value[-1:]]) for name, value in frames.items()}


def cut_at_done(done: Array, meaning: Done) -> tuple[int, Flags, Flags]:
    """End of an episode of (T,) `done`: steps, terminated, truncated.

    Some set `done` from a success on, while the demonstration goes on: as a termination, the first
    one ends the episode; as a truncation, the last step does.
    """
    marked = np.flatnonzero(done)
    over = meaning is Done.terminated and len(marked) > 0
    steps = int(marked[0]) + 1 if over else len(done)
    last = np.arange(steps) == steps - 1
    return steps, last & over, last & (not over)


def note_behind_done(source: Source, rewards: Array, steps: int) -> None:
    """Say how many steps of all episodes so far are left out, as `cut_at_done` cuts them.

    Args:
        rewards: Of all steps of an episode.
        steps: Of them, those that are kept.
    """
    behind, left = source.behind_done, rewards[steps:]
    told = [note for note in source.notes if note != behind.note]
    behind.total += len(rewards)
    if len(left):
        behind.steps, behind.episodes = behind.steps + len(left), behind.episodes + 1
        behind.reward += float(np.sum(left))
    if behind.steps:
        source.notes[:] = [*told, behind.note]


def note_done(source: Source, name: str, meaning: Done) -> None:
    """Say, once, what the `done` of a source was taken for."""
    other = Done.truncated if meaning is Done.terminated else Done.terminated
    note = f"'{name}' was taken for '{meaning}'; if it is not, import with done={other}"
    if note not in source.notes:
        source.notes.append(note)


def success_without_last(success: Array, steps: int) -> Array:
    """Success of the steps that are kept, of one that is dropped with the action that reached it.

    Args:
        success: (T,), of all actions.
        steps: Of them, those that have a successor; all, or all but the last.
    """
    kept = success.reshape(-1)[:steps].astype(bool)
    if len(kept):
        kept[-1] |= bool(success.reshape(-1)[steps:].any())
    return kept


def note_dropped(notes: list[str], rewards: Array) -> None:
    """Say, once, that actions without a successor were paid for.

    Args:
        notes: Of the source.
        rewards: Of the actions that are left out.
    """
    note = (
        "where nothing says that the task ended, the last action has no successor and is left out, "
        "with its reward, which is not always 0"
    )
    if np.any(rewards) and note not in notes:
        notes.append(note)


def vectors(arrays: Mapping[str, Array], source: Source) -> dict[str, Array]:
    """Those of numbers and vectors in every row; others are noted as left out."""
    for key, value in arrays.items():
        note = f"'{key}' of shape {value.shape[1:]} is left out: it is no vector"
        if value.ndim > 2 and note not in source.notes:
            source.notes.append(note)
    return {key: value for key, value in arrays.items() if value.ndim <= 2}


def check_rows(where: str, arrays: Mapping[str, Array], rows: int, like: str) -> None:
    """Refuse arrays that are not of so many rows."""
    for name, value in arrays.items():
        if value.shape[:1] != (rows,):
            raise DatasetError(
                f"{where}: '{name}' has the shape {value.shape}; expected {rows} rows, as {like}"
            )


def check_told(where: str, told: Any, steps: int) -> None:
    """Refuse an episode that is not as long as it says itself, if it does."""
    if told is not None and not np.array_equal(np.ravel(told), [steps]):
        raise DatasetError(
            f"{where} has {steps} actions; expected {told}, as it says itself: it is damaged or "
            "incomplete"
        )


def _with_steps(source: Source) -> Iterator[RawEpisode]:
    """Episodes of more than a single frame."""
    found = 0
    for found, one in enumerate(source.raw, 1):  # noqa: B007 - the last number is what counts
        if len(one.action):
            yield one
        else:
            source.notes.append(f"{one.where} is left out: it has no frame after the first")
    if source.count is not None and found != source.count:
        raise DatasetError(
            f"{source.path} has {found} episodes; expected {source.count}, as it says itself: it "
            "is damaged or incomplete"
        )


def _as_exported(
    raw: RawEpisode,
    groups: Mapping[str, tuple[str, ...]],
    choices: ImportChoices,
    spec: DatasetSpec,
) -> Episode:
    found = _episode(raw, groups, choices).checked(spec, raw.where)
    chosen = choices.groups or choices.action_range
    # The task may be named now; what was exported had the file's.
    if raw.digest and not chosen and replace(found, task=raw.task).digest() != raw.digest:
        raise DatasetError(
            f"{raw.where} is not the episode that was exported: the file is damaged, or was "
            f"changed; if you changed it, remove {raw.digest_place} there"
        )
    return found


def _episode(
    raw: RawEpisode, groups: Mapping[str, tuple[str, ...]], choices: ImportChoices
) -> Episode:
    where, steps = raw.where, len(raw.action)
    own = {"reward": raw.reward, "terminated": raw.terminated, "truncated": raw.truncated}
    more = {name: value for name, value in raw.more.items() if name != "stamp_ns"}
    check_rows(where, {**own, **more}, steps, "the actions")
    check_rows(where, raw.frames, steps + 1, "the actions and the end")
    if np.issubdtype(raw.action.dtype, np.integer) and "action" not in raw.more:
        raise DatasetError(f"{where}: the actions are whole numbers; expected continuous actions")
    action = _floats(raw.action, "the action", where)
    if choices.action_range is not None:
        low, high = choices.action_range
        action = ((action - low) / (high - low) * 2 - 1).astype(np.float32)
    terminated = raw.terminated.astype(bool)
    truncated = raw.truncated.astype(bool) & ~terminated  # termination wins
    if steps and not (terminated[-1] or truncated[-1]):
        truncated[-1] = True  # the recording ends here
    flags = {
        name: raw.more[name].astype(bool) if name in raw.more else np.full(steps, name == "valid")
        for name in ("success", "valid", "intervened")
    }
    terms, reward = raw.more.get("reward_terms"), _floats(raw.reward, "the reward", where)
    if reward.shape[1] != 1:
        raise DatasetError(
            f"{where}: the reward has {reward.shape[1]} numbers a step; expected one"
        )
    return Episode(
        obs={name: _joined(raw, keys) for name, keys in groups.items()},
        action=action,
        reward=reward[:, 0],
        reward_terms=None if terms is None else _floats(terms, "a reward term", where),
        terminated=terminated,
        truncated=truncated,
        policy_version=raw.more.get("policy_version", np.zeros(steps)).astype(np.int64),
        stamp_ns=raw.more.get("stamp_ns", np.zeros(steps + 1)).astype(np.int64),
        task=raw.task or choices.task,
        source="",
        images={},
        states={},
        **flags,
    )


def _joined(raw: RawEpisode, keys: tuple[str, ...]) -> NDArray[np.float32]:
    for key in keys:
        if key not in raw.frames:
            raise DatasetError(f"{raw.where}: {unknown_name('observation', key, raw.frames)}")
    parts = [_floats(raw.frames[key], f"observation '{key}'", raw.where) for key in keys]
    return np.concatenate(parts, axis=1)


def _floats(value: Array, what: str, where: str) -> NDArray[np.float32]:
    """Vectors (n, D) in float32; numbers become vectors of one."""
    if value.dtype.kind not in "fiub":
        raise DatasetError(f"{where}: {what} is of type {value.dtype}; expected numbers")
    if value.ndim not in (1, 2):
        raise DatasetError(
            f"{where}: {what} has the shape {value.shape}; expected vectors (rows, width)"
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf and is refused later
        return np.ascontiguousarray(value.reshape(len(value), -1).astype(np.float32))


def _groups(frames: Mapping[str, Array], own: DatasetSpec | None) -> dict[str, tuple[str, ...]]:
    if len(frames) == 1 and own is None:
        return {"actor": tuple(frames)}
    return {name.replace("/", "."): (name,) for name in (own.groups if own else frames)}


def _spec(
    sample: Episode, source: Source, choices: ImportChoices, first: RawEpisode
) -> DatasetSpec:
    control_dt = choices.control_dt or (source.own and source.own.control_dt) or source.control_dt
    if not control_dt:
        raise DatasetError(
            f"{first.where} does not say how much time lies between two actions; give it with "
            "control_dt=SECONDS"
        )
    own = source.own
    terms = 0 if sample.reward_terms is None else sample.reward_terms.shape[1]
    counted = source.reward_names or tuple(f"term_{i}" for i in range(terms))
    names = own.reward_names if own else counted
    spec = DatasetSpec(
        groups={name: value.shape[1] for name, value in sample.obs.items()},
        action_size=sample.action.shape[1],
        control_dt=control_dt,
        reward_names=names,
        robot=choices.robot or (own.robot if own else None),
        judges_success=own.judges_success if own else "success" in first.more,
    )
    if not own:
        return spec
    meaning = {} if choices.groups or choices.action_range else own.meaning
    return replace(own, **{k: getattr(spec, k) for k in _CHANGEABLE}, meaning=meaning)


_CHANGEABLE = ("groups", "action_size", "control_dt", "robot")
"""Fields that a choice may change of a data set that was exported from one of ours."""
