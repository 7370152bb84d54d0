"""Times of the console here: `python -m tests.hardware.console.measure [trials] [words]`.

A browser works beside the processes of `robot-rl learn driver=twin person=console`: loop, actor,
learner and console. Further words are words of that command. A key or a click is an event of the
page, and its end is the time of the first tick of the robot's loop that was seen to answer it.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from configs.compose import compose, read_options
from hardware.control.ipc import CommandLayout, ExecutedSubscriber, StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, send_request
from hardware.control.robot_loop import Executed
from hardware.control.safety import SafetyState
from hardware.learning.operation import TOWARDS_POLICY
from robot_rl.cli.learning.environment import led_robot
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.core.process import clean_environ
from robot_rl.core.robot_command import PoseCommand
from tests.hardware.console.conftest import CHROMIUM, FLAGS
from tests.hardware.console.running import wait_for

_RUN = (
    "experiment=peg_with_person", "twin.success_reward=1", "person=console", "port=0",
    "task.episode_length=1000", "logging.tensorboard=false", f"name=measured{os.getpid()}",
)  # fmt: skip
_START_SECONDS = 180.0
_MOVED = 1e-5
"""Way of the target that is none of rounding [m]."""
_MOST_MISSED = 20
"""Trials in a row that come to nothing: the machine stalled, and the robot held meanwhile."""
_PRESS = """([kind, key, shift]) => {
  const at = performance.timeOrigin + performance.now();
  if (kind === 'click') {
    const found = document.querySelector(`[data-testid=${key}]`);
    found.dispatchEvent(new PointerEvent('pointerdown'));
  } else dispatchEvent(new KeyboardEvent(kind, { code: key, key, shiftKey: shift }));
  return at;
}"""


class LearningRobot:
    """The processes of `robot-rl learn`, and what its loop does."""

    def __init__(self, process: "subprocess.Popen[bytes]", words: Sequence[str]) -> None:
        """Look at a run that was started with these words."""
        options, rest = read_options(LearnOptions, words)
        robot, channels = led_robot(compose(rest).config, options), RobotChannels(options.channels)
        layout = CommandLayout(robot.narrowed[0], robot.action_map.kind)
        self.process, self._operator = process, channels.operator
        self._executed = ExecutedSubscriber(channels.executed, layout)
        self._status = StatusSubscriber(channels.status)

    @property
    def tick(self) -> Executed:
        """The newest tick of the loop."""
        end = time.monotonic() + _START_SECONDS
        while (newest := self._executed.newest()) is None:
            assert self.process.poll() is None, "robot-rl learn has ended"
            assert time.monotonic() < end, "the loop does not tick"
            time.sleep(0.01)
        return newest

    def until(self, found: Callable[[Executed], bool], seconds: float = 2.0) -> float | None:
        """Time of the first tick that is so [s]; None where there is none for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found(tick := self.tick):
                return tick.time
            time.sleep(0.0005)
        return None

    def in_policy(self) -> None:
        """Let the robot follow the policy, whatever state it is in."""
        end = time.monotonic() + _START_SECONDS
        while (safety := self.tick.safety) is not SafetyState.POLICY:
            assert time.monotonic() < end, self._status.newest()
            with contextlib.suppress(NoRobotError):
                send_request(self._operator, TOWARDS_POLICY.get(safety, _POLICY))
            time.sleep(0.05)


_POLICY = TOWARDS_POLICY[SafetyState.READY]


@contextlib.contextmanager
def learning(folder: Path, words: Sequence[str]) -> Iterator[tuple[LearningRobot, str]]:
    """A run, and the address of its console."""
    output, words = folder / "output.txt", [*_RUN, *words]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.cli", "learn", *words, f"runs={folder}"],
            stdout=file, stderr=subprocess.STDOUT, env=clean_environ({"OMP_NUM_THREADS": "1"}),
        )  # fmt: skip
    try:
        robot = LearningRobot(process, words)
        wait_for(lambda: process.poll() is not None or _address(output), _START_SECONDS)
        assert process.poll() is None, output.read_text()
        yield robot, _address(output)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60.0)


def _address(output: Path) -> str:
    found = re.findall(r"console +(http://\S+)\n", output.read_text())
    return found[-1] if found else ""


