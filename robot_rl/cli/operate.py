"""Commands of a second terminal: stop, hold, arm, reset and watch a robot that is deployed.

On the robot's own computer they speak to the robot process itself, without ROS 2 and although its
bridge may be dead. From elsewhere they call the ROS 2 services of its bridge.
"""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from hardware.control.ipc import StatusSubscriber, channel_path
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, is_listening, send_request
from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import Condition, SafetyState
from robot_rl.cli.command_line import read_options
from robot_rl.cli.deployment.status_line import line_of
from robot_rl.core.errors import ConfigError

_S = SafetyState
_ANSWER_SECONDS, _ARM_SECONDS, _LOOK_SECONDS = 1.0, 60.0, 0.01
_LINE_SECONDS = 0.5
_FIND_SECONDS, _SETTLE_SECONDS = 5.0, 2.0
"""Longest search for robots of other computers, and the time for which others are looked for after
the first was found: the network's nodes become known one after the other [s]."""


@dataclass(frozen=True)
class _Wish:
    """A request of a person, and the states that it leads to."""

    request: Condition
    to: tuple[SafetyState, ...]
    text: str
    service: str
    """Of the bridge, for robots on other computers."""


_WISHES = {
    "estop": _Wish(Condition.ESTOP_PRESSED, (_S.ESTOP,), "stop at once, latched", "estop"),
    "hold": _Wish(Condition.HOLD, (_S.HOLD,), "hold the present pose", "hold"),
    "disarm": _Wish(Condition.DISARM, (_S.SAFE_STOP, _S.PASSIVE), "stop softly", "arm"),
    "arm": _Wish(Condition.ARM, (_S.READY,), "stand up and be ready", "arm"),
    "policy": _Wish(Condition.ENABLE_POLICY, (_S.POLICY,), "hand over to the policy", "policy"),
    "reset": _Wish(Condition.RESET, (_S.PASSIVE,), "end a stop; stay passive", "reset_estop"),
}
_KEYS = {" ": "estop", "h": "hold", "d": "disarm", "a": "arm", "p": "policy", "r": "reset"}


@dataclass(kw_only=True)
class OperateOptions:
    """Robot that a command is for."""

    namespace: str = ""
    """Namespace of its topics; the only robot there is, if empty."""
    domain: int = -1
    """ROS_DOMAIN_ID; any on this computer, the environment's elsewhere, if -1."""


@dataclass(kw_only=True)
class StatusOptions(OperateOptions):
    """Options of `robot-rl status`."""

    follow: bool = False
    """Lines until Ctrl-C."""


class LocalRobot:
    """A robot process on this computer."""

    def __init__(self, name: str) -> None:
        """Find the channels of a robot.

        Args:
            name: Its namespace with dots, and its domain, as `robot-rl deploy` names it; or the
                name of a run and `learn`.
        """
        self._channels = RobotChannels(name)
        self._status = StatusSubscriber(self._channels.status)
        before, _, last = name.rpartition(".")
        self.namespace = "/" + (before or name).replace(".", "/")
        """Of its topics; the name of a robot without any."""
        self.domain = int(last) if last.isdecimal() else None
        """ROS_DOMAIN_ID; None where its process speaks no ROS."""
        self.label = self.namespace + (
            f" (domain {last})" if last.isdecimal() else f" ({last})" if before else ""
        )
        """Namespace, and domain or what it does."""

    @property
    def alive(self) -> bool:
        """False if its process was killed and left its channels behind."""
        return is_listening(self._channels.operator)

    @property
    def status(self) -> RobotStatus | None:
        """The newest status; None before the first."""
        return self._status.newest()

    @property
    def line(self) -> str:
        """The status in a line."""
        status = self.status
        if not self.alive:
            return f"{self.label}: its process died without tidying up; nothing moves this robot"
        return f"{self.label}: " + (
            "no status yet" if status is None else line_of(status, time.monotonic())
        )

    def ask(self, wish: _Wish) -> None:
        """Ask once."""
        send_request(self._channels.operator, wish.request)

    def close(self) -> None:
        """Let go of it."""
        self._status.close()


@contextmanager
def local_robots(options: OperateOptions) -> Iterator[list[LocalRobot]]:
    """Robots of this computer, by name, those of killed processes too."""
    suffix = channel_path(RobotChannels("x").status).name.removeprefix("robot_rl.x")
    files = sorted(channel_path("x").parent.glob(f"robot_rl.*{suffix}"))
    names = [file.name.removeprefix("robot_rl.").removesuffix(suffix) for file in files]
    robots = [LocalRobot(name) for name in names]
    wanted = "/" + options.namespace.strip("/") if options.namespace else ""
    try:
        yield [
            robot
            for robot in robots
            if wanted in ("", robot.namespace) and options.domain in (-1, robot.domain)
        ]
    finally:
        for robot in robots:
            robot.close()


