"""What a policy can see: functions of what a robot measured and what a task asks for, by name.

A task may add terms of its own to `TERMS` when its module is imported; a bundle names the terms it
needs, so those must not live in `sim`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from array_api_compat import array_namespace

from robot_rl.core import quaternion
from robot_rl.core.array import Array
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.mirrored import Mirrored, mirrored
from robot_rl.core.robot_state import RobotState
from robot_rl.core.rows import EnvSelection, PickedRows


@dataclass(frozen=True, kw_only=True)
class ObservationInputs:
    """Everything that an actor's term may read: only what a robot has too."""

    state: RobotState
    """What the robot measured."""
    goal: Mapping[str, Array]
    """What the task asks for, by name, each (N, width), world frame unless named otherwise."""
    last_action: Array
    """Action accepted in the previous step, (N, A), in [-1, 1]."""
    sensed: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Further inputs by name, each (N, width): an object's pose, a height scan, a base action."""

    def take(self, rows: EnvSelection) -> "ObservationInputs":
        """The same inputs for the picked worlds only."""
        return ObservationInputs(
            state=RobotState(PickedRows(rows, self.state.fields)),
            goal=PickedRows(rows, self.goal),
            last_action=rows.take(self.last_action),
            sensed=PickedRows(rows, self.sensed),
        )


Term = Callable[[ObservationInputs], Array]


@mirrored(Mirrored.vector)
def position_error_w(inputs: ObservationInputs) -> Array:
    """Way from the goal to the base, (N, 3), [m], world axes."""
    return inputs.state.position_w - goal_entry(inputs, "position_w")


@mirrored(Mirrored.vector)
def velocity_error_w(inputs: ObservationInputs) -> Array:
    """Velocity of the base relative to the goal's, (N, 3), [m/s], world axes."""
    return inputs.state.linear_velocity_w - goal_entry(inputs, "linear_velocity_w")


@mirrored(Mirrored.vector)
def preview_w(inputs: ObservationInputs) -> Array:
    """Future goal positions as seen from the base, (N, K * 3), [m], world axes, soonest first."""
    points = goal_entry(inputs, "preview_w")  # (N, K * 3)
    xp = array_namespace(points)
    count = points.shape[-1] // 3
    return points - xp.tile(inputs.state.position_w, (1, count))


@mirrored(Mirrored.vector)
def gate_offsets(inputs: ObservationInputs) -> Array:
    """Place of the base as seen from the next two gates, (N, 6), [m]: ahead, left, above of each.

    Ahead is where the gate is left when it is flown through. Without a gate, where the goal's
    normal is zero, ahead and left are zero.
    """
    position, normals = inputs.state.position_w, goal_entry(inputs, "gate_normals_w")
    xp = array_namespace(position)
    columns: list[Array] = []
    for i, name in enumerate(("position_w", "preview_w")):
        way = position - goal_entry(inputs, name)[:, :3]
        x, y = normals[:, 3 * i], normals[:, 3 * i + 1]
        columns += [way[:, 0] * x + way[:, 1] * y, way[:, 1] * x - way[:, 0] * y, way[:, 2]]
    return xp.stack(columns, axis=-1)


@mirrored(Mirrored.rotation)
def orientation_matrix(inputs: ObservationInputs) -> Array:
    """Rotation matrix body to world, row-major, (N, 9)."""
    return quaternion.rotation_matrix(inputs.state.orientation_w)


@mirrored(Mirrored.rotation)
def goal_orientation_b(inputs: ObservationInputs) -> Array:
    """Rotation matrix from the base to where it should look, row-major, (N, 9).

    It reads the goal `orientation_matrix_w`, body to world, row-major.
    """
    base = quaternion.rotation_matrix(inputs.state.orientation_w)
    goal = goal_entry(inputs, "orientation_matrix_w")
    xp = array_namespace(base)
    back = xp.permute_dims(xp.reshape(base, (-1, 3, 3)), (0, 2, 1))
    return xp.reshape(xp.matmul(back, xp.reshape(goal, (-1, 3, 3))), (-1, 9))


@mirrored(Mirrored.vector)
def linear_velocity_w(inputs: ObservationInputs) -> Array:
    """Velocity of the base, (N, 3), [m/s], world axes."""
    return inputs.state.linear_velocity_w


@mirrored(Mirrored.vector)
def linear_velocity_b(inputs: ObservationInputs) -> Array:
    """Velocity of the base, (N, 3), [m/s], body axes."""
    state = inputs.state
    return quaternion.rotate_inverse(state.orientation_w, state.linear_velocity_w)


@mirrored(Mirrored.vector)
def projected_gravity_b(inputs: ObservationInputs) -> Array:
    """Direction of gravity, unit vector, (N, 3), body axes: (0, 0, -1) when upright."""
    return -quaternion.rotation_matrix(inputs.state.orientation_w)[:, 6:9]


@mirrored(Mirrored.pseudovector)
def angular_velocity_b(inputs: ObservationInputs) -> Array:
    """Angular velocity of the base, (N, 3), [rad/s], body axes."""
    return inputs.state.angular_velocity_b


@mirrored(Mirrored.joints)
def joint_position(inputs: ObservationInputs) -> Array:
    """Joint positions, (N, J), [rad] or [m], joint order of the spec."""
    return inputs.state.joint_position


@mirrored(Mirrored.joints)
def joint_velocity(inputs: ObservationInputs) -> Array:
    """Joint velocities, (N, J), [rad/s] or [m/s], joint order of the spec."""
    return inputs.state.joint_velocity


@mirrored(Mirrored.vector)
def end_effector_error_b(inputs: ObservationInputs) -> Array:
    """Way from the goal to the end effector, (N, 3), [m], base axes."""
    goal = goal_entry(inputs, "end_effector_position_b")
    return inputs.state.end_effector_position_b - goal


@mirrored(Mirrored.action)
def last_action(inputs: ObservationInputs) -> Array:
    """Action accepted in the previous step, (N, A), in [-1, 1]."""
    return inputs.last_action


TERMS: dict[str, Term] = {
    term.__name__: term
    for term in (
        position_error_w,
        velocity_error_w,
        preview_w,
        gate_offsets,
        orientation_matrix,
        goal_orientation_b,
        projected_gravity_b,
        linear_velocity_w,
        linear_velocity_b,
        angular_velocity_b,
        joint_position,
        joint_velocity,
        end_effector_error_b,
        last_action,
    )
}
"""All known actor terms by name."""


def end_effector_offset(inputs: ObservationInputs, name: str) -> Array:
    """Way from a sensed place to the end effector, (N, 3), [m], base axes.

    Raises:
        SpecMismatchError: It is not sensed, or no place.
    """
    place, here = entry(inputs.sensed, name, "sensed input"), inputs.state.end_effector_position_b
    if place.shape[-1] != 3:
        raise SpecMismatchError(
            f"an observation term reads the way to the sensed input '{name}', which has "
            f"{place.shape[-1]} entries; a place has 3"
        )
    return here - place


def goal_entry(inputs: ObservationInputs, name: str) -> Array:
    """A goal by its name; SpecMismatchError where the task does not set it."""
    return entry(inputs.goal, name, "goal")


def entry(values: Mapping[str, Array], name: str, kind: str) -> Array:
    """An input by its name; SpecMismatchError where it is not given."""
    try:
        return values[name]
    except KeyError:
        raise SpecMismatchError(
            f"an observation term reads the {kind} '{name}', which is not given here; "
            f"given: {sorted(values)}"
        ) from None