def press(page: Page, kind: str, key: str, shift: bool = False) -> float:
    """Time of an event that the page makes itself, clock of the loop [s].

    Args:
        kind: `keydown`, `keyup` or `click`.
        key: Code of the key, or test id of the button.
    """
    offset = time.time() - time.monotonic()
    return page.evaluate(_PRESS, [kind, key, shift]) / 1000 - offset


def become_operator(page: Page) -> None:
    """Have the lock and the stick, also where a stall of the machine has cost them."""
    end = time.monotonic() + _START_SECONDS
    while not page.get_by_test_id("operator-release").is_visible():
        assert time.monotonic() < end, "the page does not become operator"
        page.evaluate("() => document.querySelector('[data-testid=operator-acquire]').click()")
        page.wait_for_timeout(1000)
    page.wait_for_function("() => window.consoleProbe.state().stick.present")


def stop_time(page: Page, robot: LearningRobot, trial: int) -> float | None:
    """From the press of the button to the tick that stops, and damps the motors [s]."""
    robot.in_policy()
    time.sleep(0.1)
    began = press(page, "click", "stop")
    return _since(began, robot.until(lambda tick: tick.safety is SafetyState.ESTOP))


def take_over_time(page: Page, robot: LearningRobot, trial: int) -> float | None:
    """From the key to the first tick that no longer follows the policy [s]."""
    robot.in_policy()
    become_operator(page)
    time.sleep(0.1)
    began = press(page, "keydown", "KeyT")
    return _since(began, robot.until(lambda tick: tick.safety is SafetyState.HUMAN))


def stick_time(page: Page, robot: LearningRobot, trial: int) -> float | None:
    """From an arrow key to the first tick whose target has moved [s]: left and right by turns."""
    if robot.tick.safety is not SafetyState.HUMAN and take_over_time(page, robot, 0) is None:
        return None
    key = ("ArrowLeft", "ArrowRight")[trial % 2]
    press(page, "keydown", "ShiftLeft", shift=True)
    time.sleep(0.7)  # the blend is over, and the target stands
    start = robot.tick
    if start.safety is not SafetyState.HUMAN or not isinstance(start.setpoint, PoseCommand):
        return None
    place = np.array(start.setpoint.position_w)

    def moved(tick: Executed) -> bool:
        one = tick.setpoint
        return isinstance(one, PoseCommand) and bool(abs(one.position_w - place).max() > _MOVED)

    # Not in step with the page's timer.
    if robot.until(moved, 0.1 * (1 + trial * 0.618 % 1)) is not None:
        return None
    began = press(page, "keydown", key, shift=True)
    end = robot.until(moved)
    press(page, "keyup", key, shift=True)
    return _since(began, end)


def _since(began: float, end: float | None) -> float | None:
    return None if end is None else end - began


def measured(
    page: Page, robot: LearningRobot, trials: int
) -> Iterator[tuple[str, list[float]]]:  # fmt: skip
    """Times of all trials [ms], and of each case as soon as it is done."""
    cases: dict[str, Callable[[Page, LearningRobot, int], float | None]] = {
        "stick -> target of the robot": stick_time,
        "take-over key -> policy no longer acts": take_over_time,
        "stop click -> damping command": stop_time,
    }
    ages: list[float] = []
    for name, measure in cases.items():
        found, missed = list[float](), 0
        while len(found) < trials:
            value = measure(page, robot, len(found))
            missed = missed + 1 if value is None else 0
            assert missed < _MOST_MISSED, f"{name}: {missed} trials in a row came to nothing"
            found += [] if value is None else [1000 * value]
            ages += page.evaluate("() => window.consoleProbe.ages.splice(0)")
        yield name, found
    yield "age of a picture when drawn", ages


def main(trials: int, words: Sequence[str], say: Callable[[str], object] = print) -> None:
    """Measure and print percentiles [ms]."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        robot, address = stack.enter_context(learning(folder, words))
        engine = stack.enter_context(sync_playwright())
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(address)
        robot.in_policy()
        become_operator(page)
        say(f"load average {os.getloadavg()[0]:.1f}")
        for what, values in measured(page, robot, trials):
            p50, p99 = np.percentile(values, [50, 99]) if values else (np.nan, np.nan)
            line = {"n": len(values), "p50": p50, "p99": p99, "max": max(values, default=np.nan)}
            shown = json.dumps({key: round(one, 1) for key, one in line.items()})
            say(f"{what:40} {shown}")
        say(f"load average {os.getloadavg()[0]:.1f}")
        browser.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30, sys.argv[2:])
