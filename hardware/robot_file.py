"""Robot file: bounds of the robot at hand, narrower than its description.

`hardware/robots/<name>.yaml` is read wherever a robot of that name is deployed, or the file that
`robot_file=` names. It can only narrow: a bound wider than the robot's description is refused.

    robot: panda
    clip: false                 # true: hold a policy that needs more within the bounds
    joints:                     # by name, or `all`, which bounds every joint
      all: {velocity_limit: 1.0, tracking_error: 0.3, tracking_time: 0.5}
      joint1: {position_limit: [-1.5, 1.5], effort_limit: 40, stiffness: 600, damping: 50}
    limits:                     # fields of SafetyLimits
      external_force: 20
    ros2:                       # options of driver=ros2
      source: /arm
    estop:                      # a button of this computer; unplugged it counts as pressed
      device: /dev/input/by-id/usb-button-event-kbd
      button: KEY_ENTER         # or a code, as `evtest` prints it
    cameras:                    # ROS 2 topics that the console shows
      wrist: {topic: /wrist/image_raw/compressed}
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hardware.control.limits import BODY_RATES, JointBounds
from hardware.control.monitors import SafetyLimits
from hardware.teleop.estop_button import EstopDevice
from policies.runner import PolicySpec
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.robot import JointSpec, RobotSpec
from robot_rl.core.robot_command import CommandKind

ROBOTS = Path(__file__).parent / "robots"
"""Folder of the shipped files."""
ALL = "all"
"""Name that bounds every joint."""
_OF_SPEC = ("position_limit", "velocity_limit", "effort_limit")
_OF_BOUNDS = tuple(entry.name for entry in fields(JointBounds))
_ROS2: dict[str, type] = {"source": str, "topics": dict, "command": str, "joints": list}
_LIMITS = tuple(entry.name for entry in fields(SafetyLimits) if entry.name != "joints")
_SLACK = 1e-9
"""By how much a bound may exceed the one that it narrows, relative to it: decimals, rounded."""


@dataclass(frozen=True, kw_only=True)
class RobotFile:
    """Bounds of one robot; `load_robot_file` makes and checks it."""

    path: str
    """Path that messages name."""
    robot: str
    """Name of the robot that it is for."""
    clip: bool = False
    """Hold a policy that needs more than the robot allows within the limits; False refuses it."""
    joints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Any])
    """Joint, or `all` -> bound -> value; bounds of the joint's description and of `JointBounds`."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Field of `SafetyLimits` -> value."""
    ros2: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Option of driver=ros2 -> value."""
    estop: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Stop button: `device` and `button`, as of `EstopDevice`; empty for none."""
    cameras: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Camera -> its `topic` in ROS 2."""

    def __post_init__(self) -> None:
        for name, bounds in self.joints.items():
            if not isinstance(name, str):
                raise ConfigError(f"{self.path}: joints are named in text, got {name!r}")
            for key, value in _entries(self.path, f"joints.{name}", bounds, _OF_SPEC + _OF_BOUNDS):
                what, count = f"joints.{name}.{key}", 2 if key == "position_limit" else 0
                _check_numbers(self.path, what, value, count)
                if value == 0:
                    raise ConfigError(f"{self.path}: {what} must be > 0, got 0")
        for key, value in _entries(self.path, "limits", self.limits, _LIMITS):
            _check_numbers(self.path, f"limits.{key}", value, 3 if "workspace" in key else 0)
        for key, value in _entries(self.path, "ros2", self.ros2, _ROS2):
            if not isinstance(value, _ROS2[key]):
                raise ConfigError(
                    f"{self.path}: ros2.{key} must be a {_ROS2[key].__name__}, got {value!r}"
                )
            words = [*value, *value.values()] if isinstance(value, dict) else value
            if key in ("topics", "joints") and not all(isinstance(word, str) for word in words):
                raise ConfigError(f"{self.path}: ros2.{key} holds names in text, got {value!r}")
        _ = self.estop_device, self.camera_topics

    @property
    def estop_device(self) -> EstopDevice | None:
        """Stop button of the robot; None where it has none here.

        Raises:
            ConfigError: A part of it is missing or is none.
        """
        if not self.estop:
            return None
        entries = dict(_entries(self.path, "estop", self.estop, ("device", "button")))
        if len(entries) < 2:
            raise ConfigError(f"{self.path}: estop needs device and button, got {list(entries)}")
        try:
            return EstopDevice(**entries)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from None

    @property
    def camera_topics(self) -> dict[str, str]:
        """Topic of each camera.

        Raises:
            ConfigError: A camera names none.
        """
        return camera_topics(self.path, "cameras", self.cameras)

    def narrow(
        self, spec: RobotSpec, limits: SafetyLimits
    ) -> tuple[RobotSpec, SafetyLimits, list[str]]:
        """The robot and its limits within the bounds of this file.

        Returns:
            Description, limits with bounds of every joint, and a sentence for each thing narrowed.

        Raises:
            SpecMismatchError: The file is for another robot.
            ConfigError: A joint is unknown, a bound is wider than what it narrows, or the default
                pose lies outside and the file does not say `clip: true`.
        """
        if self.robot != spec.name:
            raise SpecMismatchError(
                f"{self.path} is for robot '{self.robot}', but the robot at hand is '{spec.name}'"
            )
        for name in self.joints:
            if name not in (ALL, *spec.joint_names):
                raise ConfigError(
                    f"{self.path}: {unknown_name('joint', name, [ALL, *spec.joint_names])}"
                )
        joints, bounds = list(spec.joints), limits.joints or JointBounds.of(spec)
        said: list[str] = []
        for key in _OF_SPEC:
            given = [getattr(joint, key) for joint in joints]
            values = self._narrowed(key, spec, given, said)
            joints = [replace(one, **{key: v}) for one, v in zip(joints, values, strict=True)]
        for key in _OF_BOUNDS:
            given = [*getattr(bounds, key)]
            if key == "tracking_time":  # of a monitor that only this file sets up
                given = [math.inf] * len(joints)
            values = self._narrowed(key, spec, given, said)
            values = [
                0.0 if value == math.inf and key == "tracking_time" else value for value in values
            ]
            bounds = replace(bounds, **{key: tuple(values)})
        joints = [self._with_pose_inside(joint, said) for joint in joints]
        self._check_measured(spec)
        narrowed = replace(limits, joints=bounds, **dict(self._thresholds(limits, said)))
        return replace(spec, joints=joints), narrowed, said

    def _check_measured(self, spec: RobotSpec) -> None:
        """Refuse bounds of what the robot does not measure: nobody would keep them."""
        place = "position_w" if spec.rotors else "end_effector_position_b"
        needed = {"external_force": "wrench_ee", "workspace_lower": place, "workspace_upper": place}
        for key, sensor in needed.items():
            if key in self.limits and sensor not in spec.sensors:
                raise ConfigError(
                    f"{self.path}: limits.{key} is kept by the sensor '{sensor}', and the robot "
                    f"measures {', '.join(sorted(spec.sensors)) or 'nothing'}; leave it out, or "
                    "let the description in the robot's YAML have that sensor"
                )

    def _narrowed(self, key: str, spec: RobotSpec, given: list[Any], said: list[str]) -> list[Any]:
        """Values of every joint for one bound."""
        values, every = list(given), self.joints.get(ALL, {}).get(key)
        if every is not None:
            values = [_meet(every, value) for value in given]
            if given and values == given and all(value != every for value in given):
                raise ConfigError(self._wider(f"joints.{ALL}.{key}", every, max(given)))
        for number, name in enumerate(spec.joint_names):
            own = self.joints.get(name, {}).get(key)
            if own is not None and not _within(own, given[number]):
                raise ConfigError(self._wider(f"joints.{name}.{key}", own, given[number]))
            values[number] = values[number] if own is None else own
        changed = [
            (name, _written(new) + (f" of {_written(old)}" if _finite(old) else ""))
            for name, new, old in zip(spec.joint_names, values, given, strict=True)
            if new != old
        ]
        if changed:
            alike = len(changed) == len(values) and len({words for _, words in changed}) == 1
            each = [f"every joint {changed[0][1]}"] if alike else map(" ".join, changed)
            said.append(f"{self.path}: {key} {', '.join(each)}")
        return values

    def _with_pose_inside(self, joint: JointSpec, said: list[str]) -> JointSpec:
        (low, high), pose = joint.position_limit, joint.default_position
        if not low < high:
            raise ConfigError(f"{self.path}: {joint.name} has no range left: [{low:g}, {high:g}]")
        if low <= pose <= high:
            return joint
        what = f"the default pose of {joint.name}, {pose:g}, lies outside [{low:g}, {high:g}]"
        if not self.clip:
            raise ConfigError(
                f"{self.path}: {what}, to which joints.{joint.name}.position_limit narrows it; "
                "correct that, or arm at the limit with clip: true"
            )
        said.append(f"{self.path}: {what} and is moved to the limit")
        return replace(joint, default_position=min(max(pose, low), high))

    def _thresholds(self, limits: SafetyLimits, said: list[str]) -> Iterator[tuple[str, Any]]:
        for key, asked in self.limits.items():
            given = getattr(limits, key)
            sign = -1 if key == "workspace_lower" else 1
            pairs = zip(_row(asked), _row(given), strict=True)
            if any(sign * a > sign * g + _SLACK * abs(g) for a, g in pairs if _finite(g)):
                raise ConfigError(self._wider(f"limits.{key}", asked, given))
            if isinstance(given, int) and asked != int(asked):
                raise ConfigError(f"{self.path}: limits.{key} is a whole number, got {asked}")
            value = tuple(map(float, asked)) if isinstance(given, tuple) else type(given)(asked)
            if value != given:
                said.append(
                    f"{self.path}: {key} {_written(value)}"
                    + (f" of {_written(given)}" if _finite(given) else "")
                )
            yield key, value

    def _wider(self, what: str, asked: Any, given: Any) -> str:
        return (
            f"{self.path}: {what} {_written(asked)} is wider than the robot's {_written(given)}; a "
            "robot file can only narrow, so correct it, or the description in the robot's YAML"
        )


def load_robot_file(path: str | Path) -> RobotFile:
    """Read and check a robot file.

    Raises:
        ConfigError: It cannot be read, is no YAML, or says what is unknown or of the wrong type.
    """
    import yaml  # not on a robot's computer that only runs a loop of its own

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"the robot file {path} cannot be read: {said}") from None
    known = [entry.name for entry in fields(RobotFile) if entry.name != "path"]
    values = dict(_entries(str(path), "", found, known))
    for key in ("joints", "limits", "ros2", "estop", "cameras"):
        if not isinstance(values.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} must be names with values, got {values[key]!r}")
    if not isinstance(values.get("robot"), str) or not isinstance(values.get("clip", False), bool):
        raise ConfigError(
            f"{path}: expected robot: <name> and clip: true or false, got robot: "
            f"{values.get('robot')!r}, clip: {values.get('clip', False)!r}"
        )
    return RobotFile(path=str(path), **values)


def camera_topics(path: str, where: str, cameras: Mapping[str, Any]) -> dict[str, str]:
    """Topic of each camera of `{<name>: {topic: <topic>}}`.

    Args:
        path: Place that messages name.
        where: Name of the cameras there.
        cameras: As they were read.

    Raises:
        ConfigError: A camera names no topic, or something else.
    """
    topics: dict[str, str] = {}
    for name, entries in cameras.items():
        found = dict(_entries(path, f"{where}.{name}", entries, ("topic",)))
        topic = found.get("topic")
        if not isinstance(topic, str) or not topic:
            raise ConfigError(
                f"{path}: {where}.{name} needs topic: <name of its topic>, got {topic!r}"
            )
        topics[name] = topic
    return topics


def shipped_robot_file(name: str) -> RobotFile | None:
    """The file that is shipped for a robot; None where there is none."""
    path = ROBOTS / f"{name}.yaml"
    return (
        replace(load_robot_file(path), path=f"hardware/robots/{path.name}")
        if path.is_file()
        else None
    )


def differences(trained: RobotSpec, robot: RobotSpec) -> Iterator[str]:
    """Sentences about limits, gains and pose that a policy's world had otherwise than the robot.

    Args:
        trained: The bundle's description, of the same joints.
        robot: The robot's own, which is obeyed.
    """
    for key in (*_OF_SPEC, "stiffness", "damping", "default_position"):
        pairs = [
            (getattr(a, key), getattr(b, key), b.name)
            for a, b in zip(trained.joints, robot.joints, strict=True)
        ]
        found = [
            f"{name} {_written(b)}, trained with {_written(a)}"
            for a, b, name in pairs
            if not _same(a, b)
        ]
        if found:
            yield f"the robot's own {key} counts: {'; '.join(found)}"


def excess(policy: PolicySpec, robot: RobotSpec, bounds: JointBounds) -> Iterator[str]:
    """Things that a policy needs and the robot does not allow, with both numbers; empty if it fits.

    Args:
        robot: The robot at hand, narrowed; its joints are those of the policy's.
        bounds: Of its joints.
    """
    trained, action = policy.robot, policy.action_map
    if action.kind is CommandKind.body_rates:
        for axis, low, high, most in zip("xyz", action.low, action.high, BODY_RATES, strict=False):
            if not _within(asked := max(-low, high), most):
                yield f"the body rate about {axis} is up to {asked:g} rad/s, allowed is {most:g}"
    for number, (before, joint) in enumerate(zip(trained.joints, robot.joints, strict=True)):
        if action.kind is CommandKind.joint:
            reach = [(action.low[number], action.high[number]), before.position_limit]
            reach += [action.limit[number]] if action.limit else []
            span = [max(low for low, _ in reach), min(high for _, high in reach)]
            if not _within(span, allowed := joint.position_limit):
                yield f"{joint.name} is sent to {_written(span)}, allowed is {_written(allowed)}"
            for key in ("stiffness", "damping"):
                asked, most = getattr(action, key)[number], getattr(bounds, key)[number]
                if not _within(asked, most):
                    yield f"{joint.name} has {key} {asked:g}, allowed is {most:g}"
        for key in ("velocity_limit", "effort_limit"):
            asked, most = getattr(before, key), getattr(joint, key)
            if not _within(asked, most):
                yield f"{joint.name} was trained with {key} {asked:g}, allowed is {most:g}"


def _entries(
    path: str, where: str, found: Any, known: Sequence[str] | Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Entries of a part of the file, whose keys are known."""
    place = f"{where}: " if where else ""
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: {place}expected names with values, got {found!r}")
    for key, value in found.items():
        if key not in known:
            raise ConfigError(f"{path}: {place}{unknown_name('entry', str(key), known)}")
        yield key, value


