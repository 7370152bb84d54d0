"""The motors of N robots with joints: commands in, and what differs between worlds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand
from robot_rl.core.rows import Rows
from sim.joints.gripper import Gripper
from sim.joints.target_ramp import TargetRamp
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_motor import AFFINE_GAINS, DC_GAINS, RESISTANCE, delay_times


class JointMotors:
    """Hands commands to the actuators of `mujoco_motor`, with each world's strength and gains.

    Friction that is larger at rest (Stribeck) follows the speed once per control period: MuJoCo's
    Coulomb friction, a soft constraint that lets a held joint creep at milliradians per second and
    is stable at any step, gets the value
    Coulomb + (static - Coulomb) * exp(-(speed / Stribeck speed)^2). MuJoCo's own LuGre friction
    needs steps far below 5 ms: at that step a joint of 0.1 kg m^2 with 1.5 N m of static friction
    and a bristle stiffness of 1e4 N m/rad chatters under a load of 0.5 N m.

    Beginnings are written with numpy: a few worlds begin in every step, and for so few numbers an
    operation of torch takes several times as long.
    """

    def __init__(
        self,
        robot: RobotSpec,
        engine: Engine,
        layout: JointLayout,
        *,
        limit_target_speed: bool = False,
    ) -> None:
        """Begin with the motors of the spec in every world.

        Args:
            robot: Whose joints have motors; their actuators are the model's first, then those of
                its gripper.
            engine: The worlds.
            layout: Where the robot's joints stand in the engine's state.
            limit_target_speed: Let position targets move no faster than the joints may.
        """
        joints = layout.velocity
        self._robot, self._engine, self._joints = robot, engine, joints
        self.gripper: Gripper | None = None
        """The fingers; None for a robot without a gripper."""
        if robot.gripper is not None:
            fingers = engine.qpos[:, layout.fingers].numpy()
            self.gripper = Gripper(robot.gripper, fingers, engine.control_dt)
        count = robot.num_joints
        lined = torch.tensor([joint.has_speed_line for joint in robot.joints], dtype=torch.bool)
        self._columns = [
            _GainColumns(engine, field, columns, mask.nonzero()[:, 0].numpy(), sign)
            for (field, columns), mask, sign in (
                (AFFINE_GAINS, ~lined, -1.0), (DC_GAINS, lined, 1.0),
            ) if bool(mask.any())
        ]  # fmt: skip
        self._lined = lined.nonzero()[:, 0].numpy()
        # Stiffness and damping: of the spec, as asked for last, their factors, and in force.
        specs = [[j.stiffness for j in robot.joints], [j.damping for j in robot.joints]]
        self._spec_gains = np.array(specs, dtype=np.float32)[:, None]  # (2, 1, J)
        self._asked_gains = np.full((2, engine.num_worlds, count), np.nan, dtype=np.float32)
        self._factors = np.ones((2, engine.num_worlds, 1), dtype=np.float32)
        self._gains = np.ones_like(self._asked_gains)
        self._asked = torch.from_numpy(self._asked_gains).unbind()  # the same memory
        self._kp, self._kd = torch.from_numpy(self._gains)
        self._control = engine.control[:, :count]
        self._finger_control = engine.control[:, count:].numpy()
        self._ramp = TargetRamp(robot, engine) if limit_target_speed else None
        self._coulomb = torch.zeros(0)
        if any(joint.static_friction > 0 for joint in robot.joints):
            coulomb = torch.tensor(engine.model.dof_frictionloss[joints])
            static = torch.tensor([joint.static_friction for joint in robot.joints]).double()
            self._excess = (static - coulomb).clamp_min(0.0)
            speeds = [joint.stribeck_velocity or 1.0 for joint in robot.joints]
            self._stribeck = torch.tensor(speeds).double()
            self._coulomb = coulomb.repeat(engine.num_worlds, 1)

    def command(self, command: JointCommand) -> NDArray[np.float64] | None:
        """Set gains and controls of one control period, (N, J) each.

        Returns:
            Controls of all its physics steps, (N, steps, nu), where they differ.
        """
        kp, kd = self._asked
        if not (torch.equal(command.kp, kp) and torch.equal(command.kd, kd)):
            kp.copy_(command.kp)
            kd.copy_(command.kd)
            np.multiply(self._asked_gains, self._factors, out=self._gains)
            for columns in self._columns:
                columns.set(self._gains)
        torque = torch.addcmul(command.tau, self._kp, command.q)
        self._control.copy_(torque.addcmul_(self._kd, command.dq))
        if self.gripper is not None:
            self._finger_control[:] = self.gripper.move(command.gripper)
        if self._coulomb.numel():
            self._rub()
        if self._ramp is None:
            return None
        return self._ramp.draw(command.q.numpy(), self._gains[0])

    def begin(
        self, rows: Rows, position: NDArray[np.float64], finger: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Give the picked worlds the gains of the spec; nobody has commanded them yet.

        Args:
            rows: Worlds that begin.
            position: Of the joints, (count, J).
            finger: Of every finger, (count, 1), where there is a gripper.

        Returns:
            Controls without torque at rest at `position` (count, J), (count, nu).
        """
        gains = self._spec_gains * self._factors[:, rows.ids]  # (2, count, J)
        self._asked_gains[:, rows.ids] = self._spec_gains
        self._gains[:, rows.ids] = gains
        for columns in self._columns:
            columns.put(rows, gains)
        if self._ramp is not None:
            self._ramp.begin(rows, position)
        control = np.zeros((rows.count, self._engine.control.shape[1]))
        control[:, : self._robot.num_joints] = gains[0] * position
        if self.gripper is not None and finger is not None:
            control[:, self._robot.num_joints :] = self.gripper.begin(rows, finger)
        return control

    def scale_gains(
        self, rows: Rows, stiffness: NDArray[np.float64], damping: NDArray[np.float64]
    ) -> None:
        """Factors on the gains of the picked worlds, (count, 1) each, before they `begin`."""
        self._factors[0, rows.ids] = stiffness
        self._factors[1, rows.ids] = damping

    def scale_strength(self, rows: Rows, factor: NDArray[np.float64]) -> None:
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
        limits = model.actuator_forcerange[:count]  # (J, 2)
        field = self._engine.model_field("actuator_forcerange").numpy()
        field[rows.ids, :count] = limits * factor[..., None]
        if len(self._lined):
            nominal = model.actuator_gainprm[self._lined, RESISTANCE]
            field = self._engine.model_field("actuator_gainprm").numpy()
            field[rows.ids[:, None], self._lined, RESISTANCE] = nominal / factor[:, self._lined]

    def add_delay(self, rows: Rows, delay: NDArray[np.float64]) -> None:
        """Time that the motors' delay exceeds the spec's by, (count, 1), [s]."""
        own = np.array([joint.actuator_delay for joint in self._robot.joints])
        field = self._engine.model_field("actuator_delay").numpy()
        times = delay_times(own + delay, float(self._engine.model.opt.timestep))
        field[rows.ids, : self._robot.num_joints] = times

    def set_friction(self, rows: Rows, coulomb: NDArray[np.float64]) -> None:
        """Coulomb friction of the joints, (count, J), [N m]."""
        if self._coulomb.numel():
            self._coulomb.numpy()[rows.ids] = coulomb
        field = self._engine.model_field("dof_frictionloss").numpy()
        field[rows.ids, self._joints] = coulomb

    def state_dict(self) -> dict[str, Any]:
        """What the engine does not hold: Coulomb friction, what is asked of gripper and joints."""
        gripper = {} if self.gripper is None else self.gripper.state_dict()
        ramp = {} if self._ramp is None else self._ramp.state_dict()
        return {"coulomb": self._coulomb.clone(), "gripper": gripper, "ramp": ramp}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._coulomb.copy_(state["coulomb"])
        self._asked_gains[:] = np.nan  # equal to no gains: those of the next command are written
        if self.gripper is not None:
            self.gripper.load_state_dict(state["gripper"])
        if self._ramp is not None:
            self._ramp.load_state_dict(state["ramp"])

    def _rub(self) -> None:
        speed = self._engine.qvel[:, self._joints] / self._stribeck
        friction = self._coulomb + self._excess * torch.exp(-(speed * speed))
        self._engine.model_field("dof_frictionloss")[:, self._joints] = friction


class _GainColumns:
    """Stiffness and damping of motors of one kind, where the engine reads them."""

    def __init__(
        self, engine: Engine, field: str, columns: tuple[int, int], motors: NDArray[np.int64],
        sign: float,
    ) -> None:  # fmt: skip
        first, second = columns
        values = engine.model_field(field).numpy()  # (N, motors of the model, columns)
        self._values = values[:, :, first : second + 1 : second - first]
        self._motors, self._sign = motors, sign

    def set(self, gains: NDArray[np.float32]) -> None:
        """Of all worlds, (2, N, J)."""
        self._values[:, self._motors] = self._sign * gains[:, :, self._motors].transpose(1, 2, 0)

    def put(self, rows: Rows, gains: NDArray[np.float32]) -> None:
        """Of the picked worlds, (2, count, J)."""
        values = self._sign * gains[:, :, self._motors].transpose(1, 2, 0)
        self._values[rows.ids[:, None], self._motors] = values
