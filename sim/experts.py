"""Scripted experts: rules over the true state that do a task, and which task has one.

An arm's move its hand; a multirotor's is a controller with full knowledge of its world.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, DeviceError
from robot_rl.core.plugins import Registry, load_plugins
from robot_rl.core.robot_command import JointCommand
from sim.env import SimEnv
from sim.physics.get_up_planner import GetUpPlanner
from sim.physics.kinematics import ArmKinematics
from sim.robots.joint_simulation import MujocoSimulation
from sim.robots.multirotor_expert import MultirotorExpert
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.arms import lift, reach
from sim.tasks.arms.drawer import DrawerTask
from sim.tasks.arms.lift import LiftTask
from sim.tasks.arms.peg import GRIP, HOLE_DEPTH, PegTask
from sim.tasks.arms.reach import ReachTask
from sim.tasks.flights.hover import HoverTask
from sim.tasks.flights.landing import LandingTask
from sim.tasks.flights.tracking import TrackingTask
from sim.tasks.legs.stand_up import StandUpTask

_ITERATIONS = 3
"""Of inverse kinematics per step; the pose of the last step is near."""
_JOINT_STEP = 0.2
"""Farthest that a joint's target is from the joint [rad]: below its speed limit at 25 Hz."""
_JOINT_LAG = 0.08
"""Time by which every joint is made to lag behind its target [s]: motors are not damped alike, and
a hand whose joints lag differently swings and leaves its way."""
_HAND_SITE = "end_effector"


class ArmExpert:
    """Moves the hands of N envs; reads their true state and changes nothing."""

    def __init__(
        self, simulation: MujocoSimulation, action_map: ActionMap, *, stride: float = 0.03
    ) -> None:
        """Read the envs; the hand's target is at most `stride` from the hand [m]."""
        self._simulation, self._map, self._stride = simulation, action_map, stride
        arm = simulation.robot.num_joints
        own_lag = torch.tensor(action_map.damping) / torch.tensor(action_map.stiffness)
        self._lead = _JOINT_LAG - own_lag
        middle = 0.5 * (np.array(action_map.low) + np.array(action_map.high))[:arm]
        self._kinematics = ArmKinematics(
            simulation.engine.model, simulation.layout, _HAND_SITE, rest=middle
        )

    def act(
        self, position: Tensor, yaw: Tensor | None = None, opening: Tensor | None = None
    ) -> Tensor:
        """Actions that go on towards poses of the hand, which points down, (N, A), in [-1, 1].

        Args:
            position: Of the end effector, (N, 3), [m], world.
            yaw: Turn of the hand about the vertical, (N,), [rad]; at 0 its fingers open along y.
                None lets the hand point and turn as it likes.
            opening: Of the gripper as a fraction, (N, 1); None where actions do not move it.
        """
        true_state = self._simulation.true_state
        way = position - true_state.end_effector_position_b
        length = way.norm(dim=-1, keepdim=True).clamp_min(1e-9)
        target = true_state.end_effector_position_b + way * (self._stride / length).clamp_max(1.0)
        down = None if yaw is None else _pointing_down(yaw)
        q = true_state.joint_position.double().numpy()
        place = target.double().numpy()
        solved = np.stack([
            self._kinematics.solve(q[i], place[i], None if down is None else down[i], _ITERATIONS)
            for i in range(len(q))
        ])  # fmt: skip
        change = torch.from_numpy(solved - q)
        change *= (_JOINT_STEP / change.abs().amax(-1, keepdim=True).clamp_min(1e-9)).clamp_max(1.0)
        goal = (torch.from_numpy(q) + change).float() - self._lead * true_state.joint_velocity
        still = torch.zeros_like(goal)
        command = JointCommand(q=goal, dq=still, tau=still, kp=still, kd=still, gripper=opening)
        return self._map.from_command(command).clamp(-1.0, 1.0)