def _run(name: str, words: Sequence[str]) -> int:
    """Do what one command asks for; an emergency stop goes to every robot that fits."""
    options, wish = read_options(OperateOptions, words), _WISHES[name]
    with local_robots(options) as found:
        robots = [robot for robot in found if robot.alive]
        if not robots:
            return _ask_elsewhere(name, wish, options)
        if len(robots) > 1 and name != "estop":
            raise ConfigError(
                f"{len(robots)} robots run here: {', '.join(robot.label for robot in robots)}; "
                f"say which: robot-rl {name} namespace={robots[0].namespace}"
            )
        # All are asked before one is waited for.
        earlier = [robot.status for robot in robots]
        for robot in robots:
            with suppress(NoRobotError):  # it has just ended; `_answer` says so
                robot.ask(wish)
        return max([_answer(*pair, name, wish) for pair in zip(robots, earlier, strict=True)])


def _answer(robot: LocalRobot, before: RobotStatus | None, name: str, wish: _Wish) -> int:
    """Wait for a robot to do as it was asked, say what became of it, and return the exit code."""
    began = before.safety.value if before is not None else "unknown"
    withheld = 0 if before is None else before.withheld
    end = time.monotonic() + (_ARM_SECONDS if name == "arm" else _ANSWER_SECONDS)
    while (status := robot.status) is None or status.safety not in wish.to:
        now = time.monotonic()
        if now > end or not robot.alive:
            break
        if name == "arm" and status is not None:
            if status.safety in (_S.SAFE_STOP, _S.ESTOP) or status.withheld > withheld:
                break
            if status.safety in (_S.PASSIVE, _S.HOLD):
                with suppress(NoRobotError):
                    robot.ask(wish)  # the first stands it up, the second makes it ready
                time.sleep(0.2)
        time.sleep(_LOOK_SECONDS)
    if status is not None and status.safety in wish.to:
        print(f"{robot.label}: {began} -> {status.safety.value}", flush=True)
        return 0
    age = None if status is None else time.monotonic() - status.time
    if status is None or age is None or age > _ANSWER_SECONDS:
        silent = "" if age is None else f" for {age:.1f} s"
        why = f"the robot process has not answered{silent}; what was asked waits for it"
    else:
        held = "a person withholds it" * (name == "arm" and status.withheld > withheld)
        stopped = name == "arm" and status.safety in (_S.SAFE_STOP, _S.ESTOP)
        told = status.refused or held or "'robot-rl reset' comes first" * stopped
        why = f"it is in '{status.safety.value}'" + (f": {told}" if told else "")
    print(f"{robot.label}: '{name}' was not done; {why}", flush=True)
    return 1


def _ask_elsewhere(name: str, wish: _Wish, options: OperateOptions) -> int:
    """Call the services of robots on other computers.

    Raises:
        NoRobotError: There is none.
    """
    from hardware.ros.compat import inspect_environment, message
    from hardware.ros.session import RosSession
    from robot_rl.cli.deployment.options import LOOP_NODE, PolicyOptions

    none = "no robot process runs on this computer"
    if inspect_environment().rclpy is None:
        raise NoRobotError(
            f"{none}, and without ROS 2 (pip install 'robot_rl[ros2]') no other one can be reached"
        )
    domain = PolicyOptions(domain=options.domain).ros_domain
    ending = f"/{LOOP_NODE}/{wish.service}"
    wanted = "/" + options.namespace.strip("/") + ending if options.namespace else ""
    kind = message("std_srvs", "SetBool" if wish.service == "arm" else "Trigger")
    request: Any = kind.Request()
    if wish.service == "arm":
        request.data = name == "arm"
    nobody = NoRobotError(
        f"{none}, and within {_FIND_SECONDS:g} s none offers {wanted or '*' + ending} in ROS "
        f"domain {domain}; is it deployed, with this domain= and namespace=?"
    )
    with closing(RosSession("second_terminal", domain=domain)) as session:

        def names() -> list[str]:
            services = session.node.get_service_names_and_types()
            return [one for one, _ in services if one.endswith(ending) and wanted in ("", one)]

        find, settle = names, _SETTLE_SECONDS  # of a stop: at once, whoever else may be found
        if name != "estop":
            found = _settled(names)
            _expect_one([one.removesuffix(ending) for one in found])
            find, settle = partial(list, found), 0.0
            if not found:
                raise nobody
        done: list[bool] = []
        for service, answer in session.ask_each(
            kind, find, request, timeout=_FIND_SECONDS, settle=settle
        ):
            done.append(answer is not None and bool(answer.success))
            silent = f"it did not answer in {_FIND_SECONDS:g} s, and may not have heard"
            said = silent if answer is None else answer.message
            print(f"{service.removesuffix(ending)}: {said}", flush=True)
        if not done:
            raise nobody
        return 0 if all(done) else 1


