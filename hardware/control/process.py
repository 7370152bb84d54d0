"""The robot process: the loop, and its channels to other processes.

    policy, people --- commands, requests ---> loop --- states, status ---> whoever

ROS 2, pages and recorders are processes of their own: whatever happens to them, the loop
ticks on, and what they leave unsaid for too long stops the robot.
"""

from collections.abc import Callable, Sequence

from hardware.control.clock import Clock
from hardware.control.ipc import (
    ArrayPublisher,
    CommandLayout,
    CommandSubscriber,
    EstopSubscriber,
    ExecutedPublisher,
    HeartbeatSubscriber,
    RequestSubscriber,
    StatusPublisher,
    remove_dead_channel,
)
from hardware.control.limits import make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor
from hardware.control.pipeline import ControllerSet
from hardware.control.request_socket import RequestSocket, remove_dead_socket
from hardware.control.robot_loop import RobotLoop, StampedDriver
from hardware.control.safety import SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind

_SUM_UP_SECONDS = 1.0


class RobotChannels:
    """Names of the channels of a robot; one robot process at a time has them."""

    def __init__(self, robot: str) -> None:
        self.robot = robot
        self.policy = f"{robot}.policy"
        """Commands of a policy."""
        self.human = f"{robot}.human"
        """Commands of a person."""
        self.requests = f"{robot}.requests"
        """Requests of people, by way of the bridge."""
        self.operator = f"{robot}.operator"
        """Requests of people on this computer, from any program: a socket."""
        self.state = f"{robot}.state"
        """Measured states."""
        self.measured = f"{robot}.measured"
        """Samples of a robot that another process talks to."""
        self.sent = f"{robot}.sent"
        """Commands on their way to it."""
        self.heartbeat = f"{robot}.heartbeat"
        """Times at which the person in front of the robot was heard."""
        self.estop = f"{robot}.estop"
        """Signal of this robot's stop button."""
        self.goals = f"{robot}.goals"
        """Goals that a person sets for the policy."""
        self.world = f"{robot}.world"
        """Goals and further inputs of a simulated robot."""
        self.scene = f"{robot}.scene"
        """Positions of everything in a simulated world, for who draws its cameras."""
        self.pictures = f"{robot}.pictures"
        """Pictures of its cameras."""
        self.status = f"{robot}.status"
        """Status of the loop."""
        self.executed = f"{robot}.executed"
        """Setpoint that every tick really followed, and whose it was."""
        self.episodes = f"{robot}.episodes"
        """Requests that a simulated world begins an episode."""
        self.deployment = f"{robot}.deployment"
        """File with the options of the deployment, for consoles beside it."""
        self.launcher = f"{robot}.launcher"
        """Id of the process that started all others."""

    def remove_dead(self) -> None:
        """Remove what killed processes of this robot left; what somebody uses stays."""
        remove_dead_socket(self.operator)
        for name in vars(self).values():
            if name not in (self.robot, self.operator):
                remove_dead_channel(name)


class RobotProcess:
    """A robot, its loop, and the channels around them."""

    def __init__(
        self, driver: StampedDriver, *, name: str, clock: Clock, period: float,
        gain_sets: Sequence[str] = ("",), limits: SafetyLimits | None = None,
        stop: StopConfig | None = None, controllers: ControllerSet | None = None,
        setpoint: CommandKind | None = None, human_setpoint: CommandKind | None = None,
        spec: RobotSpec | None = None, estop: bool = False,
    ) -> None:  # fmt: skip
        """Join the parts and connect the driver; `period` is in seconds.

        Args:
            gain_sets: Names of the sets of gains that commands may be made for; in the other
                processes the same in the same order.
            limits: Thresholds; by the kind of robot if None.
            setpoint: Kind of command that policies send; the robot's own if None.
            human_setpoint: Kind of command that people send; that of policies if None.
            estop: The robot has a stop button, whose signal comes by its channel; while that is
                silent, the button counts as pressed.
            spec: The robot as limits, monitors and stops take it; the driver's if None. A simulated
                robot may be another one than the one whose limits count.

        Raises:
            ChannelBusyError: Another process runs this robot.
            Exception: What the driver's `connect` raises.
        """
        spec = spec or driver.spec
        channels = RobotChannels(name)
        limits = limits or (SafetyLimits.for_flight() if spec.rotors else SafetyLimits())
        self._states = ArrayPublisher(
            channels.state, spec.state_widths
        )  # first: refuses a second process
        self._status = StatusPublisher(channels.status)
        kind = setpoint or spec.command
        self._executed = ExecutedPublisher(channels.executed, CommandLayout(spec, kind))
        self._driver = driver
        kinds = {SafetyState.POLICY: kind, SafetyState.HUMAN: human_setpoint or kind}
        names = {SafetyState.POLICY: channels.policy, SafetyState.HUMAN: channels.human}
        self._sources = {
            who: CommandSubscriber(names[who], CommandLayout(spec, kinds[who], gain_sets))
            for who in names
        }
        self.loop = RobotLoop(
            driver, clock=clock, period=period, on_sample=self._states.send,
            monitor=SafetyMonitor(
                spec, limits, period, kinds=[*kinds.values()], gain_sets=gain_sets
            ),
            limiter=make_limiter(spec, limits.joints), stopping=make_stopping(spec, stop),
            controllers=controllers, sources=self._sources,
        )  # fmt: skip
        self._requests = RequestSubscriber(channels.requests, self.loop.requests)
        self._heartbeat = HeartbeatSubscriber(channels.heartbeat, self.loop.requests)
        self._estop = EstopSubscriber(channels.estop, self.loop.requests) if estop else None
        self._operator = RequestSocket(channels.operator, self.loop.requests)
        self._clock = clock
        if self._estop is not None:
            self._estop.begin(clock.now())
        self._sum_up_at = clock.now() + _SUM_UP_SECONDS
        try:
            driver.connect()
        except BaseException:  # Ctrl-C too: no channel may stay behind
            self.close()
            raise

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Tick until asked to end or Ctrl-C, then stop the robot softly and let go of it.

        Args:
            until: Whether to end; asked once per tick, while the robot stops too.
        """
        try:
            self.loop.run(lambda: self.between_ticks() or until())
        finally:
            self._status.send(self.loop.status)
            self.close()

    def close(self) -> None:
        """Stop the robot and remove the channels; allowed more than once."""
        self._driver.close()
        for box in (
            self._states, self._status, self._executed, self._requests, self._heartbeat,
            self._operator, *self._sources.values(), *filter(None, [self._estop]),
        ):  # fmt: skip
            box.close()

    def between_ticks(self) -> bool:
        """Take requests, send status and what was followed; `run` does it after every tick.

        Never asks to end.
        """
        self._requests.poll()
        self._heartbeat.poll()
        self._operator.poll()
        now = self._clock.now()
        if self._estop is not None:
            self._estop.poll(now)
        if now >= self._sum_up_at:
            self._sum_up_at = now + _SUM_UP_SECONDS
            self._status.set_latencies(self.loop.latencies.summary())
        self._executed.send(self.loop.executed)
        self._status.send(self.loop.status)
        return False
