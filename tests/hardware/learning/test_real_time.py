"""Learning over a robot process of its own: shared memory, real time, and a process that dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from hardware.control.ipc import CommandLayout, CommandPublisher, RequestPublisher, channel_path
from hardware.control.monitors import StampedCommand
from hardware.control.process import RobotChannels
from hardware.control.request_socket import send_request
from hardware.control.safety import Condition
from hardware.learning.hardware_env import HardwareEnv, HardwareEnvConfig, Phase
from hardware.learning.port import ChannelPort
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import WorldReward
from robot_rl.core.action import ActionMap
from robot_rl.core.env import EnvStep
from tests.hardware.control.loops import to
from tests.hardware.control.robots import two_joints
from tests.hardware.learning.robot_process import WORLD_WIDTHS
from tests.hardware.learning.worlds import CONTROL_DT, SCALE, TERMS

NAME = f"test-learning-{os.getpid()}"
ROOT = Path(__file__).parents[3]
LIMIT = 6


@contextmanager
def robot_process() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.learning.robot_process", NAME], cwd=ROOT
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        RobotChannels(NAME).remove_dead()  # of the one that was killed


@contextmanager
def learning() -> Iterator[HardwareEnv]:
    spec = two_joints()
    port = ChannelPort(NAME, spec, setpoint=spec.command, world_widths=WORLD_WIDTHS)
    config = HardwareEnvConfig(
        control_dt=CONTROL_DT, episode_length=LIMIT * CONTROL_DT, operates=True,
        max_age={"state": 1.0, "way": 1.0},
        reset=ResetConfig(tasks=[TaskReset(steps=[{"begin_world": {}}])]),
    )  # fmt: skip
    action_map = ActionMap.joint_positions(spec, scale=SCALE)
    env = HardwareEnv(port, action_map, TERMS, config, {"task": WorldReward()}, seed=3)
    with closing(env):
        yield env


def steps_until(env: HardwareEnv, ready: Callable[[EnvStep], bool], action: float = 0.2) -> EnvStep:
    """Step until a step is as it should be; the last one."""
    end = time.monotonic() + 30
    while True:
        step = env.step(torch.full((1, 2), action))
        if ready(step):
            return step
        assert time.monotonic() < end, f"it did not come to that: {env.phase}, {env.prompt}"


@pytest.mark.slow
def test_episodes_run_through_shared_memory_and_go_on_after_the_robot_process_was_killed():
    with learning() as env:
        env.start_reset()
        assert "does not run" in env.prompt
        assert env.step(torch.zeros(1, 2)).valid.tolist() == [False]
        with robot_process() as process:
            steps_until(env, lambda _: env.phase is Phase.running)
            begin = time.monotonic()
            steps = [env.step(torch.tensor([[0.4, -0.6]])) for _ in range(LIMIT)]
            took = time.monotonic() - begin
            assert took == pytest.approx(LIMIT * CONTROL_DT, abs=1.0)
            assert sum(bool(step.valid) for step in steps) >= LIMIT - 2  # unless the machine sleeps
            torch.testing.assert_close(steps[-1].action, torch.tensor([[0.4, -0.6]]))
            assert sum(float(step.reward) for step in steps) < 0
            assert env.episode >= 1
            process.kill()
            process.wait(20)
            lost = steps_until(env, lambda _: "the robot process" in env.prompt)
            assert not lost.valid
        episode = env.episode
        with robot_process():
            steps_until(env, lambda _: env.episode > episode and env.phase is Phase.running)
            steps_until(env, lambda step: bool(step.valid))
    assert not channel_path(RobotChannels(NAME).policy).exists()


@pytest.mark.slow
def test_a_person_who_takes_over_is_seen_in_the_actions_that_were_executed():
    layout, channels = CommandLayout(two_joints(), two_joints().command), RobotChannels(NAME)
    with (
        robot_process(),
        learning() as env,
        closing(CommandPublisher(channels.human, layout)) as hand,
        closing(RequestPublisher(channels.requests)) as requests,
    ):
        env.reset(seed=1)

        def speak() -> None:
            now = time.monotonic()
            q = np.array([0.2, -0.5]) + SCALE * np.array([0.5, 0.3])
            hand.send(StampedCommand(command=to(*q), stamp=now))
            requests.update(heartbeat=now, publishers=1, estop_down=False)

        speak()
        steps_until(env, lambda _: env.phase is Phase.running)
        asked = False

        def seen(step: EnvStep) -> bool:
            nonlocal asked
            speak()
            if env.phase is Phase.running and not asked:
                send_request(channels.operator, Condition.HAND_TO_HUMAN)
                asked = True
            return bool(step.intervened) and bool(step.valid)

        steps_until(env, seen)
        step = steps_until(env, lambda step: seen(step) or env.phase is not Phase.running)
        assert step.intervened or step.ended
        torch.testing.assert_close(step.action, torch.tensor([[0.5, 0.3]]), atol=0.02, rtol=0)