def _pointing_down(yaw: Tensor) -> np.ndarray:
    """Orientations of hands that point down, (N, 4), wxyz."""
    down = torch.zeros(len(yaw), 4)
    down[:, 1], down[:, 2] = (0.5 * yaw).cos(), (0.5 * yaw).sin()
    return down.double().numpy()


def nearest_turn(angle: Tensor, period: float, near: Tensor) -> Tensor:
    """The angle, (N,), plus whole periods, that is nearest to another one, [rad]."""
    return near + torch.remainder(angle - near + 0.5 * period, period) - 0.5 * period


class ReachExpert:
    """Goes to the goal, in whatever orientation the arm comes to."""

    def __init__(
        self, simulation: MujocoSimulation, task: ReachTask, action_map: ActionMap
    ) -> None:
        """Read the envs and their goals."""
        self._goal = task.goal[reach.GOAL]
        self._arm = ArmExpert(simulation, action_map)

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        return self._arm.act(self._goal)


_LIFT_OVER = 0.1
"""Height over the cube's middle from which the hand comes down [m]."""
_LIFT_ALIGNED, _AROUND = 0.012, 0.012
"""Tolerance of the hand over the cube to come down, and at its middle to close [m]."""
_CLOSED = 0.6
"""Opening below which the fingers touch the cube: it holds a Panda's at 0.57, a 2F-85's at 0.54."""


class LiftExpert:
    """Goes over the cube, down, closes, brings it to its goal; begins anew where it slips."""

    def __init__(self, simulation: MujocoSimulation, task: LiftTask, action_map: ActionMap) -> None:
        """Read the envs and their goals."""
        self._simulation, self._goal = simulation, task.goal[lift.GOAL]
        self._arm = ArmExpert(simulation, action_map)

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        true_state, sensors = self._simulation.true_state, self._simulation.sensors
        cube, axis = sensors["cube_position"], sensors["cube_axis"]
        way = cube - true_state.end_effector_position_b
        beside = way[:, :2].norm(dim=-1, keepdim=True)
        at = way.norm(dim=-1, keepdim=True)
        held = (at < 2 * _AROUND) & (true_state.gripper_opening < _CLOSED)
        over = cube + torch.tensor([0.0, 0.0, _LIFT_OVER])
        place = torch.where(beside < _LIFT_ALIGNED, cube, over)
        place = torch.where(held, self._goal - way, place)
        opening = torch.where(held | (at < _AROUND), 0.0, 1.0)
        turn = torch.atan2(axis[:, 1], axis[:, 0])
        yaw = nearest_turn(turn, math.pi / 2, torch.zeros_like(turn))
        return self._arm.act(place, yaw, opening)


_PEG_LENGTH = 0.06
"""From the end effector to the peg's tip, as in sim/scenes/peg.xml [m]."""
_PEG_OVER = 0.004
"""Height of the tip over the mouth from which it goes down [m]."""
_PEG_ALIGNED = 0.0003
"""Tolerance of the tip over the hole to go down [m]; the clearance is 0.0005."""
_CAUGHT = -0.002
"""Height of the tip below which the walls lead it [m]."""
_CALM_SPEED = 0.05
"""Speed of the joints below which the descent begins [rad/s]."""
_LARGEST_STRAY = 0.0006
"""Distance from the axis at which a descent begins anew, before the walls lead it [m]."""
_MOUTH_STEP, _INSIDE_STEP = 0.005, 0.02
"""Depth of the target below the tip, before and within the walls [m]; a tip that hurries
leaves the axis, as the joints are not damped alike."""


