"""The three processes beside the person's own: the robot, its ROS 2 neighbour, the policy."""

import signal
from collections.abc import Callable

import numpy as np

from deploying.plan import LOOP_NODE, Deployment, DeployOptions
from hardware.control.clock import MonotonicClock
from hardware.control.fields_mail import FieldsSender
from hardware.control.realtime import request_realtime
from hardware.control.robot_process import RobotProcess
from hardware.control.stopping import StopConfig
from hardware.ros.policy_node import PolicyNode
from hardware.ros.robot_bridge import RobotBridge
from hardware.ros.session import RosSession
from robot_rl.core.errors import NonFiniteError
from robot_rl.core.robot_command import JointCommand

_POLLS_PER_PERIOD = 2


def run_robot(options: DeployOptions) -> None:
    """The robot process: ends with a stopped robot at SIGINT or SIGTERM."""
    _end_as_by_ctrl_c()
    import torch

    torch.set_num_threads(1)
    plan = Deployment(options)
    twin = plan.make_twin(options.seed)
    process = RobotProcess(
        twin, name=plan.mailboxes.robot, clock=MonotonicClock(), period=plan.period,
        gain_sets=plan.gain_names, laws=plan.laws(), limits=plan.limits(),
        stop=StopConfig(hover_thrust=plan.hover_thrust) if plan.robot.rotors else None,
    )  # fmt: skip
    world = FieldsSender(plan.mailboxes.world, plan.world_widths) if plan.world_widths else None

    def tell_world() -> bool:
        if world is not None:
            goals = {f"goal/{name}": value for name, value in twin.goal.items()}
            sensed = {f"sensed/{name}": value for name, value in twin.sensed.items()}
            world.send(goals | sensed, twin.stamp)
        return False

    request_realtime()
    try:
        process.run(tell_world)
    finally:
        if world is not None:
            world.close()


def run_bridge(options: DeployOptions) -> None:
    """The robot's topics and services; may die at any time."""
    plan, clock = Deployment(options), MonotonicClock()
    session = RosSession(LOOP_NODE, namespace=plan.namespace, domain=plan.domain)
    bridge = RobotBridge(
        session, plan.robot, name=plan.mailboxes.robot, clock=clock, gain_sets=plan.gain_sets,
        world=plan.world_widths,
    )  # fmt: skip
    try:
        _repeat(bridge.look, clock, plan.period / _POLLS_PER_PERIOD)
    finally:
        bridge.close()
        session.close()


def run_policy(options: DeployOptions) -> None:
    """The policy, once per control period; may die at any time."""
    plan, clock = Deployment(options), MonotonicClock()
    session = RosSession("policy", namespace=plan.namespace, domain=plan.domain)
    node = PolicyNode(session, plan.runner, shadow=options.mode == "shadow")
    told = _Told(options.mode == "shadow")

    def tick() -> None:
        try:
            done = node.tick()
        except NonFiniteError as error:
            told.say(str(error))
            node.runner.reset()
            return
        if done.command is None:
            told.say(f"the policy waits: {done.waits_for}")
        elif isinstance(done.command, JointCommand):
            told.compare(done.command.q - node.inputs.state["joint_position"])

    try:
        _repeat(tick, clock, plan.runner.spec.control_dt)
    finally:
        session.close()


class _Told:
    """Lines of the policy, none of them twice in a row."""

    def __init__(self, shadow: bool) -> None:
        self._shadow, self._last, self._ticks, self._largest = shadow, "", 0, 0.0

    def say(self, line: str) -> None:
        if line.partition("(")[0] != self._last:
            self._last = line.partition("(")[0]
            print(line, flush=True)

    def compare(self, difference: np.ndarray) -> None:
        """In shadow: how far the policy would have moved the robot, once a second or so."""
        self._last = ""
        self._ticks += 1
        self._largest = max(self._largest, float(abs(difference).max()))
        if self._shadow and self._ticks % 50 == 0:
            print(f"shadow: targets differ from the pose by up to {self._largest:.3f} rad")
            self._largest = 0.0


def _repeat(act: Callable[[], None], clock: MonotonicClock, period: float) -> None:
    """Call something at a rate until SIGINT or SIGTERM; what is late is not made up for."""
    _end_as_by_ctrl_c()
    deadline = clock.now()
    try:
        while True:
            deadline = max(deadline + period, clock.now())
            clock.sleep_until(deadline)
            act()
    except KeyboardInterrupt:
        return


def _end_as_by_ctrl_c() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
