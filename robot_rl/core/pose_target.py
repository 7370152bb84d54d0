"""Target of an end effector that actions displace, and the action of a target that was followed.

    action in [-1, 1] --- ActionMap ---> displacement (t [m], r [rad], rotation vector)
    position    <- p + F t                        kept within a leash of the measured pose,
    orientation <- exp(F r) o                     the position in the workspace after that

F has the axes that displacements are given in: those of the base, or of the end effector at the
episode's start. Policy, person and demonstration displace the same target, so everybody's executed
action is read back from the target that was really followed.
"""

from typing import Any

from array_api_compat import array_namespace

from robot_rl.core import quaternion
from robot_rl.core.action import NO_OPENING, POSE_AXES, ActionMap, PoseFrame, PoseMotion
from robot_rl.core.env_selection import Array
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import PoseCommand, RobotCommand, opening_of, with_opening

TARGET_OFFSET = "target_offset"
"""Name of the further input that says the way from the measured pose to the target, (N, 6), as of
`PoseTarget.offset`. Nothing measures it: who displaces the target knows it."""
_ACTION_SLACK, _AXIS_SLACK = 1e-3, 1e-4
"""Part of an action beyond [-1, 1], and motion along an axis that actions do not move [m] or [rad],
that count as rounding: numbers pass through float32."""


class PoseTarget:
    """The target before the present control period, of N robots; an action leads on from it.

    `command` says where an action leads, `follow` what was really followed in the period: the
    target is that from then on. Between both, `executed` tells the action that it amounts to.
    Poses are in the base's axes, which are the world's where the base is fixed.
    """

    def __init__(self, action_map: ActionMap, state: RobotState) -> None:
        """Start at the measured pose, (N, ...), numpy or torch.

        Raises:
            SpecMismatchError: The map is of another kind than `pose`, or the robot does not measure
                its end effector.
        """
        if action_map.pose is None:
            raise SpecMismatchError(
                f"a pose target needs an action map of kind 'pose', got '{action_map.kind.value}'"
            )
        self._map = action_map
        self._motion: PoseMotion = action_map.pose
        self._places = [POSE_AXES.index(axis) for axis in self._motion.axes]
        self.position: Array = state.end_effector_position_b
        """Position of the target, (N, 3), [m], base axes."""
        self.orientation: Array = state.end_effector_orientation_b
        """Attitude of the target, (N, 4), wxyz, base axes."""
        self.begin(state)

    def begin(self, state: RobotState, mask: Array | None = None) -> None:
        """Begin an episode: the target is the measured pose, and so are the axes of `start`.

        Args:
            mask: Robots that begin one, (N,) bool; all if None.
        """
        before = None if mask is None else (self.position, self.orientation, self._frame)
        self.start(state.end_effector_position_b, state.end_effector_orientation_b)
        if mask is not None and before is not None:
            xp, rows = array_namespace(self.position), mask[:, None]
            self.position = xp.where(rows, self.position, before[0])
            self.orientation = xp.where(rows, self.orientation, before[1])
            self._frame = xp.where(rows, self._frame, before[2])

    def start(self, position: Array, orientation: Array) -> None:
        """Begin an episode at a target that is held already, (N, 3), [m], and (N, 4), wxyz."""
        self.position, self.orientation = position, quaternion.normalize(orientation)
        self._frame = self.orientation

    def command(self, action: Array, state: RobotState) -> PoseCommand:
        """Target that actions (N, A) lead to; the target before stays until `follow`.

        Args:
            action: In [-1, 1]; values outside are clipped.
            state: Newest measurement, for the leash.
        """
        values = self._map.to_entries(action)
        ways = self._spread(values)
        position = self.position + self._out(ways[..., :3])
        turn = quaternion.from_rotation_vector(self._out(ways[..., 3:]))
        orientation = quaternion.normalize(quaternion.multiply(turn, self.orientation))
        motion = self._motion
        here, attitude = state.end_effector_position_b, state.end_effector_orientation_b
        position = here + _shortened(position - here, motion.position_leash)
        lean = rotation_between(attitude, orientation)
        held = quaternion.from_rotation_vector(_shortened(lean, motion.rotation_leash))
        orientation = quaternion.normalize(quaternion.multiply(held, attitude))
        if motion.workspace:
            low, high = (self._like(list(ends)) for ends in zip(*motion.workspace, strict=True))
            position = position.clip(low, high)
        return PoseCommand(
            position_w=position, orientation_w=orientation,
            gripper=values[..., -1:] if self._map.gripper else None,
        )  # fmt: skip

    def executed(self, followed: RobotCommand) -> tuple[Array, Array]:
        """Action that leads from the target before to the one that was followed.

        Args:
            followed: Target at the end of the period; for a map with a gripper with its opening
                (`with_opening`).

        Returns:
            Action, (N, A), clipped to [-1, 1]; and where it did not lead exactly there, (N,) bool:
            the target moved further than an action can, or along an axis that actions do not move.

        Raises:
            SpecMismatchError: The command is no pose, or says nothing of a gripper that the map
                has an entry for.
        """
        if not isinstance(followed, PoseCommand):
            raise SpecMismatchError(f"expected a PoseCommand, got a {type(followed).__name__}")
        xp = array_namespace(self.position)
        moved = self._in(followed.position_w - self.position)
        turned = self._in(rotation_between(self.orientation, followed.orientation_w))
        ways = xp.concat([moved, turned], axis=-1)
        parts = [ways[..., place : place + 1] for place in self._places]
        if self._map.gripper:
            if followed.gripper is None:
                raise SpecMismatchError(NO_OPENING)
            parts.append(followed.gripper)
        action = self._map.from_entries(xp.concat(parts, axis=-1))
        others = [place for place in range(len(POSE_AXES)) if place not in self._places]
        beyond = xp.max(xp.abs(action), axis=-1) > 1 + _ACTION_SLACK
        for place in others:
            beyond = beyond | (xp.abs(ways[..., place]) > _AXIS_SLACK)
        return action.clip(-1.0, 1.0), beyond

    def follow(self, followed: RobotCommand) -> None:
        """Let the target be the one that was followed, (N, ...)."""
        if not isinstance(followed, PoseCommand):
            raise SpecMismatchError(f"expected a PoseCommand, got a {type(followed).__name__}")
        self.position = followed.position_w
        self.orientation = quaternion.normalize(followed.orientation_w)

    def offset(self, state: RobotState) -> Array:
        """Way from the measured pose to the target, (N, 6): [m], rotation vector [rad], base axes.

        An impedance pulls that way; in free motion it is the lag behind the target.
        """
        way = self.position - state.end_effector_position_b
        turn = rotation_between(state.end_effector_orientation_b, self.orientation)
        return array_namespace(way).concat([way, turn], axis=-1)

    def _spread(self, values: Array) -> Array:
        """Displacements along all six axes, (N, 6)."""
        xp = array_namespace(values)
        none = xp.zeros_like(values[..., :1])
        columns = [none] * len(POSE_AXES)
        for column, place in enumerate(self._places):
            columns[place] = values[..., column : column + 1]
        return xp.concat(columns, axis=-1)

    def _out(self, ways: Array) -> Array:
        """Vectors in the displacements' axes, (N, 3), in the base's."""
        return quaternion.rotate(self._frame, ways) if self._turned else ways

    def _in(self, ways: Array) -> Array:
        """Vectors in the base's axes, (N, 3), in the displacements'."""
        return quaternion.rotate_inverse(self._frame, ways) if self._turned else ways

    @property
    def _turned(self) -> bool:
        return self._motion.frame is PoseFrame.start

    def _like(self, values: Any) -> Array:
        xp = array_namespace(self.position)
        return xp.asarray(values, dtype=self.position.dtype, device=self.position.device)


