"""Content of the episodes of a data set, and its columns in a table.

The columns follow LeRobotDataset v3.0: names, types, and a scalar instead of a list of one number.
A LeRobot reader finds observations, actions, rewards and ends of episodes under its own names.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from robot_rl.core.errors import DatasetError
from robot_rl.core.meaning import meaning_difference

OBSERVATION = "observation."
"""Before the name of an observation group."""
IMAGES = "observation.images."
"""Before the name of a camera."""
STATES = "complementary_info.state."
"""Before the name of a part of the simulation's state."""
_STORABLE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the frames' table."""

    dtype: str
    """float32, int64 or bool."""
    width: int = 1
    """Numbers per frame."""
    names: tuple[str, ...] = ()
    """Of the numbers; empty where nobody named them."""


FLAGS = {
    "terminated": "next.terminated",
    "truncated": "next.truncated",
    "success": "next.success",
    "valid": "next.valid",
    "intervened": "complementary_info.is_intervention",
}
"""Field of an `Episode` -> its column."""
INDEX_COLUMNS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
"""Counters of LeRobot; none of it is experience."""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """Content of every episode of a data set: the same for all of them."""

    groups: Mapping[str, int]
    """Observation groups -> width D; float32 vectors."""
    action_size: int
    """A; actions are in [-1, 1]."""
    control_dt: float
    """Time between two actions [s]."""
    reward_names: tuple[str, ...] = ()
    """Names of the K reward terms; empty where there is only their sum."""
    robot: Mapping[str, Any] | None = field(default=None)
    """Robot, as of `RobotSpec.identity`; None where no robot is described."""
    judges_success: bool = True
    """False where nothing said whether an episode succeeded."""
    images: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Camera -> height, width and 1 or 3; uint8, RGB or one number, stored as video."""
    states: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parts of the state that the simulation was in -> width; float32. Empty where it was not
    recorded, as on a robot."""
    meaning: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Meaning of actions and observations (`robot_rl.core.meaning`); empty where nobody told it, as
    in data of others."""

    def __post_init__(self) -> None:
        if not self.groups:
            raise DatasetError("a data set needs an observation group, got none")
        widths = {**self.groups, **self.states, "action": self.action_size}
        for name, width in widths.items():
            if not _STORABLE_NAME.fullmatch(name) or name.startswith("images."):
                raise DatasetError(
                    f"observation group '{name}' cannot be stored; expected a vector whose name "
                    "has letters, digits, _ . or -"
                )
            if width < 1:
                raise DatasetError(f"'{name}' has the width {width}; expected at least 1")
        for name, shape in self.images.items():
            storable = len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) > 1
            if not _STORABLE_NAME.fullmatch(name) or not storable:
                raise DatasetError(
                    f"images of camera '{name}' of shape {tuple(shape)} cannot be stored; expected "
                    "height, width, and 1 or 3 channels"
                )
        if not (math.isfinite(self.control_dt) and self.control_dt > 0):
            raise DatasetError(f"the time step is {self.control_dt} s; expected more than 0")

    @property
    def columns(self) -> dict[str, Column]:
        """Columns of the frames' table, in order."""
        flag, count = Column(dtype="bool"), Column(dtype="int64")
        vectors = {
            OBSERVATION + name: Column(dtype="float32", width=width)
            for name, width in self.groups.items()
        }
        states = {
            STATES + name: Column(dtype="float32", width=width)
            for name, width in self.states.items()
        }
        terms = Column(dtype="float32", width=len(self.reward_names), names=self.reward_names)
        return {
            **vectors,
            "action": Column(dtype="float32", width=self.action_size),
            "next.reward": Column(dtype="float32"),
            **({"next.reward_terms": terms} if self.reward_names else {}),
            "next.done": flag,
            **dict.fromkeys(FLAGS.values(), flag),
            "complementary_info.acted": flag,
            "complementary_info.policy_version": count,
            "complementary_info.stamp_ns": count,
            **states,
            "timestamp": Column(dtype="float32"),
            **dict.fromkeys(INDEX_COLUMNS[1:], count),
        }

    @property
    def rate(self) -> float | int:
        """Frames per second, a whole number where it is one [Hz]."""
        rate = 1 / self.control_dt
        return round(rate) if math.isclose(rate, round(rate), rel_tol=1e-6) else rate

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        images = {name: list(shape) for name, shape in self.images.items()}
        told = {**asdict(self), "reward_names": list(self.reward_names), "images": images}
        if not self.states:
            del told["states"]  # as before there were any
        if not self.meaning:
            del told["meaning"]
        return told

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DatasetSpec":
        """Rebuild from `to_dict`."""
        images = {name: tuple(shape) for name, shape in values.get("images", {}).items()}
        names = tuple(values["reward_names"])
        return cls(**{**values, "reward_names": names, "images": images})

    @classmethod
    def from_note(cls, text: str | None, where: object) -> "DatasetSpec | None":
        """Rebuild from the JSON that an export keeps; None where there is none."""
        try:
            return None if text is None else cls.from_dict(json.loads(text))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DatasetError(
                f"{where} is damaged: what it says about its episodes cannot be read ({error})"
            ) from None

    def check_same(self, other: "DatasetSpec", one: str, two: str) -> None:
        """Refuse another spec; `one` and `two` name their owners in the message.

        Raises:
            DatasetError: They differ; the message names both sides.
        """
        mine, theirs = ({"states": {}} | spec.to_dict() for spec in (self, other))
        for name, value in mine.items():
            if name != "meaning" and theirs[name] != value:
                raise DatasetError(
                    f"{one} and {two} do not go together: {_FIELD_TITLES[name]} {value} there, and "
                    f"{theirs[name]} here; expected the same"
                )
        found = meaning_difference(self.meaning, other.meaning)
        if found is not None:
            place, there, here = found
            raise DatasetError(
                f"{one} and {two} do not go together: their actions or observations have another "
                f"meaning: {place} is {there} there, and {here} here; expected the same robot and "
                "task settings"
            )


_FIELD_TITLES = {
    "groups": "observation groups",
    "action_size": "action size",
    "control_dt": "time step [s]",
    "reward_names": "reward terms",
    "robot": "robot",
    "judges_success": "whether success is judged:",
    "images": "images",
    "states": "states of the simulation",
}
