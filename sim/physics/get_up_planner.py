"""A planner that gets a humanoid up from the ground, on the true model.

It draws sequences of joint targets around the plan that it has, plays each on a copy of the robot,
and goes on with the mean of the best ones: the cross-entropy method with a receding horizon (Botev
et al. 2013, "The cross-entropy method for optimization"). Left and right move alike, which halves
the numbers that are drawn: the robot has to lie on its back or on its front. It knows positions and
velocities exactly, and two cores need six times as long as the robot: a teacher, no controller.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from copy import copy
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.robot import RobotSpec
from sim.physics.joint_layout import JointLayout

Floats = NDArray[np.float64]

_SEQUENCES, _ELITES, _ROUNDS = 64, 10, 2
"""Sequences drawn in a round, those that the next plan is made of, and rounds."""
_HORIZON, _KNOTS = 1.2, 7
"""Length of a sequence [s], and its targets, between which it is linear."""
_SPREAD = {
    "hip_pitch": 0.6, "hip_roll": 0.25, "hip_yaw": 0.25, "knee": 0.6, "ankle_pitch": 0.35,
    "ankle_roll": 0.08, "waist_pitch": 0.2, "shoulder_pitch": 0.7, "shoulder_roll": 0.5,
    "shoulder_yaw": 0.4, "elbow": 0.5, "wrist_roll": 0.1, "wrist_pitch": 0.2, "wrist_yaw": 0.1,
}  # fmt: skip
"""Standard deviations of the noise on a target, by a part of the joint's name [rad]."""
_AMPLITUDES = (0.3, 0.7, 1.2)
"""Factors on the noise, one of which a sequence has: some explore, some refine."""
_MOVED = 0.6
"""Chance of a joint to be moved by a sequence's noise."""
_NARROWER = 0.6
"""Factor on the noise of the second round."""
_SOFTNESS = 0.05
"""Difference in cost at which a sequence counts for 1/e of the best."""
_RECORDED = ("qpos", "qvel", "subtree_com", "xpos", "xmat", "site_xpos", "site_xmat")


class GetUpPlanner:
    """Plans for one robot at a time, from any state."""

    def __init__(
        self, model: mujoco.MjModel, layout: JointLayout, robot: RobotSpec, *, reach: Floats,
        height: float, decimation: int, threads: int = 0,
    ) -> None:  # fmt: skip
        """Prepare copies of the robot.

        Args:
            model: Of the robot on level ground; left as it is.
            reach: Largest deviation of each joint's target from its default position, (J,), [rad].
            height: Of the base where the robot stands [m].
            decimation: Integration steps of a control step.
            threads: CPU threads; 0 for one per core.

        Raises:
            ConfigError: The robot describes no mirror, or has joints that no humanoid has.
        """
        from mujoco import batch  # late: foreign environments run beside a MuJoCo without it

        count = robot.num_joints
        servo = copy(model)
        servo.actuator_gainprm[:count, 0] = [joint.stiffness for joint in robot.joints]
        self._batch: Any = batch.Batch(servo, _SEQUENCES, threads)
        self._qpos, self._qvel = self._batch.bind("qpos"), self._batch.bind("qvel")
        self._untouched = self._batch.state[0].copy()
        self.default = np.array([joint.default_position for joint in robot.joints])
        """Default pose, (J,), [rad]."""
        self._limits = np.array([joint.position_limit for joint in robot.joints])
        self._pairs = _symmetric_moves(robot)  # (D, J)
        self._inverse = np.linalg.pinv(self._pairs)
        leaders = [robot.joint_names[joint] for joint in np.abs(self._pairs).argmax(axis=1)]
        self._spread = np.array([_spread_of(joint, robot) for joint in leaders])
        self._reach = reach
        self._decimation = decimation
        self._steps = round(_HORIZON / (servo.opt.timestep * decimation))
        self._drift = (_KNOTS - 1) / (self._steps - 1)  # knots that pass in a control step
        at = np.arange(self._steps) * self._drift
        self._blend = np.maximum(0.0, 1 - np.abs(at[:, None] - np.arange(_KNOTS)))  # (T, K)
        self._cost = _Cost(servo, robot, layout, height=height, default=self.default)

    def begin(self, targets: Floats) -> Floats:
        """A plan that holds targets, (J,) -> (K, D)."""
        return np.tile((targets - self.default) @ self._inverse, (_KNOTS, 1))

    def shifted(self, plan: Floats, steps: int) -> Floats:
        """The plan after so many control steps; its last target is held."""
        at = np.clip(np.arange(_KNOTS) + steps * self._drift, 0, _KNOTS - 1)
        low = at.astype(int)
        high = np.minimum(low + 1, _KNOTS - 1)
        share = (at - low)[:, None]
        return plan[low] * (1 - share) + plan[high] * share

    def targets(self, plan: Floats, step: int) -> Floats:
        """Joint targets in a control step of a plan, (J,), [rad]."""
        return self._bounded(self._blend[step] @ plan @ self._pairs)

    def improved(self, plan: Floats, qpos: Floats, qvel: Floats) -> Floats:
        """A better plan for a robot in a state; the same state and plan give the same.

        Args:
            plan: To begin with, (K, D).
            qpos: Of the model.
            qvel: Of the model.
        """
        random = np.random.default_rng(np.frombuffer(qpos.tobytes(), np.uint32))
        for number in range(_ROUNDS):
            shape = (_SEQUENCES, _KNOTS, len(self._pairs))
            noise = random.normal(size=shape)
            noise *= random.choice(_AMPLITUDES, size=(_SEQUENCES, 1, 1))
            noise *= random.random((_SEQUENCES, 1, shape[2])) < _MOVED
            noise[0] = 0.0
            spread = self._spread * (_NARROWER if number else 1.0)
            drawn = plan + noise * spread
            if number == 0:
                drawn[1] = 0.0  # the default pose
            targets = self._bounded(self._blend @ drawn @ self._pairs)  # (S, T, J)
            self._batch.state[:] = self._untouched
            self._qpos[:], self._qvel[:] = qpos, qvel
            record = self._batch.rollout(
                self._steps * self._decimation, np.repeat(targets, self._decimation, axis=1),
                record=_RECORDED,
            )  # fmt: skip
            steps = slice(self._decimation - 1, None, self._decimation)
            cost = self._cost({name: part[:, steps] for name, part in record.items()}, drawn)
            best = np.argsort(cost)[:_ELITES]
            if not np.isfinite(cost[best[0]]):
                return plan  # no simulation of this state stays finite
            weight = np.exp((cost[best[0]] - cost[best]) / _SOFTNESS)
            plan = (drawn[best] * (weight / weight.sum())[:, None, None]).sum(axis=0)
        return plan

    def _bounded(self, deviation: Floats) -> Floats:
        """Targets within what actions and joints reach, (..., J)."""
        deviation = np.clip(deviation, -self._reach, self._reach)
        return np.clip(self.default + deviation, self._limits[:, 0], self._limits[:, 1])


