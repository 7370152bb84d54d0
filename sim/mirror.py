"""The mirror image of simulated worlds: each term of an observation says what happens to it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.mirror import EnvMirror, RobotMirror, SignedPermutation
from robot_rl.core.observation import (
    GOAL_PREFIX,
    OFFSET_PREFIX,
    SENSED_PREFIX,
    STATE_PREFIX,
    TERM_KINDS,
)
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_state import FIELD_KINDS, Mirrored


@runtime_checkable
class MirrorsGoals(Protocol):
    """A task that knows how what it asks for looks in a mirror."""

    def goal_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Of its goals, by name."""
        ...


@runtime_checkable
class MirrorsSensors(Protocol):
    """A simulation that knows how its sensors and drawn parameters look in a mirror."""

    def sensor_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Of what is sensed and what only it knows, by name; others have no mirror."""
        ...


def mirror_worlds(
    robot: RobotSpec,
    simulation: object,
    task: object,
    action_map: ActionMap,
    layouts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> EnvMirror:
    """How observations and actions look in the mirror.

    Args:
        robot: Who has a left and a right.
        simulation: Its worlds, asked where they know their mirror.
        task: What it does, asked likewise.
        action_map: From actions to commands.
        layouts: `ObservationMap.layout` of each group.

    Raises:
        ConfigError: The robot, a term, or the worlds have no mirror; the message names it.
    """
    found = RobotMirror(robot)
    action = found.action(action_map)
    goals = task.goal_mirrors(found) if isinstance(task, MirrorsGoals) else {}
    sensed = simulation.sensor_mirrors(found) if isinstance(simulation, MirrorsSensors) else {}
    prefixed = ((GOAL_PREFIX, goals), (SENSED_PREFIX, sensed), (OFFSET_PREFIX, sensed))

    def of_term(name: str, width: int) -> SignedPermutation:
        for prefix, known in prefixed:
            if name.startswith(prefix):
                return _known(known, name[len(prefix) :])
        kinds = FIELD_KINDS if name.startswith(STATE_PREFIX) else TERM_KINDS
        kind = _known(kinds, name.removeprefix(STATE_PREFIX))
        return action if kind is Mirrored.action else found.kind(kind, width)

    groups: dict[str, SignedPermutation] = {}
    for group, layout in layouts.items():
        parts: list[SignedPermutation] = []
        for entry in layout:
            try:
                part = of_term(entry["term"], entry["width"])
                if part.width != entry["width"]:
                    raise ConfigError(f"its mirror has {part.width} columns of {entry['width']}")
            except ConfigError as error:
                raise ConfigError(
                    f"observation group '{group}' cannot be mirrored, as its term "
                    f"'{entry['term']}' has no mirror: {error}; declare one beside the term, leave "
                    "it out, or choose training.symmetry=none"
                ) from error
            parts.append(part.times(entry["history"]))
        groups[group] = SignedPermutation.joined(parts)
    return EnvMirror(groups=groups, action=action)


def _known(mirrors: Mapping[str, Any], name: str) -> Any:
    if name not in mirrors:
        raise ConfigError(unknown_name("mirror of", name, mirrors))
    return mirrors[name]
