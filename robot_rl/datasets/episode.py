"""One episode as numpy arrays: T transitions, T + 1 frames, the last of them without an action."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.spec import FLAGS, IMAGES, OBSERVATION, STATES, DatasetSpec

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
_OTHER_FIELDS = ("obs", "task", "source", "images", "states")
"""Fields that are not one array of numbers."""
_ACTION_TOLERANCE = 1e-5
"""Actions may lie this far beyond [-1, 1]: float64 of others, rounded."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """Experience from a reset to its end. Frame t is acted on in step t; frame T is the end."""

    obs: Mapping[str, Floats]
    """Groups, each (T + 1, D)."""
    action: Floats
    """(T, A), in [-1, 1], as executed."""
    reward: Floats
    """(T,)."""
    reward_terms: Floats | None = None
    """(T, K), unweighted."""
    terminated: Flags
    """(T,): the task ended the episode; only the last may be set."""
    truncated: Flags
    """(T,): a time limit or the end of a recording ended it; only the last may be set."""
    success: Flags
    """(T,): the episode that ends in this step met the task's success rule."""
    valid: Flags
    """(T,): false for steps that must not be learned from."""
    intervened: Flags
    """(T,): a person chose the action."""
    policy_version: Whole
    """(T,): which policy acted."""
    stamp_ns: Whole
    """(T + 1,): when the frame was measured [ns]; 0 in simulation."""
    task: str = ""
    """Task in words."""
    source: str = ""
    """Origin in words: who acted, and what else its recorder knows."""
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict[str, NDArray[np.uint8]])
    """Camera -> newest frame of each observation, (T + 1, height, width, C)."""
    states: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    """Parts of the state of the simulation that each step began in, (T, W)."""

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.reward)

    def digest(self) -> str:
        """SHA-256 of what happened, wherever in a data set it lies.

        Its source is no part of it, nor are images: the videos have digests of their own.
        """
        found = hashlib.sha256(self.task.encode())
        for name, value in self._arrays().items():
            found.update(f"{name} {value.dtype.str} {value.shape}".encode())
            found.update(np.ascontiguousarray(value).data)
        return found.hexdigest()

    def checked(self, spec: DatasetSpec, where: str) -> "Episode":
        """This episode, if it is one that the spec describes; NaN of invalid steps become 0.

        Raises:
            DatasetError: A column, shape, type or number is wrong; the message names the step.
        """
        self._check_shapes(spec, where)
        self._check_end(where)
        used = np.append(self.valid, False) | np.insert(self.valid, 0, False)  # (T + 1,) frames
        changed: dict[str, Any] = {
            "obs": {k: _finite(v, used, k, where) for k, v in self.obs.items()}
        }
        for name in ("action", "reward", "reward_terms"):
            value = getattr(self, name)
            if value is not None:
                changed[name] = _finite(value, self.valid, name, where)
        changed["states"] = {k: _finite(v, self.valid, k, where) for k, v in self.states.items()}
        beyond = np.abs(changed["action"]).max(axis=1) > 1 + _ACTION_TOLERANCE
        if (beyond & self.valid).any():
            step = int(np.argmax(beyond & self.valid))
            raise DatasetError(
                f"{where}, step {step}: the action has {np.abs(self.action[step]).max():.6g}; "
                "expected numbers in [-1, 1] (robot-rl data convert maps others: "
                "action_range=LOW,HIGH)"
            )
        return replace(self, **changed)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        names = [one.name for one in fields(self) if one.name not in _OTHER_FIELDS]
        own = {name: getattr(self, name) for name in names}
        groups = {OBSERVATION + name: self.obs[name] for name in sorted(self.obs)}
        states = {STATES + name: self.states[name] for name in sorted(self.states)}
        return groups | {k: value for k, value in own.items() if value is not None} | states

    def _check_shapes(self, spec: DatasetSpec, where: str) -> None:
        steps = self.num_steps
        if steps < 1:
            raise DatasetError(f"{where} has no step; expected at least one")
        for what, mine, theirs in (
            ("observation groups", self.obs, spec.groups),
            ("states of the simulation", self.states, spec.states),
            ("images of the cameras", self.images, spec.images),
        ):
            if set(mine) != set(theirs):
                raise DatasetError(
                    f"{where} has the {what} {sorted(mine)}; expected {sorted(theirs)}"
                )
        if (self.reward_terms is None) != (not spec.reward_names):
            has = "has no" if self.reward_terms is None else "has"
            raise DatasetError(
                f"{where} {has} reward terms; expected those named {list(spec.reward_names)}"
            )
        wanted: dict[str, tuple[tuple[int, ...], str]] = {
            **{OBSERVATION + k: ((steps + 1, w), "float32") for k, w in spec.groups.items()},
            "action": ((steps, spec.action_size), "float32"),
            "reward": ((steps,), "float32"),
            "reward_terms": ((steps, len(spec.reward_names)), "float32"),
            **dict.fromkeys(FLAGS, ((steps,), "bool")),
            **{STATES + k: ((steps, w), "float32") for k, w in spec.states.items()},
            "policy_version": ((steps,), "int64"),
            "stamp_ns": ((steps + 1,), "int64"),
            **{IMAGES + k: ((steps + 1, *shape), "uint8") for k, shape in spec.images.items()},
        }
        images = {IMAGES + name: frames for name, frames in self.images.items()}
        for name, value in {**self._arrays(), **images}.items():
            shape, dtype = wanted[name]
            if value.shape != shape or value.dtype != dtype:
                raise DatasetError(
                    f"{where}: '{name}' is {value.dtype} of shape {value.shape}; expected {dtype} "
                    f"of shape {shape}"
                )

    def _check_end(self, where: str) -> None:
        ended = self.terminated | self.truncated
        if ended[:-1].any():
            raise DatasetError(
                f"{where}, step {int(np.argmax(ended))} ends the episode, but {self.num_steps} "
                "steps were given; expected an end in the last step only"
            )
        if not ended[-1]:
            raise DatasetError(
                f"{where} is neither terminated nor truncated in its last step; expected one of "
                "both (the end of a recording is a truncation)"
            )
        back = np.flatnonzero(np.diff(self.stamp_ns) < 0)
        if len(back):
            raise DatasetError(
                f"{where}, step {int(back[0]) + 1}: the stamp lies "
                f"{-int(np.diff(self.stamp_ns)[back[0]])} ns before the one of the step before; "
                "expected stamps that do not go back"
            )


