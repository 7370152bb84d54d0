"""Cartesian position control: joint targets that bring the end effector to a pose.

    q   = IK(q_last, pose), each joint no faster than it may be
    dq  = (q - q_last) / dt

For robots whose motors, or somebody else's controller, follow joint positions: most nodes of ROS 2
take nothing else. The joints' own gains decide how hard the arm pushes; the pose that is solved for
lies no further from the measured one than a clip, so that the push is bounded however far the
setpoint is.
Source: `inverse_kinematics`, two iterations per tick, begun at the target before.
"""

from collections.abc import Sequence

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.cartesian_impedance import clipped
from hardware.controllers.chain import KinematicChain
from hardware.controllers.controller import expect, finite
from hardware.controllers.inverse_kinematics import InverseKinematics
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, RobotCommand

_ITERATIONS = 2
"""Of a tick: poses move by a millimetre between two, which one iteration takes on."""
_POSITION_CLIP = 0.03
"""Longest distance from the measured pose that is asked for: the lag behind a pose that moves has
to fit in. A choice [m]."""
_ROTATION_CLIP = 0.15
"""Largest angle likewise [rad]."""


class CartesianPosition:
    """Brings the end effector of an arm to a pose through joint targets with the robot's gains.

    The arm's base is the origin of the world that poses are given in.
    """

    setpoint: CommandKind = CommandKind.pose
    command: CommandKind = CommandKind.joint

    def __init__(
        self, spec: RobotSpec, chain: KinematicChain, *, rest: Sequence[float] | None = None
    ) -> None:
        """Describe the arm.

        Args:
            spec: The robot: limits, speeds and gains of its joints.
            chain: Its links.
            rest: Pose that spare joints are drawn to, (J,), [rad]; None for the middle of their
                ranges.
        """
        self._chain = chain
        lower, upper = zip(*(joint.position_limit for joint in spec.joints), strict=True)
        self._inverse = InverseKinematics(chain, lower=lower, upper=upper, rest=rest)
        self._kp = np.array([[joint.stiffness for joint in spec.joints]], dtype=np.float64)
        self._kd = np.array([[joint.damping for joint in spec.joints]], dtype=np.float64)
        self._speed = np.array([joint.velocity_limit for joint in spec.joints])
        self._q = np.zeros(len(spec.joints))

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Go on from the joint targets sent last, which hold the arm; else from the joints."""
        self._q = np.array(state.joint_position[0], dtype=np.float64)
        if isinstance(last, JointCommand) and bool(np.all(last.kp > 0)) and finite(last):
            self._q = np.array(last.q[0], dtype=np.float64)

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> JointCommand:
        """Joint targets of this tick, (1, J)."""
        target = expect(setpoint, PoseCommand)
        grip = None if target.gripper is None else np.array(target.gripper, dtype=np.float64)
        if not finite(target, np.asarray(state.joint_position)):
            return self._command(np.full_like(self._q, np.nan), np.zeros_like(self._q), grip)
        place, turn = self._near(target, np.array(state.joint_position[0], dtype=np.float64))
        wanted = self._inverse.solve(self._q, place, turn, iterations=_ITERATIONS)
        reach = self._speed * max(dt, 0.0)
        before, self._q = self._q, np.clip(wanted, self._q - reach, self._q + reach)
        speed = (self._q - before) / dt if dt > 0 else np.zeros_like(before)
        return self._command(self._q, speed, grip)

    def _near(self, target: PoseCommand, q: np.ndarray) -> tuple[np.ndarray, rotations.Quaternion]:
        """The pose of a setpoint, or the nearest one within the clips of the measured pose."""
        measured = self._chain.at(q)
        way = np.array(target.position_w[0], dtype=np.float64) - measured.tip_position_b
        back = rotations.conjugate(measured.tip_orientation_b)
        turned = rotations.multiply(rotations.quaternion(target.orientation_w), back)
        turn = clipped(np.array(rotations.rotation_vector(turned)), _ROTATION_CLIP)
        spin = rotations.from_rotation_vector(rotations.vector(turn))
        return (
            measured.tip_position_b + clipped(way, _POSITION_CLIP),
            rotations.multiply(spin, measured.tip_orientation_b),
        )

    def _command(self, q: np.ndarray, dq: np.ndarray, gripper: np.ndarray | None) -> JointCommand:
        return JointCommand(
            q=q[None].copy(), dq=dq[None].copy(), tau=np.zeros((1, len(q))), kp=self._kp.copy(),
            kd=self._kd.copy(), gripper=gripper,
        )  # fmt: skip
