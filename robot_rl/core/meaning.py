"""Meaning of actions and observations in plain values, and the first difference of two meanings.

Widths alone do not tell a joint that an action moves by 0.3 rad from one that it moves by 1 rad.
Environments of ours say what their numbers stand for (`EnvSpec.meaning`), data sets and saved
replays keep it, and where both sides tell it, only the same goes together. Its form, which
`robot_rl.core.action.describe_meaning` makes:

    {"action": <ActionMap.to_dict>, "terms": {<group>: [<TermConfig as plain values>, ...]}}
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

Difference: TypeAlias = tuple[str, Any, Any]
"""Place, and the values of one side and the other there."""


def meaning_of_groups(meaning: Mapping[str, Any], groups: Sequence[str]) -> dict[str, Any]:
    """A meaning without the terms of other groups; empty where nothing is told."""
    if not meaning:
        return {}
    terms = meaning.get("terms", {})
    return {**meaning, "terms": {name: terms[name] for name in groups if name in terms}}


def meaning_difference(one: Mapping[str, Any], two: Mapping[str, Any]) -> Difference | None:
    """The first place in which two meanings differ; None where a side does not tell.

    Groups that one side alone tells are not compared.
    """
    if not one or not two:
        return None
    found = first_difference("action", one.get("action"), two.get("action"))
    theirs, ours = one.get("terms", {}), two.get("terms", {})
    for name in theirs:
        if found is None and name in ours:
            found = _terms_difference(f"observation group '{name}'", theirs[name], ours[name])
    return found


def first_difference(where: str, one: Any, two: Any) -> Difference | None:
    """The first place in which two plain values differ, and both there.

    Numbers may differ by their last digits, which another processor rounds otherwise.
    """
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        left, right = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", two)
        keys = {**right, **left}
        pairs = {f"{where}.{key}": (left.get(key), right.get(key)) for key in keys}
    elif isinstance(one, list) and isinstance(two, list):
        first, second = cast("list[Any]", one), cast("list[Any]", two)
        if len(first) != len(second):
            return where, first, second
        both = enumerate(zip(first, second, strict=True))
        pairs = {f"{where}[{place}]": pair for place, pair in both}
    elif isinstance(one, int | float) and isinstance(two, int | float):
        same = math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-9)
        return None if same else (where, one, two)
    else:
        return None if one == two else (where, cast("Any", one), two)
    found = (first_difference(place, *pair) for place, pair in pairs.items())
    return next((one for one in found if one is not None), None)


def _terms_difference(
    where: str, one: Sequence[Mapping[str, Any]], two: Sequence[Mapping[str, Any]]
) -> Difference | None:
    """Of the terms of a group: their names first, then how each is shown."""
    names = [[term["term"] for term in side] for side in (one, two)]
    if names[0] != names[1]:
        return f"{where}, terms", names[0], names[1]
    for left, right in zip(one, two, strict=True):
        found = first_difference(f"{where}, {left['term']}", left, right)
        if found is not None:
            return found
    return None
