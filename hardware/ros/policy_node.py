"""The policy's side of the wire: measurements in, commands out, once per control period.

It decides nothing about safety: the robot's side does, and does not trust this one. What is refused
here is refused so that a person reads why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from hardware.ros.command_messages import CommandMessages, Gains
from hardware.ros.compat import message
from hardware.ros.robot_inputs import RobotInputs
from hardware.ros.session import RosSession
from policies.runner import PolicyRunner, PolicySpec
from robot_rl.core.errors import StaleStateError
from robot_rl.core.robot_command import RobotCommand


@dataclass(frozen=True, kw_only=True)
class PolicyTick:
    """What came of one control period."""

    command: RobotCommand | None
    """What was decided; None while the policy waits."""
    waits_for: str = ""
    """Why nothing was decided, in words."""
    stamp: int = 0
    """Time of the measurements that were answered [ns]."""
    age: float = 0.0
    """Age of these measurements when the command left [s]."""


def gains_of(spec: PolicySpec) -> dict[str, Gains]:
    """The gain set that a policy was trained with, by a name that says which numbers it holds."""
    action_map = spec.action_map
    joints = spec.robot.num_joints
    if not joints:
        return {}
    gains = Gains(
        stiffness=np.array([action_map.stiffness[:joints]]),
        damping=np.array([action_map.damping[:joints]]),
    )
    digest = sha256(gains.stiffness.tobytes() + gains.damping.tobytes()).hexdigest()
    return {f"policy:{digest[:8]}": gains}


class PolicyNode:
    """A policy between a robot's topics."""

    def __init__(
        self,
        session: RosSession,
        runner: PolicyRunner,
        *,
        goals: Mapping[str, np.ndarray] | None = None,
        shadow: bool = False,
    ) -> None:
        """Subscribe and publish.

        Args:
            session: The node, in the robot's namespace.
            runner: The policy.
            goals: Goals that hold until a message changes them, (1, width).
            shadow: Publish under `shadow/` what would have been commanded; the robot hears none.
        """
        spec = runner.spec
        self.runner = runner
        self.inputs = RobotInputs(
            session, spec.robot, goal_widths=spec.goal_widths, sensed_widths=spec.sensed_widths,
            goals=goals,
        )  # fmt: skip
        self._session = session
        gains = gains_of(spec)
        self._gain_set = next(iter(gains), "")
        self._messages = CommandMessages(spec.robot, gains)
        self._kind = message(self._messages.package, self._messages.message)
        self.topic = f"{'shadow/' if shadow else ''}{self._messages.topic}"
        self._publisher = session.publisher(self.topic, self._kind)
        self._running = False

    def tick(self) -> PolicyTick:
        """Look, decide, publish; once per control period.

        After a pause in the measurements an episode begins anew: histories of before would be
        mixed with what came after.

        Raises:
            NonFiniteError: An observation or the action is not finite; nothing was published.
            SpecMismatchError: Messages do not fit the robot that the policy was trained for.
        """
        self.inputs.look()
        now = self._session.now()
        try:
            state = self.inputs.robot_state(now)
        except StaleStateError as error:
            self._running = False
            return PolicyTick(command=None, waits_for=str(error))
        if not self._running:
            self.runner.reset()
            self._running = True
        goal = {name: value.astype(np.float32) for name, value in self.inputs.goal.items()}
        sensed = {name: value.astype(np.float32) for name, value in self.inputs.sensed.items()}
        command = self.runner.act(state, goal, sensed)
        stamp = self.inputs.stamp
        packed = self._kind()
        self._messages.pack(command, packed, stamp=stamp, gains=self._gain_set)
        self._publisher.publish(packed)
        age = (self._session.now() - stamp) * 1e-9
        return PolicyTick(command=command, stamp=stamp, age=age)

    @property
    def listeners(self) -> int:
        """Who hears the commands."""
        return int(self._publisher.get_subscription_count())

    @property
    def others(self) -> int:
        """Publishers on the command's topic beside this one."""
        return int(self._session.node.count_publishers(self.topic)) - 1