def to_columns(
    episode: Episode, spec: DatasetSpec, *, number: int, first: int, task_index: int
) -> Columns:
    """Frames of an episode as columns of T + 1 rows.

    The last frame has no action: it repeats the one before, as LeRobot pads, and says so in
    `complementary_info.acted`.
    """
    frames = episode.num_steps + 1
    ended = episode.terminated | episode.truncated
    terms = episode.reward_terms
    columns: Columns = {
        **{OBSERVATION + name: episode.obs[name] for name in spec.groups},
        "action": np.concatenate([episode.action, episode.action[-1:]]),
        "next.reward": np.append(episode.reward, np.float32(0)),
        "next.done": np.append(ended, True),
        **{column: np.append(getattr(episode, name), False) for name, column in FLAGS.items()},
        "complementary_info.acted": np.append(np.ones(frames - 1, bool), False),
        "complementary_info.policy_version": np.append(
            episode.policy_version, episode.policy_version[-1]
        ),
        "complementary_info.stamp_ns": episode.stamp_ns,
        "timestamp": (np.arange(frames) * spec.control_dt).astype(np.float32),
        "frame_index": np.arange(frames),
        "episode_index": np.full(frames, number),
        "index": np.arange(first, first + frames),
        "task_index": np.full(frames, task_index),
    }
    if terms is not None:
        columns["next.reward_terms"] = np.concatenate([terms, np.zeros_like(terms[:1])])
    for name, state in episode.states.items():
        columns[STATES + name] = np.concatenate([state, state[-1:]])
    return {name: columns[name] for name in spec.columns}


def from_columns(
    columns: Mapping[str, NDArray[Any]], spec: DatasetSpec, task: str, source: str
) -> Episode:
    """The episode that `to_columns` wrote, without its images."""

    def column(name: str) -> NDArray[Any]:
        width = spec.columns[name].width
        wide = name.startswith((OBSERVATION, "action", "next.reward_terms", STATES))
        return columns[name].reshape(-1, width) if wide else columns[name]

    return Episode(
        obs={name: column(OBSERVATION + name) for name in spec.groups},
        action=column("action")[:-1],
        reward=column("next.reward")[:-1],
        reward_terms=column("next.reward_terms")[:-1] if spec.reward_names else None,
        policy_version=column("complementary_info.policy_version")[:-1],
        stamp_ns=column("complementary_info.stamp_ns"),
        task=task,
        source=source,
        images={},
        states={name: column(STATES + name)[:-1] for name in spec.states},
        **{name: column(flag)[:-1] for name, flag in FLAGS.items()},
    )


def _finite(value: Floats, used: Flags, name: str, where: str) -> Floats:
    """Values whose rows in use are finite; in others, what is not becomes 0."""
    good = np.isfinite(value)
    rows = good.all(axis=1) if value.ndim == 2 else good
    if rows.all():
        return value
    broken = ~rows & used
    if broken.any():
        step = int(np.argmax(broken))
        raise DatasetError(
            f"{where}, step {step}: '{name}' holds a number that is not finite; expected finite "
            "numbers wherever a step is valid"
        )
    return np.where(good, value, np.float32(0))
