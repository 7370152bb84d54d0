"""The Panda with its peg learns by the end effector: the loop follows, and the task judges."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from hardware.control.safety import SafetyState
from hardware.learning.hardware_env import HardwareEnv, Phase
from hardware.learning.lockstep import LockstepPort
from hardware.learning.port import Readings
from robot_rl.cli.learning.led_robot import LedBy
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.core import quaternion
from robot_rl.core.observation import RobotState
from robot_rl.core.pose_target import rotation_between
from robot_rl.core.robot_command import JointCommand, PoseCommand
from sim.twin import Twin
from tests.compositions import composed

TIP = 0.06
"""Distance of the peg's tip from the end effector [m]."""
pytestmark = pytest.mark.slow


def peg(**config) -> TwinRobot:
    run = composed(["task=peg", "robot=panda", "task.kind=sparse"]).config
    return TwinRobot(run, TwinRobotConfig(**config))


def state_of(readings: Readings) -> RobotState:
    assert readings.state is not None
    return readings.state


def steps_of(readings: Readings) -> int:
    assert readings.outcome is not None
    return readings.outcome.steps


def inserting(env: HardwareEnv, seen: list[np.ndarray]) -> torch.Tensor:
    """Action that brings the peg over the hole, level and turned like it, and then into it."""
    readings, target = env.readings, env._target
    assert target is not None
    seen.append(np.concatenate([readings.sensed["hole_position"], readings.sensed["hole_axis"]]))
    hole, axis = np.mean(seen, axis=0)  # each measurement is 0.3 mm off
    yaw = np.array([[0.0, 0.0, np.arctan2(axis[1], axis[0])]])
    down = quaternion.multiply(quaternion.from_rotation_vector(yaw), np.array([[0, 1.0, 0, 0]]))
    high = env.steps < 25
    goal = hole + np.array([0.0, 0.0, TIP + (0.02 if high else -0.04)])
    turn = rotation_between(target.orientation, down)[0]
    action = np.concatenate([(goal - target.position[0]) / 0.01, turn / 0.05]).clip(-1, 1)
    if not high:
        action[2] = max(action[2], -0.3)
    return torch.tensor(action[None], dtype=torch.float32)


def test_pose_actions_insert_the_peg_and_the_tasks_sparse_reward_ends_the_episode():
    with closing(peg(success_reward=1.0).lockstep_env()) as env:
        for seed in range(3):
            env.reset(seed=seed)
            seen: list[np.ndarray] = []
            rewards = []
            while True:
                step = env.step(inserting(env, seen))
                rewards.append(float(step.reward))
                assert step.valid
                if step.ended:
                    break
            assert step.terminated
            assert step.success
            assert env.reason == "success"
            assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
            assert steps_of(env.readings) == len(rewards)  # no period was lost


def test_a_policy_sees_how_far_its_target_is_ahead():
    """Without it, how hard the peg pushes is not to be seen: the target goes on when it is held."""
    terms = "task.actor=[{term: sensed/target_offset}]"
    run = composed(["task=peg", "robot=panda", "task.kind=sparse", terms]).config
    with closing(TwinRobot(run, TwinRobotConfig()).lockstep_env()) as env:
        assert env.spec.groups["actor"].shape == (6,)
        assert env.reset(seed=1)["actor"].abs().max() < 0.005
        down = torch.tensor([[0.0, 0.0, -1.0, 0.0, 0.0, 0.0]])
        step = env.step(down)
        for _ in range(19):
            assert step.valid
            step = env.step(down)
        assert env._target is not None
        way = env._target.position - state_of(env.readings).end_effector_position_b
        np.testing.assert_allclose(step.obs["actor"][0, :3].numpy(), way[0], atol=1e-6)
        assert way[0, 2] < -0.01  # of an action of 1 cm per period


def test_random_actions_are_followed_within_the_limits_of_the_robot_and_its_file():
    with closing(peg().lockstep_env()) as env:
        env.reset(seed=4)
        port, robot = env.port, env.spec.robot
        assert isinstance(port, LockstepPort)
        assert robot is not None
        twin, limits = port._driver, [joint.velocity_limit for joint in robot.joints]
        assert isinstance(twin, Twin)
        fastest, astray, strongest = np.zeros(7), 0.0, np.zeros(7)

        def watch() -> None:
            nonlocal astray
            true = twin.simulation.true_state
            np.maximum(fastest, abs(true.joint_velocity.numpy()[0]), out=fastest)
            sent = port.loop._pipeline.sent
            assert isinstance(sent, JointCommand)
            np.maximum(strongest, abs(sent.tau[0]), out=strongest)
            if (followed := port.loop.executed.setpoint) is not None:
                assert isinstance(followed, PoseCommand)
                way = followed.position_w[0] - true.end_effector_position_b.numpy()[0]
                astray = max(astray, float(np.linalg.norm(way)))

        port.on_tick = watch
        generator = torch.Generator().manual_seed(0)
        for _ in range(90):
            action = 2 * torch.rand(1, 6, generator=generator) - 1
            step = env.step(action)
            assert step.valid
            assert port.loop.safety is SafetyState.POLICY
            assert not step.metrics["beyond_action"]
        assert not port.loop.status.trip
        assert (fastest < 0.7 * np.array(limits)).all(), fastest
        assert astray < 0.045  # the leash of 3 cm, and a period of an action
        efforts = np.array([joint.effort_limit for joint in robot.joints])
        assert (strongest < 0.7 * efforts).all(), strongest


@pytest.mark.parametrize("led_by", LedBy)
def test_equal_seeds_give_equal_episodes_after_whatever_came_before(led_by):
    found = []
    for before in (0, 3):
        with closing(peg(led_by=led_by).lockstep_env()) as env:
            for _ in range(before):
                env.reset()
                env.step(torch.zeros(1, env.spec.action_size))
            rows = [env.reset(seed=7)["actor"]]
            for number in range(5):
                action = torch.full((1, env.spec.action_size), 0.1 * number)
                rows.append(env.step(action).next_obs["actor"])
            found.append(torch.cat(rows))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-5)


ROOT = Path(__file__).parents[4]
CHILD = """
import signal, sys, torch
from tests.robot_rl.cli.learning.test_twin_robot import peg
torch.set_num_threads(1)
torch.set_grad_enabled(False)
ended = []
signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
peg(patience=40.0).run_robot(sys.argv[1], lambda: bool(ended))
"""


def test_the_same_robot_learns_as_a_process_of_its_own():
    name = f"test-twin-{os.getpid()}"
    process = subprocess.Popen([sys.executable, "-c", CHILD, name], cwd=ROOT)
    try:
        with closing(peg(patience=40.0).channel_env(name)) as env:
            env.start_reset()
            end = time.monotonic() + 90
            while env.phase is not Phase.running:
                env.step(torch.zeros(1, 6))
                assert time.monotonic() < end, env.prompt
            start, valid = state_of(env.readings).end_effector_position_b.copy(), 0
            for _ in range(30):
                valid += bool(env.step(torch.tensor([[0.0, 0.5, 0, 0, 0, 0]])).valid)
            moved = state_of(env.readings).end_effector_position_b - start
            assert valid >= 20
            assert moved[0, 1] > 0.03  # 30 periods of 5 mm, less what a busy machine misses
            assert steps_of(env.readings) > 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
