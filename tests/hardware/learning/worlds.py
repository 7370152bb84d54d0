"""A robot that is exactly where it was told to be, in a world that judges it: for learning."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from hardware.control.clock import Clock, LogicalClock
from hardware.control.monitors import SafetyLimits
from hardware.control.stopping import StopConfig
from hardware.learning.cameras import EpisodeCameras
from hardware.learning.hardware_env import HardwareEnv, HardwareEnvConfig
from hardware.learning.lockstep import LockstepPort
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import RewardRule, WorldReward
from robot_rl.core.action import ActionMap
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot import GripperSpec, RobotSpec, SensorSpec
from tests.hardware.control.robots import two_joints

PERIOD, TICKS = 0.02, 3
"""Of the loop [s]; ticks per control period."""
CONTROL_DT = PERIOD * TICKS
SCALE = 0.05
"""Of actions [rad]: every target is reached within a control period."""
EDGE = 0.9 * SCALE
"""Distance of the hip from its default position beyond which an episode terminates [rad]."""
TERMS = [TermConfig(term=name) for name in ("joint_position", "sensed/way", "last_action")]


class PointWorld:
    """Two joints that are where their command says, one write later: driver and world in one."""

    def __init__(self, clock: Clock, edge: float = EDGE, spec: RobotSpec | None = None) -> None:
        self.spec, self._clock, self._edge = spec or two_joints(), clock, edge
        self.default = np.array([[joint.default_position for joint in self.spec.joints]])
        self.frozen = False
        self.stamp = -np.inf
        self.begin(0)

    @property
    def goal(self) -> dict[str, np.ndarray]:
        return {}

    @property
    def sensed(self) -> dict[str, np.ndarray]:
        return {"way": self.q - self.default}

    @property
    def outcome(self) -> Any:
        return SimpleNamespace(
            steps=self._writes // TICKS, total_return=self._return, reward=self._reward,
            terminated=self._terminated, success=False,
        )  # fmt: skip

    def begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.q = self.default + rng.uniform(-0.8 * SCALE, 0.8 * SCALE, (1, 2))
        self._writes, self._return, self._reward, self._terminated = 0, 0.0, 0.0, False

    def connect(self) -> None:
        self.stamp = self._clock.now()

    def read(self) -> RobotState:
        self.stamp = self._clock.now()
        zero = np.zeros((1, 2))
        joints = {"joint_position": self.q, "joint_velocity": zero, "joint_effort": zero}
        if self.spec.gripper is not None:
            joints["gripper_opening"] = np.ones((1, 1))
        return RobotState(joints)

    def write(self, command: Any) -> Any:
        if self.frozen or not np.any(command.kp > 0):
            return command
        self.q = np.array(command.q)
        self._writes += 1
        if self._writes % TICKS == 0 and not self._terminated:
            self._reward = float(-np.abs(self.q - self.default).sum())
            self._return += self._reward
            self._terminated = bool(self.q[0, 0] - self.default[0, 0] > self._edge)
        return command

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def point_env(
    seed: int = 0, *, limit: int = 6, steps: list[dict[str, Any]] | None = None,
    rule: RewardRule | None = None, edge: float = EDGE, operates: bool = True,
    cameras: EpisodeCameras | None = None, gripper: bool = False, **config: Any,
) -> HardwareEnv:  # fmt: skip
    """A learning environment over a loop and that robot, on a logical clock."""
    clock = LogicalClock()
    spec = two_joints()
    if gripper:
        sensors = {**spec.sensors, "gripper_opening": SensorSpec()}
        spec = replace(spec, gripper=GripperSpec(joints=["finger"]), sensors=sensors)
    world = PointWorld(clock, edge, spec)
    port = LockstepPort(
        world, clock=clock, period=PERIOD, world=world,
        limits=SafetyLimits.for_policy(world.spec, CONTROL_DT, PERIOD),
        stop=StopConfig(ramp_time=5 * PERIOD, stop_time=5 * PERIOD),
    )  # fmt: skip
    reset = ResetConfig(tasks=[TaskReset(steps=[{"begin_world": {}}] if steps is None else steps)])
    made = HardwareEnvConfig(
        control_dt=CONTROL_DT, episode_length=limit * CONTROL_DT, operates=operates,
        reset=config.pop("reset", reset), **config,
    )  # fmt: skip
    action_map = ActionMap.joint_positions(world.spec, scale=SCALE, gripper=gripper)
    names = [task.name for task in made.reset.tasks]
    rewards = dict.fromkeys(names, rule or WorldReward())
    return HardwareEnv(port, action_map, TERMS, made, rewards, cameras=cameras, seed=seed)


def world_of(env: HardwareEnv) -> PointWorld:
    driver = port_of(env)._driver
    assert isinstance(driver, PointWorld)
    return driver


def port_of(env: HardwareEnv) -> LockstepPort:
    assert isinstance(env.port, LockstepPort)
    return env.port
