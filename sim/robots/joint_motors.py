"""Motors and gripper of N robots with joints: commands in, and what differs between envs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection, counting_is_free
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import GripperSpec, RobotSpec
from robot_rl.core.robot_command import JointCommand
from sim.physics.engine import Engine
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_model import AFFINE_GAINS, DC_GAINS, RESISTANCE, delay_times


class Gripper:
    """The fingers of N worlds.

    The target of every finger moves towards what was asked, no faster than the gripper can, and
    never farther ahead of the fingers than where their motors reach the force limit: an object is
    held with that force and let go at once. Without a new command the fingers go on as before.
    """

    def __init__(self, spec: GripperSpec, position: Tensor, control_dt: float) -> None:
        """Begin open.

        Args:
            position: Of the finger joints, (N, F), live, [m] or [rad].
        """
        self._spec, self._position = spec, position
        self._step = spec.speed * control_dt
        self._lead = spec.force_limit / spec.stiffness + self._step
        count, fingers = position.shape
        self._asked = position.new_full((count, 1), spec.open)
        self.target = self._asked.clone()
        """Position that the motor of every finger holds, (N, 1)."""
        self._looking_is_free = counting_is_free(position)
        self._arrived = self._looking_is_free  # every target is known to be where it was asked
        self._share = position.new_full((fingers, 1), 1 / fingers)
        self._middle = position @ self._share
        self.opening = torch.ones(count, 1, device=position.device)
        """Opening as a fraction, (N, 1), as of the last `look`."""
        # Behind a step of the engine numpy takes a third of torch's time for so few numbers.
        self._xp: Any = np if self._looking_is_free else torch
        parts = self._position, self._share, self._middle, self.opening
        self._looked: Any = [part.numpy() for part in parts] if self._looking_is_free else parts

    def move(self, opening: Tensor | None) -> Tensor:
        """Inputs of the finger motors for one control period, one for all fingers, (N, 1).

        Args:
            opening: Asked opening as a fraction, (N, 1); None asks for nothing new.
        """
        target, middle = self.target, self._middle
        if opening is not None:
            self._asked.copy_(self.joint_position(opening))
        elif self._arrived and float((target - middle).abs_().max()) <= self._lead:
            return self._spec.stiffness * target  # as most fingers most of the time
        target = self._asked.clamp(target - self._step, target + self._step)
        self.target = target.clamp_(middle - self._lead, middle + self._lead)
        self._arrived = self._looking_is_free and torch.equal(self.target, self._asked)
        return self._spec.stiffness * self.target

    def begin(self, rows: EnvSelection, position: Tensor) -> Tensor:
        """Ask the picked worlds to stay at a position, (count, 1); input of their motors."""
        rows.put(self._asked, position)
        rows.put(self.target, position)
        return self._spec.stiffness * position

    def look(self) -> None:
        """Bring `opening` up to date with the fingers."""
        spec, xp = self._spec, self._xp
        position, share, middle, opening = self._looked
        xp.matmul(position, share, out=middle)
        xp.subtract(middle, spec.closed, out=opening)
        xp.divide(opening, spec.open - spec.closed, out=opening)

    def joint_position(self, opening: Tensor) -> Tensor:
        """Position of every finger joint, (count, 1), at an opening, (count, 1)."""
        spec = self._spec
        fraction = opening.detach().to(self._position.dtype).clamp(0.0, 1.0)
        return spec.closed + (spec.open - spec.closed) * fraction

    def state_dict(self) -> dict[str, Any]:
        """Targets of the fingers, copied."""
        return {"asked": self._asked.clone(), "target": self.target.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._asked.copy_(state["asked"])
        self.target.copy_(state["target"])
        self._arrived = self._looking_is_free and torch.equal(self.target, self._asked)


class TargetRamp:
    """The way of the targets of N worlds through the physics steps of a control period."""

    def __init__(self, robot: RobotSpec, engine: Engine) -> None:
        """Begin at zero; `begin` says where really.

        Args:
            robot: Joints with velocity limits; their actuators are the model's first.
            engine: Its controls are written.
        """
        count, joints, steps = engine.num_worlds, robot.num_joints, engine.decimation
        control = engine.control
        fastest = torch.tensor([joint.velocity_limit for joint in robot.joints]).to(control)
        self._fastest = fastest.clip(1e-6, 1e6)  # neither stuck nor without a limit divides well
        # Ways are counted in seconds at the joints' limits; steps lie outermost, worlds and joints
        # side by side: the processor is quick along long rows.
        self._passed = torch.arange(1, steps + 1).to(control)[:, None] * (engine.control_dt / steps)
        self._back = -self._passed  # [s], (steps, 1)
        self.target = torch.zeros_like(control[:, :joints])
        """Present targets, (N, J), [rad]."""
        self._moved = control.new_zeros(steps, count * joints)
        self._control, self._others = control[:, :joints], control[:, None, joints:]
        self._ramp, self._other_ramps = engine.ramp[..., :joints], engine.ramp[..., joints:]

    def draw(self, goal: Tensor, stiffness: Tensor) -> None:
        """Move the targets for one control period: write the engine's `ramp`.

        The engine's controls are those of the goals before, and those of the last step after.

        Args:
            goal: Asked positions, (N, J), [rad].
            stiffness: Gains that multiply positions in the controls, (N, J), [N m/rad].
        """
        way = (goal - self.target).div_(self._fastest)  # (N, J), [s]
        gain = stiffness * self._fastest
        moved = torch.minimum(way.reshape(-1), self._passed, out=self._moved)
        torch.maximum(moved, self._back, out=moved)
        self.target.addcmul_(moved[-1].reshape(way.shape), self._fastest)
        moved *= gain.reshape(-1)
        torque = moved.reshape(-1, *way.shape).transpose(0, 1)  # (N, steps, J)
        start = self._control - gain.mul_(way)  # controls of the targets before
        torch.add(start[:, None], torque, out=self._ramp)
        self._other_ramps.copy_(self._others)
        self._control.copy_(self._ramp[:, -1])

    def begin(self, rows: EnvSelection, position: Tensor) -> None:
        """Let the targets of the picked worlds start from positions, (count, J), [rad]."""
        rows.put(self.target, position)

    def state_dict(self) -> dict[str, Any]:
        """Present targets, copied."""
        return {"target": self.target.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.target.copy_(state["target"])


class JointMotors:
    """Hands commands to the actuators, with the strength and gains of each env.

    Friction that is larger at rest (Stribeck) follows the speed once per control period: MuJoCo's
    Coulomb friction, a soft constraint that lets a held joint creep at milliradians per second and
    is stable at any step, gets the value
    Coulomb + (static - Coulomb) * exp(-(speed / Stribeck speed)^2). MuJoCo's own LuGre friction
    needs steps far below 5 ms: at that step a joint of 0.1 kg m^2 with 1.5 N m of static friction
    and a bristle stiffness of 1e4 N m/rad chatters under a load of 0.5 N m.
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
            limit_target_speed: Let position targets move no faster than the joints may.
        """
        joints, device = layout.velocity, engine.control.device
        self._robot, self._engine, self._joints = robot, engine, joints
        self.gripper: Gripper | None = None
        """The fingers; None for a robot without a gripper."""
        if robot.gripper is not None:
            fingers = engine.qpos[:, layout.fingers]
            self.gripper = Gripper(robot.gripper, fingers, engine.control_dt)
        count = robot.num_joints
        lined = [i for i, joint in enumerate(robot.joints) if joint.has_speed_line]
        plain = [i for i in range(count) if i not in lined]
        self._columns = [
            _GainColumns(engine, field, columns, _runs(motors), sign)
            for (field, columns), motors, sign in (
                (AFFINE_GAINS, plain, -1.0), (DC_GAINS, lined, 1.0),
            ) if motors
        ]  # fmt: skip
        self._lined = _runs(lined)
        # Stiffness and damping: of the spec, as asked for last, their factors, and in force.
        specs = [[j.stiffness for j in robot.joints], [j.damping for j in robot.joints]]
        self._spec_gains = torch.tensor([specs], device=device)  # (1, 2, J)
        self._asked_gains = torch.full((engine.num_worlds, 2, count), math.nan, device=device)
        self._factors = torch.ones(engine.num_worlds, 2, 1, device=device)
        self._gains = torch.ones_like(self._asked_gains)
        self._asked = self._asked_gains.unbind(1)
        self._kp, self._kd = self._gains.unbind(1)
        self._comparing_is_free = counting_is_free(self._gains)
        self._control = engine.control[:, :count]
        self._finger_control = engine.control[:, count:]
        self._ramp = TargetRamp(robot, engine) if limit_target_speed else None
        self.ramped = limit_target_speed
        """True if controls differ between the physics steps of a control period."""
        # On the device from the start: handing them over in every beginning would wait for it.
        model = engine.model
        self._physics_dt = float(model.opt.timestep)
        self._effort_limits = torch.tensor(model.actuator_forcerange[:count]).to(engine.qpos)
        self._resistances = torch.tensor(model.actuator_gainprm[:count, RESISTANCE]).to(engine.qpos)
        self._delays = torch.tensor([j.actuator_delay for j in robot.joints]).to(engine.qpos)
        self._coulomb = torch.zeros(0, device=device)
        if any(joint.static_friction > 0 for joint in robot.joints):
            coulomb = torch.tensor(engine.model.dof_frictionloss[joints]).to(engine.qvel)
            static = torch.tensor([joint.static_friction for joint in robot.joints]).to(coulomb)
            self._excess = (static - coulomb).clamp_min(0.0)
            speeds = [joint.stribeck_velocity or 1.0 for joint in robot.joints]
            self._stribeck = torch.tensor(speeds).to(coulomb)
            self._coulomb = coulomb.repeat(engine.num_worlds, 1)

    def targets(self, position: Tensor) -> Tensor:
        """Targets of the joints, (N, J), as `begin` takes them.

        Args:
            position: Where they are, (N, J): taken where targets do not wait for the joints.
        """
        return position if self._ramp is None else self._ramp.target

    def command(self, command: JointCommand) -> None:
        """Set gains and controls of one control period, and the engine's `ramp` if `ramped`."""
        kp, kd = self._asked
        if not (self._comparing_is_free and torch.equal(command.kp, kp)
                and torch.equal(command.kd, kd)):  # fmt: skip
            kp.copy_(command.kp)
            kd.copy_(command.kd)
            torch.mul(self._asked_gains, self._factors, out=self._gains)
            for columns in self._columns:
                columns.set(self._gains)
        torque = torch.addcmul(command.tau, self._kp, command.q)
        self._control.copy_(torque.addcmul_(self._kd, command.dq))
        if self.gripper is not None:
            self._finger_control.copy_(self.gripper.move(command.gripper))
        if self._coulomb.numel():
            self._rub()
        if self._ramp is not None:
            self._ramp.draw(command.q, self._kp)

    def begin(self, rows: EnvSelection, position: Tensor, finger: Tensor | None) -> Tensor:
        """Give the picked worlds the gains of the spec; nobody has commanded them yet.

        Args:
            position: Of the joints, (count, J).
            finger: Of every finger, (count, 1), where there is a gripper.

        Returns:
            Controls without torque at rest at `position` (count, J), (count, nu).
        """
        gains = self._spec_gains * rows.take(self._factors)  # (count, 2, J)
        rows.put(self._asked_gains, self._spec_gains)
        rows.put(self._gains, gains)
        for columns in self._columns:
            columns.put(rows, gains)
        if self._ramp is not None:
            self._ramp.begin(rows, position)
        control = position.new_zeros(rows.count, self._engine.control.shape[1])
        control[:, : self._robot.num_joints] = gains[:, 0] * position
        if self.gripper is not None and finger is not None:
            control[:, self._robot.num_joints :] = self.gripper.begin(rows, finger)
        return control

    def scale_gains(self, rows: EnvSelection, stiffness: Tensor, damping: Tensor) -> None:
        """Factors on the gains of the picked worlds, (count, 1) each, before they `begin`."""
        rows.put(self._factors[:, 0], stiffness)
        rows.put(self._factors[:, 1], damping)

    def scale_strength(self, rows: EnvSelection, factor: Tensor) -> None:
        """Factors on effort limits and stall torques, (count, J); speeds without load stay.

        Raises:
            ConfigError: No joint has a limit.
        """
        model, count = self._engine.model, self._robot.num_joints
        if not model.actuator_forcelimited[:count].any() and not self._lined:
            raise ConfigError(
                f"randomization.motor_strength scales effort limits, but robot "
                f"'{self._robot.name}' has none; give its joints an effort_limit"
            )
        field = self._engine.model_field("actuator_forcerange")[:, :count]
        rows.put(field, self._effort_limits * factor[..., None])
        for run in self._lined:
            field = self._engine.model_field("actuator_gainprm")[:, run, RESISTANCE]
            rows.put(field, self._resistances[run] / factor[:, run])

    def add_delay(self, rows: EnvSelection, delay: Tensor) -> None:
        """Time that the motors' delay exceeds the spec's by, (count, 1), [s]."""
        field = self._engine.model_field("actuator_delay")[:, : self._robot.num_joints]
        rows.put(field, delay_times(self._delays + delay, self._physics_dt))

    def set_friction(self, rows: EnvSelection, coulomb: Tensor) -> None:
        """Coulomb friction of the joints, (count, J), [N m]."""
        if self._coulomb.numel():
            rows.put(self._coulomb, coulomb)
        rows.put(self._engine.model_field("dof_frictionloss")[:, self._joints], coulomb)

    def state_dict(self) -> dict[str, Any]:
        """State beside the engine's: Coulomb friction, what is asked of gripper and joints."""
        gripper = {} if self.gripper is None else self.gripper.state_dict()
        ramp = {} if self._ramp is None else self._ramp.state_dict()
        return {"coulomb": self._coulomb.clone(), "gripper": gripper, "ramp": ramp}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._coulomb.copy_(state["coulomb"])
        self._asked_gains.fill_(math.nan)  # equal to none: those of the next command are written
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
        self, engine: Engine, field: str, columns: tuple[int, int], runs: list[slice], sign: float
    ) -> None:
        first, second = columns
        values = engine.model_field(field)  # (N, motors of the model, columns)
        gains = values[:, :, first : second + 1 : second - first]
        self._parts = [(run, gains[:, run]) for run in runs]
        self._sign = sign

    def set(self, gains: Tensor) -> None:
        """Write gains of all envs, (N, 2, J)."""
        for run, values in self._parts:
            values.copy_(gains[:, :, run].transpose(1, 2)).mul_(self._sign)

    def put(self, rows: EnvSelection, gains: Tensor) -> None:
        """Write gains of the picked envs, (count, 2, J)."""
        for run, values in self._parts:
            rows.put(values, self._sign * gains[:, :, run].transpose(1, 2))


def _runs(numbers: list[int]) -> list[slice]:
    """Ascending numbers as slices of neighbours."""
    firsts = [n for n in numbers if n - 1 not in numbers]
    lasts = [n for n in numbers if n + 1 not in numbers]
    return [slice(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