class _Cost:
    """Cost of sequences: low, leaning, off its feet, hasty; at the end a calm default pose."""

    def __init__(
        self, model: mujoco.MjModel, robot: RobotSpec, layout: JointLayout, *, height: float,
        default: Floats,
    ) -> None:  # fmt: skip
        self._layout, self._height, self._default = layout, height, default
        self._base = int(model.jnt_bodyid[0])
        # A humanoid's torso leans by its waist, too: its heaviest body counts beside the base.
        self._upright = [self._base, int(model.body_mass.argmax())]
        self._feet = [model.site(foot).id for foot in robot.feet]
        data = mujoco.MjData(model)
        data.qpos[2], data.qpos[layout.position] = height, default
        mujoco.mj_forward(model, data)
        self._com_height = float(data.subtree_com[self._base, 2])
        frames = data.site_xmat[self._feet].reshape(-1, 3, 3)
        self._soles = frames[:, 2]  # the vertical in the feet's own axes, where the robot stands

    def __call__(self, record: Mapping[str, Any], drawn: Floats) -> Floats:
        """Costs, (S,), of states (S, T, ...) and of what was drawn, (S, K, D)."""
        base, layout = self._base, self._layout
        com = record["subtree_com"][:, :, base]
        frames = record["xmat"].reshape(*record["xmat"].shape[:3], 3, 3)
        upright = np.prod([0.5 + 0.5 * frames[:, :, body, 2, 2] for body in self._upright], axis=0)
        upright = upright.clip(0.0, 1.0)
        raised = (com[..., 2] / self._com_height).clip(0.0, 1.0) * upright
        high = (record["xpos"][:, :, base, 2] / self._height).clip(0.0, 1.0) * upright
        feet = record["site_xpos"][:, :, self._feet].mean(axis=2)
        beside = np.linalg.norm((com - feet)[..., :2], axis=-1)
        soles = record["site_xmat"].reshape(*record["site_xmat"].shape[:3], 3, 3)[:, :, self._feet]
        lifted = 1 - (soles[..., 2, :] * self._soles).sum(-1).mean(-1)
        speed = np.square(record["qvel"][..., layout.velocity]).mean(-1)
        moving = np.square(record["qvel"][..., :6]) @ np.repeat([0.2, 0.05], 3)
        pose = np.square(record["qpos"][..., layout.position] - self._default).mean(-1)
        cost = (
            3.0 * (1 - raised) + 1.5 * (1 - high) + 0.7 * (1 - upright)
            + 2.0 * beside.clip(max=0.7) + 0.4 * lifted + 0.003 * speed
            + high**4 * (0.02 * speed + moving + 2.0 * pose)
        )  # fmt: skip
        weight = np.linspace(0.3, 1.0, cost.shape[1])  # the end counts most
        weight[-10:] += 1.0
        total = cost @ (weight / weight.sum())
        total += 0.3 * np.square(np.diff(drawn, axis=1)).mean((1, 2))
        return np.where(np.isfinite(total), total, np.inf)


def _spread_of(joint: str, robot: RobotSpec) -> float:
    for part, spread in _SPREAD.items():
        if part in joint:
            return spread
    raise ConfigError(
        f"no plan gets robot '{robot.name}' up: its joint '{joint}' is none of a humanoid; known: "
        f"{', '.join(_SPREAD)}"
    )


def _symmetric_moves(robot: RobotSpec) -> Floats:
    """Moves of the joints that look alike in a mirror, (D, J)."""
    mirror = RobotMirror(robot).joints
    moves: list[Floats] = []
    for joint, (other, sign) in enumerate(zip(mirror.source, mirror.sign, strict=True)):
        move = np.zeros(robot.num_joints)
        move[joint] = 1.0
        if other > joint:
            move[other] = sign
        elif other < joint or sign < 0:
            continue
        moves.append(move)
    return np.stack(moves)