def _settled(names: Callable[[], list[str]]) -> list[str]:
    """Names that are found until none has been new for a while; empty where there are none."""
    end, found = time.monotonic() + _FIND_SECONDS, set[str]()
    while time.monotonic() < end:
        if new := set(names()) - found:
            found |= new
            end = time.monotonic() + _SETTLE_SECONDS
        time.sleep(0.1)
    return sorted(found)


def _expect_one(robots: Sequence[str]) -> None:
    """Refuse a request that several robots would follow."""
    if len(robots) > 1:
        raise ConfigError(
            f"{len(robots)} robots answer: {', '.join(robots)}; say which by namespace="
        )


def run_status(words: Sequence[str]) -> int:
    """Print the robots of this computer, once or until Ctrl-C."""
    options = read_options(StatusOptions, words)
    with local_robots(options) as robots:
        if not robots:
            raise NoRobotError("no robot process runs on this computer")
        while True:
            for robot in robots:
                print(robot.line, flush=True)
            if not options.follow or not any(robot.alive for robot in robots):
                return 0 if all(robot.alive for robot in robots) else 1
            time.sleep(_LINE_SECONDS)


def run(words: Sequence[str]) -> int:
    """Show one robot's status and do what keys ask for, until q.

    Raises:
        ConfigError: There is no terminal, or more than one robot.
    """
    options = read_options(OperateOptions, words)
    if not sys.stdin.isatty():
        raise ConfigError("robot-rl operate needs a terminal; elsewhere: robot-rl estop, status")
    with local_robots(options) as found:
        robots = [robot for robot in found if robot.alive]
        if len(robots) != 1:
            labels = ", ".join(robot.label for robot in robots) or "none"
            raise ConfigError(f"one robot was expected, got {labels}; choose by namespace=")
        told = ", ".join(f"{'space' if key == ' ' else key} {name}" for key, name in _KEYS.items())
        _listen_to_keys(robots[0], f"{told}, q leave (the robot goes on)")
    return 0


def _listen_to_keys(robot: LocalRobot, told: str) -> None:
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)  # first: it drops what was typed before
    try:
        print(told, flush=True)
        while robot.alive:
            print(f"\r\x1b[2K{robot.line[: _columns()]}", end="", flush=True)
            if not select.select([sys.stdin], [], [], _LINE_SECONDS / 2)[0]:
                continue
            key = os.read(sys.stdin.fileno(), 1).decode(errors="replace")
            if key in ("q", ""):
                break
            if name := _KEYS.get(key):
                robot.ask(_WISHES[name])
        print()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _columns() -> int:
    return os.get_terminal_size().columns


_WHICH = """options:
  namespace=       of the robot's topics, such as /go2, or the name= of robot-rl learn; the only
                   robot there is if empty
  domain=-1        ROS_DOMAIN_ID; -1 means any on this computer, the environment's elsewhere"""

_DETAILS = {
    "estop": """
Without namespace= every robot of this computer is stopped; where none runs here, every one in the
ROS domain. The stop is latched: robot-rl reset ends it. It is software and no safety-rated
emergency stop, which a robot that can hurt somebody needs besides.""",
    "arm": """
The robot goes slowly to the pose that it is armed in, holds, and is then ready for a policy.""",
}


def _help(name: str) -> str:
    return f"""Asks a robot that is deployed or learns to {_WISHES[name].text}.

usage: robot-rl {name} [option=value ...]

{_WHICH}
{_DETAILS.get(name, "")}
On the robot's computer the command speaks to the robot process itself: it needs no ROS 2 and works
when the ROS 2 side has died. Exit code 0: the robot did it. 1: it did not, and the reason is said.
2: there is no such robot.""".replace("\n\n\n", "\n\n")


ESTOP_HELP, HOLD_HELP, DISARM_HELP, ARM_HELP, POLICY_HELP, RESET_HELP = map(_help, _WISHES)
run_estop: Callable[[Sequence[str]], int] = partial(_run, "estop")
run_hold: Callable[[Sequence[str]], int] = partial(_run, "hold")
run_disarm: Callable[[Sequence[str]], int] = partial(_run, "disarm")
run_arm: Callable[[Sequence[str]], int] = partial(_run, "arm")
run_policy: Callable[[Sequence[str]], int] = partial(_run, "policy")
run_reset: Callable[[Sequence[str]], int] = partial(_run, "reset")

STATUS_HELP = f"""Shows the robots that run on this computer, one line each.

usage: robot-rl status [option=value ...]

{_WHICH}
  follow=false     true prints lines until Ctrl-C

Exit code 0: they run. 1: the process of one was killed. 2: there is none."""

HELP = f"""Shows the status of a deployed robot and commands it by keys, in a second terminal.

usage: robot-rl operate [option=value ...]

{_WHICH}

keys: space emergency stop, h hold, d disarm (stop softly), a arm, p policy, r reset, q leave.
Leaving changes nothing for the robot. One computer only: the robot's own."""