class PegExpert:
    """Brings the tip over the mouth, waits until it is exactly there, and goes down."""

    def __init__(self, simulation: MujocoSimulation, task: PegTask, action_map: ActionMap) -> None:
        self._sensors, self._truth = simulation.sensors, simulation.true_state
        self._arm = ArmExpert(simulation, action_map)

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        mouth, axis = self._sensors["hole_position"], self._sensors["hole_axis"]
        tip = self._sensors["peg_position"]
        beside = tip[:, :2].norm(dim=-1)
        caught = tip[:, 2] < _CAUGHT
        calm = self._truth.joint_velocity.norm(dim=-1) < _CALM_SPEED
        begun = (tip[:, 2] < 0.8 * _PEG_OVER) & (beside < _LARGEST_STRAY)
        down = caught | begun | (calm & (beside < _PEG_ALIGNED))
        lower = tip[:, 2] - torch.where(caught, _INSIDE_STEP, _MOUTH_STEP)
        height = torch.where(down, lower.clamp_min(-HOLE_DEPTH), _PEG_OVER) + _PEG_LENGTH
        place = mouth + torch.stack([0 * height, 0 * height, height], dim=-1)
        opening = torch.full_like(height, GRIP)[:, None]
        return self._arm.act(place, torch.atan2(axis[:, 1], axis[:, 0]), opening)


_DRAWER_OVER = 0.05
"""Height over the place behind the handle from which the hand comes down [m]."""
_DRAWER_ALIGNED, _AT = 0.008, 0.02
"""Tolerance of the hand over that place to come down, and in it to pull [m]."""
_CLEAR_HEIGHT = 0.03
"""Height below which a hand that is not in its place goes straight up: it may touch the handle."""
_PULL_DISTANCE = 0.05
"""Distance before the handle that the hand is asked to be at while it pulls [m]."""


class DrawerExpert:
    """Goes over the gap behind the handle, down into it, and pulls."""

    def __init__(
        self, simulation: MujocoSimulation, task: DrawerTask, action_map: ActionMap
    ) -> None:
        self._sensors = simulation.sensors
        self._hand = simulation.true_state.end_effector_position_b
        self._arm = ArmExpert(simulation, action_map)
        self._closed = torch.full((simulation.num_worlds, 1), task.config.opening)

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        hook, axis = self._sensors["handle_position"], self._sensors["handle_axis"]
        hand = self._sensors["hand_position"]  # in the axes of the drawer
        beside = hand[:, :2].norm(dim=-1, keepdim=True)
        low = hand[:, 2:] < 0.5 * _AT
        up = torch.tensor([0.0, 0.0, _DRAWER_OVER])
        place = torch.where(beside < _DRAWER_ALIGNED, hook, hook + up)
        place = torch.where((hand[:, 2:] < _CLEAR_HEIGHT) & (beside > _AT), self._hand + up, place)
        place = torch.where(low & (beside < _AT), hook - _PULL_DISTANCE * axis, place)
        return self._arm.act(place, torch.atan2(axis[:, 1], axis[:, 0]), self._closed)


_STRAIGHTENING, _LYING = 0.6, 1.2
"""Time in which a fallen robot moves into its default pose, and in which it comes to lie [s]."""
_PLANNED_STEPS = 3
"""Control steps between two plans."""