class CommandMaker:
    """Commands of actions (N, A) of any map: it remembers the targets that actions displace.

    It remembers the gripper's opening, too, for commands that leave that as it is.
    """

    def __init__(self, action_map: ActionMap) -> None:
        self._map = action_map
        self._target: PoseTarget | None = None
        self._asked: RobotCommand | None = None
        self._opening: Array | None = None  # followed before what is asked now

    def command(self, action: Array, state: RobotState, starts: Array) -> RobotCommand:
        """Command of the present control period; what it asked for before counts as followed.

        Args:
            action: In [-1, 1]; values outside are clipped.
            state: Newest measurement.
            starts: Robots whose episodes begin, (N,) bool.
        """
        before = self._asked
        if self._map.pose is None:
            self._asked = self._map.to_command(action)
        else:
            if self._target is None:
                self._target = PoseTarget(self._map, state)
            elif before is not None:
                self._target.follow(before)
            self._target.begin(state, starts)
            self._asked = self._target.command(action, state)
        if self._map.gripper:
            self._opening = self._opening_before(before, opening_of(self._asked), starts)
        return self._asked

    def _opening_before(
        self, before: RobotCommand | None, asked: Array | None, starts: Array
    ) -> Array | None:
        """Opening followed before, (N, 1); where an episode begins, the one that is asked for."""
        followed = None if before is None else opening_of(before)
        if followed is None or asked is None:
            return asked
        return array_namespace(asked).where(starts[:, None], asked, followed)

    def offset(self, state: RobotState, starts: Array) -> Array:
        """Way from the measured pose to the target, (N, 6); none where an episode begins.

        What the last command asked for counts as followed, unless `accept` was told otherwise.

        Args:
            state: Newest measurement.
            starts: Robots whose episodes begin, (N,) bool.

        Raises:
            SpecMismatchError: Actions of this map displace no target.
        """
        target = self._target or PoseTarget(self._map, state)
        if self._target is not None and self._asked is not None:
            target.follow(self._asked)
        away = target.offset(state)
        xp = array_namespace(away)
        return xp.where(starts[:, None], xp.zeros_like(away), away)

    def preview(self, action: Array, state: RobotState) -> RobotCommand:
        """A command like the next one; nothing is remembered."""
        if self._map.pose is None:
            return self._map.to_command(action)
        return (self._target or PoseTarget(self._map, state)).command(action, state)

    def accept(self, command: RobotCommand) -> Array:
        """Take what was really followed in this period; returns the action that it amounts to."""
        self._asked = command = with_opening(command, self._opening)
        if self._target is None:
            return self._map.from_command(command)
        return self._target.executed(command)[0]


def rotation_between(before: Array, after: Array) -> Array:
    """Shortest rotation vector that turns one attitude into another, (N, 3), [rad], outer axes."""
    xp = array_namespace(before)
    turn = quaternion.multiply(after, quaternion.conjugate(before))
    turn = xp.where(turn[..., :1] < 0, -turn, turn)
    axis = turn[..., 1:]
    sine = xp.sqrt(xp.sum(axis * axis, axis=-1, keepdims=True))
    angle = 2 * xp.atan2(sine, turn[..., :1])
    return axis * xp.where(sine > 1e-9, angle / sine.clip(1e-9), xp.full_like(sine, 2.0))


def _shortened(way: Array, longest: float) -> Array:
    """Vectors (N, 3), shortened to a length where they are longer."""
    xp = array_namespace(way)
    length = xp.sqrt(xp.sum(way * way, axis=-1, keepdims=True))
    return way * (longest / length.clip(longest))
