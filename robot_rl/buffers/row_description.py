"""What saved rows hold, in plain values beside them: who reads them later can tell if they fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.buffers.row_layout import RowLayout
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import SpecMismatchError


def describe_rows(layout: RowLayout, spec: EnvSpec) -> dict[str, Any]:
    """Columns in order, what their rewards are called, and whose they are; plain values.

    Args:
        layout: Of the rows.
        spec: Of the environment that they come from.
    """
    return {
        "columns": [[name, column.stop - column.start] for name, column in layout.columns.items()],
        "reward_names": list(spec.reward_names),
        "control_dt": spec.control_dt,
        "robot": None if spec.robot is None else spec.robot.identity(),
    }


def check_rows(saved: Mapping[str, Any], own: Mapping[str, Any], where: str) -> None:
    """Refuse saved rows that mean something else than one's own.

    Args:
        saved: From `describe_rows`, of the saved rows; may have more groups.
        own: The same of those they are to be mixed with.
        where: Where the saved rows are from, for the message.

    Raises:
        SpecMismatchError: A group or a width, the reward terms, the time step or the robot differ;
            the message names both.
    """

    def refuse(what: str, theirs: object, ours: object) -> None:
        raise SpecMismatchError(
            f"the transitions in {where} have {what} {theirs}, but this run has {what} {ours}; "
            "only transitions of the same robot, observations, rewards and time step can be mixed"
        )

    theirs: dict[str, int] = dict(saved["columns"])
    for name, width in own["columns"]:
        if name == "reward":
            continue  # as wide as it has names
        kind, _, group = name.partition("/")
        if name not in theirs:
            known = [key.partition("/")[2] for key in theirs if key.startswith("obs/")]
            refuse("the observation groups", known, [group])
        if theirs[name] != width:
            what = f"observation group '{group}' of width" if group else f"{kind} of width"
            refuse(what, theirs[name], width)
    names = {"reward_names": "the reward terms", "control_dt": "the time step [s]"}
    for key, what in names.items():
        if saved[key] != own[key]:
            refuse(what, saved[key], own[key])
    one, two = saved["robot"], own["robot"]
    if one is None or two is None:
        if one != two:
            refuse("the robot", one and one["name"], two and two["name"])
        return
    for key, value in two.items():
        if one[key] != value:
            what = "the robot" if key == "name" else f"robot '{two['name']}' with {key}"
            refuse(what, one[key], value)


def picked_columns(saved: Mapping[str, Any], layout: RowLayout) -> list[int]:
    """Columns of saved rows in the order of a layout that has some or all of their parts."""
    starts: dict[str, int] = {}
    stop = 0
    for name, width in saved["columns"]:
        starts[name], stop = stop, stop + width
    columns: Sequence[tuple[str, slice]] = list(layout.columns.items())
    return [starts[name] + i for name, part in columns for i in range(part.stop - part.start)]
