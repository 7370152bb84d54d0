"""The actor as the console sees it, and its commands' arguments, checked before they leave."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hardware.teleop.actor_socket import Answer
from robot_rl.core.errors import ConfigError

SEGMENTS = ("human", "recovery", "correction")
"""Parts of a person's intervention."""


class Actor(Protocol):
    """The actor as `ActorConnection` shows it."""

    @property
    def snapshot(self) -> Mapping[str, Any]:
        """The newest state that it told."""
        ...

    @property
    def connected(self) -> bool:
        """True while it is there."""
        ...

    @property
    def age(self) -> float:
        """Of the snapshot [s]."""
        ...

    def send(self, do: str, operator: str, **arguments: Any) -> str:
        """Ask for something; returns the id."""
        ...

    def poll(self) -> list[Answer]:
        """Answers since the last call."""
        ...


def _one_of(*known: str) -> Callable[[Any], bool]:
    return lambda value: value in known


def _number_in(low: float, high: float, kind: type = float) -> Callable[[Any], bool]:
    kinds = (int,) if kind is int else (int, float)
    return lambda value: (
        isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 2000


def _is_reason(value: Any) -> bool:
    """Optional, and short."""
    return value is None or (isinstance(value, str) and len(value) <= 200)


_CORRECTION = {
    "id": _is_text, "session": _is_text, "episode": _number_in(0, 1e9, int),
    "kind": _one_of("success", "fail", "discard", "undiscard", "reward", "segment"),
    "from": _number_in(0, 1e9, int),
    "value": lambda value: _is_reason(value) or _number_in(-1e6, 1e6)(value),
}  # fmt: skip


def _is_correction(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == _CORRECTION.keys()
        and all(check(value[name]) for name, check in _CORRECTION.items())
    )


ACTOR_ARGUMENTS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "success": {}, "fail": {}, "undo": {}, "reset": {}, "ready": {}, "end_episode": {},
    "skip": {},
    "pause_learning": {}, "resume_learning": {}, "freeze_policy": {}, "release_policy": {},
    "discard": {"what": _one_of("episode", "intervention", "last"), "reason": _is_reason},
    "segment": {"kind": _one_of(*SEGMENTS)},
    "rollback": {"checkpoint": _is_text},
    "evaluate": {"episodes": _number_in(0, 1000, int)},
    "rewind": {"seconds": _number_in(0.1, 30.0)},
    "relabel": {"correction": _is_correction},
}  # fmt: skip
"""Commands of the actor and the arguments that each takes."""


def read_arguments(do: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a command of the actor.

    Raises:
        ConfigError: One is missing or none that can be meant.
    """
    found: dict[str, Any] = {}
    for name, check in ACTOR_ARGUMENTS[do].items():
        if not check(value := message.get(name)):
            raise ConfigError(f"'{do}' needs a '{name}', got {value!r:.80}")
        if value is not None:
            found[name] = value
    if do == "relabel":
        found["id"] = found["correction"]["id"]  # sent again, it is done once
    return found
