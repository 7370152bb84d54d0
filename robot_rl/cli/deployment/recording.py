"""The recorder as a process of a deployment or as a program of its own.

Imports no simulator and no torch: it has to be there before the policy.
"""

import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hardware.recording.bag import RecordingError
from hardware.recording.recorder import Recorder
from hardware.ros.session import RosSession
from policies.bundle import bundle_digest, load_bundle
from robot_rl.cli.deployment.signals import orphaned, tell
from robot_rl.core.errors import RobotRLError

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which people and terminals end a program."""
_LOOK_SECONDS, _LINE_SECONDS = 0.005, 1.0


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Source and destination of a recording."""

    bundle: str
    """Folder of the policy that moves the robot."""
    namespace: str
    """Of the robot's topics, with its slash."""
    domain: int | None
    """ROS_DOMAIN_ID; None takes the environment's."""
    folder: Path
    """Of the bag."""


def record(
    what: Recording,
    *,
    ended_by: Collection[signal.Signals],
    seconds: float = 0.0,
    say: Callable[[str], object] = print,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Record until time is over or a signal comes; the bag is whole in either case.

    Args:
        what: What is recorded.
        ended_by: Signals that end it; others of `ENDINGS` are not heard meanwhile.
        seconds: How long; 0 for ever.
        say: Hears a line every second.
        over: Whether to end, asked now and then.

    Raises:
        RecordingError: Nothing came, or the folder cannot be written.
    """
    session = RosSession("recorder", namespace=what.namespace, domain=what.domain)
    try:
        with _signals(ended_by) as came:
            spec = load_bundle(what.bundle, verify=False, pictures=True).spec
            recorder = Recorder(session, spec, what.folder, bundle_digest(what.bundle))
            try:
                _keep_looking(recorder, seconds, lambda: bool(came) or over(), say)
                kept, line = recorder.close(), recorder.line
            except RecordingError as error:
                raise RecordingError(
                    f"{error}; what came before is kept: robot-rl record repair {what.folder}"
                ) from None
        if not kept:
            raise RecordingError(
                f"nothing came below {what.namespace}: is the robot running, in the same ROS "
                f"domain (here {session.context.get_domain_id()})? namespace= and domain= choose"
            )
        say(f"{line}\nrecorded into {what.folder}")
    finally:
        session.close()


def run_recorder(what: Recording) -> None:
    """The recorder of a deployment; may die at any time, the robot does not notice."""
    try:
        record(
            what, ended_by=[signal.SIGTERM], over=orphaned,
            say=lambda line: tell(line) if "recorded" in line else None,
        )  # fmt: skip
    except RobotRLError as error:
        print(f"recorder: {error}", flush=True)
        raise SystemExit(1) from None


def _keep_looking(
    recorder: Recorder, seconds: float, over: Callable[[], bool], say: Callable[[str], object]
) -> None:
    begin = say_at = time.monotonic()
    while not over() and not (seconds and time.monotonic() > begin + seconds):
        recorder.poll()
        if time.monotonic() >= say_at:
            say(recorder.line)
            say_at = time.monotonic() + _LINE_SECONDS
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _signals(heard: Collection[signal.Signals]) -> Iterator[list[int]]:
    """Note signals instead of being torn from writing by them; a second one changes nothing."""
    came: list[int] = []
    before = {
        number: signal.signal(
            number, (lambda got, _: came.append(got)) if number in heard else signal.SIG_IGN
        )
        for number in ENDINGS
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
