"""The motors of N robots with joints: commands in, and what differs between worlds."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand
from robot_rl.core.rows import Rows
from sim.joints.gripper import Gripper
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_batch import MujocoEngine
from sim.physics.mujoco_motor import AFFINE_GAINS, DC_GAINS, RESISTANCE, delay_times


class JointMotors:
    """Hands commands to the actuators of `mujoco_motor`, with each world's strength and gains.

    Friction that is larger at rest (Stribeck) follows the speed once per control period: MuJoCo's
    Coulomb friction, a soft constraint that lets a held joint creep at milliradians per second and
    is stable at any step, gets the value
    Coulomb + (static - Coulomb) * exp(-(speed / Stribeck speed)^2). MuJoCo's own LuGre friction
    needs steps far below 5 ms: at that step a joint of 0.1 kg m^2 with 1.5 N m of static friction
    and a bristle stiffness of 1e4 N m/rad chatters under a load of 0.5 N m.
    """

    def __init__(self, robot: RobotSpec, engine: MujocoEngine, layout: JointLayout) -> None:
        """Begin with the motors of the spec in every world.

        Args:
            robot: Whose joints have motors; their actuators are the model's first, then those of
                its gripper.
            engine: The worlds.
            layout: Where the robot's joints stand in the engine's state.
        """
        joints = layout.velocity
        self._robot, self._engine, self._joints = robot, engine, joints
        self.gripper: Gripper | None = None
        """The fingers; None for a robot without a gripper."""
        if robot.gripper is not None:
            fingers = engine.qpos[:, layout.fingers]
            self.gripper = Gripper(robot.gripper, fingers, engine.control_dt)
        count = robot.num_joints
        lined = torch.tensor([joint.has_speed_line for joint in robot.joints], dtype=torch.bool)
        self._columns = [
            _GainColumns(engine, field, columns, mask.nonzero()[:, 0], sign)
            for (field, columns), mask, sign in (
                (AFFINE_GAINS, ~lined, -1.0), (DC_GAINS, lined, 1.0),
            ) if bool(mask.any())
        ]  # fmt: skip
        self._lined = lined.nonzero()[:, 0]
        # Stiffness and damping: of the spec, as asked for last, their factors, and in force.
        specs = torch.tensor([[j.stiffness, j.damping] for j in robot.joints]).reshape(count, 2)
        self._spec_gains = specs
        self._asked_gains = torch.full((engine.num_worlds, count, 2), _UNKNOWN)
        self._factors = torch.ones(engine.num_worlds, 1, 2)
        self._gains = torch.ones(engine.num_worlds, count, 2)
        self._control = engine.control[:, :count]
        self._coulomb = torch.zeros(0)
        if any(joint.static_friction > 0 for joint in robot.joints):
            coulomb = torch.tensor(engine.model.dof_frictionloss[joints])
            static = torch.tensor([joint.static_friction for joint in robot.joints]).double()
            self._excess = (static - coulomb).clamp_min(0.0)
            speeds = [joint.stribeck_velocity or 1.0 for joint in robot.joints]
            self._stribeck = torch.tensor(speeds).double()
            self._coulomb = coulomb.repeat(engine.num_worlds, 1)

    def command(self, command: JointCommand) -> None:
        """Set gains and controls of one control period, (N, J) each."""
        kp_asked, kd_asked = self._asked_gains.unbind(-1)
        if not (torch.equal(command.kp, kp_asked) and torch.equal(command.kd, kd_asked)):
            kp_asked.copy_(command.kp)
            kd_asked.copy_(command.kd)
            torch.mul(self._asked_gains, self._factors, out=self._gains)
            for columns in self._columns:
                columns.set(self._gains)
        kp, kd = self._gains.unbind(-1)
        self._control.copy_(kp * command.q + kd * command.dq + command.tau)
        if self.gripper is not None:
            fingers = self.gripper.move(command.gripper)
            self._engine.control[:, self._robot.num_joints :] = fingers
        if self._coulomb.numel():
            self._rub()

    def begin(self, rows: Rows, position: Tensor, fingers: Tensor | None = None) -> Tensor:
        """Give the picked worlds the gains of the spec; nobody has commanded them yet.

        Args:
            rows: Worlds that begin.
            position: Of the joints, (count, J).
            fingers: Of the gripper's joints, (count, F), where there is one.

        Returns:
            Controls without torque at rest at `position` (count, J), (count, nu), float64.
        """
        gains = self._spec_gains * rows.take(self._factors)  # (count, J, 2)
        rows.put(self._asked_gains, self._spec_gains)
        rows.put(self._gains, gains)
        for columns in self._columns:
            columns.put(rows, gains)
        control = torch.zeros(rows.count, self._engine.control.shape[1], dtype=torch.float64)
        control[:, : self._robot.num_joints] = gains[..., 0] * position
        if self.gripper is not None and fingers is not None:
            control[:, self._robot.num_joints :] = self.gripper.begin(rows, fingers)
        return control

    def scale_gains(self, rows: Rows, stiffness: Tensor, damping: Tensor) -> None:
        """Factors on all gains commanded from now on, (count, 1) each."""
        rows.put(self._factors[..., 0], stiffness.float())
        rows.put(self._factors[..., 1], damping.float())
        rows.put(self._asked_gains, _UNKNOWN)

    def scale_strength(self, rows: Rows, factor: Tensor) -> None:
        """Factors on effort limits and stall torques, (count, J); speeds without load stay.

        Raises:
            ConfigError: No joint has a limit.
        """
        model, count = self._engine.model, self._robot.num_joints
        if not model.actuator_forcelimited[:count].any() and not len(self._lined):
            raise ConfigError(
                f"randomization.motor_strength scales effort limits, but robot "
                f"'{self._robot.name}' has none; give its joints an effort_limit"
            )
        limits = torch.tensor(model.actuator_forcerange[:count])  # (J, 2)
        field = self._engine.model_field("actuator_forcerange")[:, :count]
        rows.put(field, limits * factor[..., None])
        if len(self._lined):
            nominal = torch.tensor(model.actuator_gainprm[:, RESISTANCE])[self._lined]
            field = self._engine.model_field("actuator_gainprm")[:, :, RESISTANCE]
            values = rows.take(field)
            values[:, self._lined] = nominal / factor[:, self._lined]
            rows.put(field, values)

    def add_delay(self, rows: Rows, delay: Tensor) -> None:
        """Time that the motors' delay exceeds the spec's by, (count, 1), [s]."""
        own = torch.tensor([joint.actuator_delay for joint in self._robot.joints]).double()
        field = self._engine.model_field("actuator_delay")[:, : self._robot.num_joints]
        rows.put(field, delay_times(own + delay, float(self._engine.model.opt.timestep)))

    def set_friction(self, rows: Rows, coulomb: Tensor) -> None:
        """Coulomb friction of the joints, (count, J), [N m]."""
        if self._coulomb.numel():
            rows.put(self._coulomb, coulomb)
        rows.put(self._engine.model_field("dof_frictionloss")[:, self._joints], coulomb)

    def state_dict(self) -> dict[str, Any]:
        """What the engine does not hold: Coulomb friction, and what is asked of the gripper."""
        gripper = {} if self.gripper is None else self.gripper.state_dict()
        return {"coulomb": self._coulomb.clone(), "gripper": gripper}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._coulomb.copy_(state["coulomb"])
        self._asked_gains.fill_(_UNKNOWN)
        if self.gripper is not None:
            self.gripper.load_state_dict(state["gripper"])

    def _rub(self) -> None:
        speed = self._engine.qvel[:, self._joints] / self._stribeck
        friction = self._coulomb + self._excess * torch.exp(-(speed * speed))
        self._engine.model_field("dof_frictionloss")[:, self._joints] = friction


_UNKNOWN = float("nan")
"""Asked gains that equal no others, so that the next command is written."""


class _GainColumns:
    """Stiffness and damping of motors of one kind, where the engine reads them."""

    def __init__(
        self,
        engine: MujocoEngine,
        field: str,
        columns: tuple[int, int],
        motors: Tensor,
        sign: float,
    ) -> None:
        first, second = columns
        both = slice(first, second + 1, second - first)
        self._values, self._sign = engine.model_field(field)[:, :, both], sign
        start, stop = int(motors[0]), int(motors[-1]) + 1
        alike = len(motors) == stop - start  # a slice costs far less than an index
        self._motors = slice(start, stop) if alike else motors

    def set(self, gains: Tensor) -> None:
        """Of all worlds, (N, J, 2)."""
        self._values[:, self._motors] = (self._sign * gains[:, self._motors]).double()

    def put(self, rows: Rows, gains: Tensor) -> None:
        """Of the picked worlds, (count, J, 2)."""
        values = rows.take(self._values)
        values[:, self._motors] = (self._sign * gains[:, self._motors]).double()
        rows.put(self._values, values)