def _check_numbers(path: str, what: str, value: Any, count: int) -> None:
    """Refuse anything but a number >= 0, or as many numbers as there must be."""
    row = _row(value)
    numbers = all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in row
    )
    if not numbers or (len(row) != count if count else row is value or value < 0):
        expected = f"{count} numbers" if count else "a number >= 0"
        raise ConfigError(f"{path}: {what} must be {expected}, got {value!r}")


def _row(value: Any) -> Sequence[float]:
    return value if isinstance(value, list | tuple) else [value]


def _finite(value: Any) -> bool:
    return all(map(math.isfinite, _row(value)))


def _within(asked: Any, given: Any) -> bool:
    """True if a bound is no wider than another: a largest value, or a range."""
    if isinstance(given, list | tuple):
        slack = _SLACK * max(1.0, *map(abs, given))
        return asked[0] >= given[0] - slack and asked[1] <= given[1] + slack
    return asked <= given * (1 + _SLACK)


def _meet(one: Any, other: Any) -> Any:
    """The narrower of two bounds of the same kind."""
    if isinstance(other, list | tuple):
        return [max(one[0], other[0]), min(one[1], other[1])]
    return min(one, other)


def _same(one: Any, other: Any) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
        for a, b in zip(_row(one), _row(other), strict=True)
    )


def _written(value: Any) -> str:
    return (
        f"[{', '.join(f'{v:g}' for v in value)}]"
        if isinstance(value, list | tuple)
        else f"{value:g}"
    )
