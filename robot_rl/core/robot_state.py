"""Measurements of a robot: the fields of a state and the measured state itself."""

from collections.abc import Mapping
from enum import Enum

from robot_rl.core.env_selection import Array
from robot_rl.core.errors import SpecMismatchError, unknown_name


class Mirrored(Enum):
    """Effect of exchanging left and right on columns; the first six may be repeated."""

    vector = "vector"
    """(x, y, z): y flips."""
    pseudovector = "pseudovector"
    """(x, y, z) of a rotation, an angular velocity, a torque: x and z flip."""
    quaternion = "quaternion"
    """wxyz: x and z flip."""
    rotation = "rotation"
    """Matrix, row-major: entries with one y in row or column flip."""
    wrench = "wrench"
    """A force, then a torque."""
    ground_motion = "ground motion"
    """(forward, to the left, turning to the left): the last two flip."""
    same = "same"
    """Any number of columns that stay."""
    opposite = "opposite"
    """Any number of columns that flip, such as a clock that is half a cycle ahead there."""
    joints = "joints"
    """One per joint."""
    action = "action"
    """One action, as the robot's action map makes commands of it."""
    feet = "feet"
    """One per foot, without a direction."""


STATE_FIELDS = {
    "position_w": "position of the base, (N, 3), [m]",
    "orientation_w": "attitude of the base, unit quaternion wxyz, (N, 4)",
    "linear_velocity_w": "velocity of the base, (N, 3), [m/s], world axes",
    "angular_velocity_b": "angular velocity of the base, (N, 3), [rad/s], body axes",
    "linear_acceleration_b": "specific force at the IMU, (N, 3), [m/s^2], body axes",
    "end_effector_position_b": "position of the end effector, (N, 3), [m], base axes",
    "end_effector_orientation_b": "attitude of the end effector, (N, 4), wxyz, base axes",
    "gripper_opening": "opening of the gripper as a fraction of the largest, (N, 1)",
    "joint_position": "(N, J), [rad] or [m], joint order of the spec",
    "joint_velocity": "(N, J), [rad/s] or [m/s], joint order of the spec",
    "joint_effort": "(N, J), [N m] or [N], joint order of the spec",
    "foot_force": "normal force at every foot, (N, F), [N], foot order of the spec",
    "wrench_ee": "(N, 6), force [N] and torque [N m] that the end effector is held with, its axes",
}
"""Every field that a `RobotState` can have. A robot declares those that it measures as sensors."""

FIELD_KINDS = {
    "position_w": Mirrored.vector,
    "orientation_w": Mirrored.quaternion,
    "linear_velocity_w": Mirrored.vector,
    "angular_velocity_b": Mirrored.pseudovector,
    "linear_acceleration_b": Mirrored.vector,
    "end_effector_position_b": Mirrored.vector,
    "end_effector_orientation_b": Mirrored.quaternion,
    "gripper_opening": Mirrored.same,
    "joint_position": Mirrored.joints,
    "joint_velocity": Mirrored.joints,
    "joint_effort": Mirrored.joints,
    "foot_force": Mirrored.feet,
    "wrench_ee": Mirrored.wrench,
}
"""Kind of each of them under a mirror."""


class _Measured:
    """Field of a `RobotState`, read as an attribute; its meaning stands in `STATE_FIELDS`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, state: "RobotState", owner: type | None = None) -> Array:
        return state.field(self._name)


class RobotState:
    """Measured state, batch-first; has only the fields it was made with."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Array]) -> None:
        """Hold fields of `STATE_FIELDS`, name -> array (N, width), without copying them."""
        for name in values:
            if name not in STATE_FIELDS:
                raise SpecMismatchError(unknown_name("state field", name, STATE_FIELDS))
        self._values = values

    @property
    def fields(self) -> Mapping[str, Array]:
        """All fields by name."""
        return self._values

    position_w = _Measured()
    orientation_w = _Measured()
    linear_velocity_w = _Measured()
    angular_velocity_b = _Measured()
    linear_acceleration_b = _Measured()
    end_effector_position_b = _Measured()
    end_effector_orientation_b = _Measured()
    gripper_opening = _Measured()
    joint_position = _Measured()
    joint_velocity = _Measured()
    joint_effort = _Measured()
    foot_force = _Measured()
    wrench_ee = _Measured()

    def field(self, name: str) -> Array:
        """A field by its name.

        Raises:
            SpecMismatchError: The robot does not measure it.
        """
        try:
            return self._values[name]
        except KeyError:
            raise SpecMismatchError(
                f"'{name}' ({STATE_FIELDS[name]}) was asked for, but this robot measures only "
                f"{sorted(self._values)}; declare a sensor or an estimator for it in the RobotSpec"
            ) from None