class StandUpExpert:
    """Lays a humanoid out straight on its back or front, and gets it up by a planner."""

    def __init__(
        self, simulation: MujocoSimulation, task: StandUpTask, action_map: ActionMap
    ) -> None:
        """Prepare the planner, which knows nothing of drawn payloads and gains."""
        engine, count = simulation.engine, simulation.num_worlds
        self._engine, self._joints, self._map = engine, simulation.layout.position, action_map
        self._planner = GetUpPlanner(
            engine.model, simulation.layout, simulation.robot,
            reach=0.5 * (np.array(action_map.high) - np.array(action_map.low)),
            height=task.config.height, decimation=engine.decimation,
            threads=simulation.config.physics_threads,
        )  # fmt: skip
        self._dt = simulation.control_dt
        self._first = np.zeros((count, simulation.robot.num_joints))
        self._age = np.zeros(count, dtype=int)  # control steps since an episode began
        self._plans = np.stack([self._planner.begin(self._planner.default)] * count)

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        states = zip(self._engine.qpos.numpy(), self._engine.qvel.numpy(), strict=True)
        goal = torch.from_numpy(np.stack([self._targets(i, *one) for i, one in enumerate(states)]))
        still = torch.zeros_like(goal)
        command = JointCommand(q=goal, dq=still, tau=still, kp=still, kd=still, gripper=None)
        return self._map.from_command(command).float().clamp(-1.0, 1.0)

    def _targets(self, env: int, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        planner = self._planner
        if not qvel.any():  # an episode begins at rest
            self._first[env], self._age[env] = qpos[self._joints], 0
            self._plans[env] = planner.begin(planner.default)
        seconds = self._age[env] * self._dt
        step = (self._age[env] - math.ceil(_LYING / self._dt)) % _PLANNED_STEPS
        self._age[env] += 1
        if seconds < _LYING:
            share = min(1.0, seconds / _STRAIGHTENING)
            return (1 - share) * self._first[env] + share * planner.default
        if step == 0:
            plan = planner.shifted(self._plans[env], _PLANNED_STEPS)
            self._plans[env] = planner.improved(plan, qpos, qvel)
        return planner.targets(self._plans[env], step)


class Expert(Protocol):
    """Rules over the true state."""

    def act(self) -> Tensor:
        """Actions of all envs in their present state, (N, A), in [-1, 1]."""
        ...


class FlightExpert:
    """Flies to the goal of a flight task."""

    def __init__(self, simulation: MultirotorSimulation, task: Any, action_map: object) -> None:
        """Read the envs and their goals; refuses actions that are not rotor speeds."""
        self._pilot, self._task = MultirotorExpert(simulation), task

    def act(self) -> Tensor:
        """Rotor speeds of all envs, (N, 4), in [-1, 1]."""
        return self._pilot.act(self._task.goal)


class LandingExpert:
    """Flies as the landing task pays best."""

    def __init__(
        self, simulation: MultirotorSimulation, task: LandingTask, action_map: object
    ) -> None:
        """Read the envs; refuses actions that are not rotor speeds."""
        self._pilot, self._task = MultirotorExpert(simulation), task
        self._truth = simulation.true_state

    def act(self) -> Tensor:
        """Rotor speeds of all envs, (N, 4), in [-1, 1]."""
        position, pad = self._truth.position_w, self._task.goal["position_w"]
        way = {
            "position_w": position,
            "linear_velocity_w": self._task.wanted_velocity(position - pad),
        }
        return self._pilot.act(way)


MakeExpert = Callable[[Any, Any, ActionMap], Expert]
"""Makes an expert from the simulation of the envs, their task and the map of their actions."""

_EXPERTS: Registry[tuple[type, MakeExpert]] = Registry("expert", {
    "reach": (ReachTask, ReachExpert),
    "lift": (LiftTask, LiftExpert),
    "peg": (PegTask, PegExpert),
    "drawer": (DrawerTask, DrawerExpert),
    "hover": (HoverTask, FlightExpert),
    "tracking": (TrackingTask, FlightExpert),
    "landing": (LandingTask, LandingExpert),
    "stand_up": (StandUpTask, StandUpExpert),
})  # fmt: skip
"""Name of a task -> its class, and who does it."""


def register_expert(name: str, task: type, make: MakeExpert) -> None:
    """Make the expert of a task of a plug-in or a program known.

    Args:
        name: Of the task.
        task: Its class.
        make: Makes its expert.

    Raises:
        ConfigError: The task has one.
    """
    _EXPERTS.add(name, (task, make), made_of=task)


def scripted_expert(env: SimEnv) -> Expert:
    """The expert of the envs' task.

    Raises:
        ConfigError: The task has none, or it does not move the robot as the actions do.
        DeviceError: The envs do not live on the CPU.
    """
    if env.spec.device.type != "cpu":
        raise DeviceError(
            f"a scripted expert was asked for in envs on {env.spec.device}; experts plan on the "
            "CPU: use device=cpu"
        )
    load_plugins()
    for task, make in _EXPERTS.values():
        if type(env.task) is task:
            return make(env.simulation, env.task, env.action_map)
    raise ConfigError(
        f"a scripted expert was asked for, but {type(env.task).__name__} has none; tasks that have "
        f"one: {', '.join(_EXPERTS)}"
    )
