"""Values of a command line in a tree of configs, and sentences about those that do not fit."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from policies.zoo.catalog import PREFIX, zoo_names
from robot_rl.core.errors import ConfigError, unknown_name

FORMER_NAMES = {
    "learning_rate_warmup": "lr_schedule.warmup", "learning_rate_decay": "lr_schedule.decay",
    "learning_rate_end": "lr_schedule.end", "target_rule": "target.rule",
    "target_members": "target.members", "target_replacement": "target.replacement",
    "entropy_in_target": "target.entropy", "actor_on_all": "actor_steps.on_all",
    "entropy_at": "actor_steps.entropy_at", "critic_updates": "actor_steps.critic_updates",
    "temperature_every_update": "actor_steps.temperature_every_update",
}  # fmt: skip
"""Fields of a learner by their name of before; those of another learner keep it."""


def parse_overrides(overrides: Sequence[str], *, sweep: bool = False) -> list[Override]:
    """Overrides of a command line, each a key and a value.

    Raises:
        ConfigError: One cannot be read, deletes a field, or asks for several values where it may
            not.
    """
    parser = OverridesParser.create()
    parsed: list[Override] = []
    for text in overrides:
        check_form(text)
        try:
            one = parser.parse_override(text)
        except HydraException as error:
            raise ConfigError(
                f"override '{text}' cannot be read ({first_lines(error)}); put a value with "
                "spaces, commas or brackets in quotes: 'key=\"value\"'"
            ) from error
        if one.is_delete():
            raise ConfigError(f"'{text}' would delete a field; expected key=value")
        if one.is_sweep_override() and not sweep:
            raise ConfigError(
                f"'{text}' asks for several values; sweep over them with -m, or write a list as "
                f"{one.key_or_group}=[a,b]"
            )
        parsed.append(one)
    return parsed


def check_form(text: str) -> None:
    """Refuse what is no `key=value`.

    Raises:
        ConfigError: Says what was expected.
    """
    if "=" not in text.lstrip("~") or text.startswith("="):
        hint = f"; a policy that ships is {PREFIX}{text}" if text in zoo_names() else ""
        raise ConfigError(f"'{text}' is not an override; expected key=value, such as seed=1{hint}")


def assign(tree: DictConfig, one: Override) -> None:
    """Put one value into the tree.

    Raises:
        ConfigError: There is no such field, or the value does not fit it.
    """
    key, value = _present_key(tree, one.key_or_group), plain_value(one)
    parent: Any = tree
    *path, last = key.split(".")
    for depth, name in enumerate(path):
        parent = _child(tree, parent, key, ".".join(path[:depth]), name)
    kind = _field_type(tree, parent, key, ".".join(path), last)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e6 is a whole number to a person
    if isinstance(kind, type) and issubclass(kind, Enum) and value not in kind.__members__:
        raise ConfigError(unknown_name(f"value of {key}", str(value), kind.__members__))
    try:
        OmegaConf.update(tree, key, value, merge=True, force_add=True)
    except OmegaConfBaseException as error:
        told = in_words(kind, key) or first_lines(error)
        raise ConfigError(f"'{one.input_line}' does not fit: {told}") from error


def _present_key(tree: DictConfig, key: str) -> str:
    """A key of `FORMER_NAMES`, as commands of before have it, by its name of now."""
    group, _, name = key.partition(".")
    present = FORMER_NAMES.get(name, "")
    moved = group == "learner" and name not in tree.learner
    return f"learner.{present}" if moved and present.partition(".")[0] in tree.learner else key


def _child(tree: DictConfig, parent: Any, key: str, where: str, name: str) -> Any:
    """Entry of a part of the tree; one of a dict may be new, as `camera.wrist` of `camera`."""
    if isinstance(parent, DictConfig) and where in tree and OmegaConf.get_type(parent) is dict:
        return parent[name] if name in parent else OmegaConf.create({})
    _check_known(tree, parent, key, where, name)
    return parent[name]


def _check_known(tree: DictConfig, parent: Any, key: str, where: str, name: str) -> None:
    if not isinstance(parent, DictConfig):
        what = "a list, which is given whole" if isinstance(parent, ListConfig) else "a plain value"
        raise ConfigError(f"'{key}' is unknown: {where} is {what}")
    known = [str(entry) for entry in parent]
    if name in known:
        return
    near = _nearest(tree, key, where, name, known)
    hint = f" (did you mean '{near}'?)" if near else ""
    place = f"field '{name}' of {where}" if where else f"field '{name}'"
    raise ConfigError(f"{place} is unknown{hint}; known: {', '.join(known)}")


def _nearest(tree: DictConfig, key: str, where: str, name: str, known: Sequence[str]) -> str:
    """A field beside the misspelt one, else one of the same name elsewhere, else a similar path."""
    paths = [path for path, _ in leaves(tree)]
    beside = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if beside:
        rest = key.removeprefix(f"{where}.").partition(".")[2]
        found = ".".join(filter(None, (where, beside[0], rest)))
        return found if found in paths or not rest else ".".join(filter(None, (where, beside[0])))
    ending = [path for path in paths if path.endswith(f".{key}")]
    return next(iter(ending or difflib.get_close_matches(key, paths, n=1, cutoff=0.75)), "")


def _field_type(tree: DictConfig, parent: Any, key: str, where: str, name: str) -> Any:
    """Declared type of a field; entries of a dict may be new, fields of a dataclass may not."""
    kind = OmegaConf.get_type(parent)
    if isinstance(parent, DictConfig) and not is_dataclass(kind):
        return object
    _check_known(tree, parent, key, where, name)
    return get_type_hints(kind).get(name, object)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths and values inside a tree or a typed config."""
    if is_dataclass(value) and not isinstance(value, type):
        items = [(entry.name, getattr(value, entry.name)) for entry in fields(value)]
    elif isinstance(value, DictConfig):
        items = [(str(name), value._get_node(name)) for name in value]
    elif isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        yield path, value
        return
    for name, item in items:
        yield from leaves(item, f"{path}.{name}" if path else str(name))


def plain_value(one: Override) -> Any:
    """Value of an override, quotes taken off."""
    value = one.value()
    return value.text if isinstance(value, QuotedString) else value


def in_words(kind: Any, key: str) -> str:
    """Sentence about the values that a field of a type takes; empty where there is none."""
    if is_dataclass(kind):
        return f"{key} has fields; give them one by one as {key}.<field>=..."
    if get_origin(kind) is list and get_args(kind)[0] in (int, float):
        return f"{key} must be a list of numbers, such as {key}=[1,2]"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return f"{key} must be {words[kind]}" if kind in words else ""


def first_lines(error: BaseException) -> str:
    """First lines of an error of Hydra or OmegaConf, without its list of internals."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    internals = ("full_key", "object_type", "reference_type", "value:", "See ")
    told = [line for line in lines if not line.startswith(internals)]
    return " ".join(told[:2]).rstrip(".") or type(error).__name__
