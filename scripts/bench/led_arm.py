"""Joints of an arm beside their limits while it is led back and forth at full stick.

It meets its fixture, too. This is the simulated peg robot on a logical clock, with the control law
of `robot-rl learn`, without the loop around it. The stick is thrown somewhere else every 0.1 to
3 s; every fifth of the person's messages is late.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.compose import compose
from hardware.teleop.intent import MotionFrame
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.seeding import derive_seed

_WORDS = ("task=peg", "robot=panda", "task.kind=sparse")
_EPISODE_SECONDS = 20.0
_THROW_SECONDS = 0.1, 3.0
_MESSAGE_SECONDS = 0.02, 0.02, 0.02, 0.02, 0.3
_SAY_EPISODES = 15


class Stick:
    """A stick in a hand that throws it about: targets, as they arrive at the robot."""

    def __init__(self, robot: TwinRobot, generator: np.random.Generator) -> None:
        """Take the stick of a robot."""
        self._target, self._generator = robot.person_target(), generator
        self._twist, self._frame = np.zeros(6), MotionFrame.base
        self._thrown, self._sent = 0.0, 0.0

    def begin(self, state: Any) -> None:
        """The target lies where the hand is."""
        self._target.sync(state, None)
        self._thrown = self._sent = 0.0

    def command(self, state: Any, time: float) -> RobotCommand:
        """The target that has arrived last.

        Args:
            time: Since the episode's begin [s].
        """
        draw = self._generator
        if time >= self._thrown:
            self._thrown = time + draw.uniform(*_THROW_SECONDS)
            turns = draw.choice([-1.0, 0.0, 1.0], 3) * draw.uniform(0, 1, 3)
            self._twist = np.concatenate([draw.uniform(-1, 1, 3), turns])
            self._frame = MotionFrame.tool if draw.random() < 0.5 else MotionFrame.base
        if time >= self._sent:
            step = float(draw.choice(_MESSAGE_SECONDS))
            self._target.advance(self._twist, self._frame, state, step)
            self._sent = time + step
        return self._target.command()


@dataclass(frozen=True, kw_only=True)
class LedArm:
    """Size of the measurement."""

    minutes: float = 25.0
    """Simulated time."""
    seed: int = 0

    def measure(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Lead it, and tell the worst that a joint did.

        Args:
            say: Takes lines of the terminal.
        """
        robot = TwinRobot(compose([*_WORDS]).config, TwinRobotConfig(reach=0.15))
        now = [0.0]
        twin = robot.make_twin(self.seed, lambda: now[0])
        twin.valued = False
        twin.connect()
        joints = robot.narrowed[0].joints
        limit = np.array([joint.velocity_limit for joint in joints])
        low, high = np.array([joint.position_limit for joint in joints]).T
        worst = {"speed": 0.0, "beyond": -np.inf}
        names = {"speed": "", "beyond": ""}
        stick = Stick(robot, np.random.default_rng(self.seed))
        episodes = max(1, round(60 * self.minutes / _EPISODE_SECONDS))
        for episode in range(episodes):
            twin.begin(derive_seed(self.seed, f"episode {episode}"))
            law, state = robot.pose_control.make_law(), twin.read()
            law.start(state, None)
            stick.begin(state)
            for tick in range(round(_EPISODE_SECONDS / robot.period)):
                twin.write(law.update(
                    stick.command(state, tick * robot.period), state, robot.period
                ))  # fmt: skip
                now[0] += robot.period
                state = twin.read()
                q, dq = state.joint_position[0], state.joint_velocity[0]
                for what, values in (
                    ("speed", abs(dq) / limit), ("beyond", np.maximum(low - q, q - high)),
                ):  # fmt: skip
                    joint = int(values.argmax())
                    if values[joint] > worst[what]:
                        worst[what], names[what] = float(values[joint]), joints[joint].name
            if (episode + 1) % _SAY_EPISODES == 0 or episode + 1 == episodes:
                say(
                    f"{(episode + 1) * _EPISODE_SECONDS / 60:.0f} min: largest speed "
                    f"{worst['speed']:.2f} of the limit ({names['speed']}), position "
                    f"{worst['beyond']:+.3f} rad beyond one ({names['beyond']})"
                )
        return {
            "minutes": episodes * _EPISODE_SECONDS / 60, "seed": self.seed,
            "speed": {"of_limit": worst["speed"], "joint": names["speed"]},
            "beyond": {"rad": worst["beyond"], "joint": names["beyond"]},
        }  # fmt: skip
