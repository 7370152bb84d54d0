"""Times of the console on this machine: `python -m tests.hardware.console.measure [trials]`.

A browser, the console and a robot process with a fake driver at 250 Hz run on this machine. A key
or a click is a page's event, and its end is the time of the robot's tick that answered it.
"""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from hardware.control.safety import Condition, SafetyState
from tests.hardware.console.conftest import CHROMIUM, FLAGS, Stage
from tests.hardware.console.running import new_name, robot_process, wait_for

_PRESS = """([key, kind]) => {
  const at = performance.timeOrigin + performance.now();
  if (kind === 'key') dispatchEvent(new KeyboardEvent('keydown', { code: key, key }));
  else {
    const found = document.querySelector(`[data-testid=${key}]`);
    found.dispatchEvent(new PointerEvent('pointerdown'));
  }
  return at;
}"""


def press(page: Page, key: str, kind: str = "key") -> float:
    """Time of a press that the page makes itself, clock of the loop [s]."""
    offset = time.time() - time.monotonic()
    return page.evaluate(_PRESS, [key, kind]) / 1000 - offset


def state_time(stage: Stage, safety: SafetyState) -> float:
    """Time of the tick that brought a state [s]; the status may be a tick later."""
    wait_for(lambda: stage.status.safety is safety)
    status = stage.status.newest()
    assert status is not None
    return status.time


def stop_time(page: Page, stage: Stage) -> float:
    """From the press of the button to the tick that stops [s]."""
    stage.in_policy()
    time.sleep(0.1)
    began = press(page, "stop", "click")
    return state_time(stage, SafetyState.ESTOP) - began


def take_over_time(page: Page, stage: Stage) -> float:
    """From the key to the first tick that no longer follows the policy [s]."""
    stage.in_policy()
    page.wait_for_function("() => window.consoleProbe.state().stick.present")
    time.sleep(0.1)
    began = press(page, "KeyT")
    end = state_time(stage, SafetyState.HUMAN) - began
    stage.ask(Condition.HOLD)
    stage.until(SafetyState.HOLD)
    return end


def label_time(page: Page, stage: Stage) -> float:
    """From the key to the actor, which looks 20 times a second [s]."""
    before = len(stage.actor.commands)
    began = press(page, "KeyF")
    wait_for(lambda: len(stage.actor.commands) > before)
    return time.monotonic() - began


def main(trials: int) -> None:
    """Measure and print percentiles [ms]."""
    found: dict[str, list[float]] = {}
    cases: dict[str, Callable[[Page, Stage], float]] = {
        "stop click -> safe command": stop_time,
        "take-over key -> policy no longer acts": take_over_time,
        "label key -> actor": label_time,
    }
    with contextlib.ExitStack() as stack:
        name = new_name()
        status = stack.enter_context(robot_process(name))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stage = Stage(name, status, folder, stack)
        engine = stack.enter_context(sync_playwright())
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(stage.new_url())
        page.get_by_test_id("operator-acquire").click()
        page.get_by_test_id("operator-release").wait_for()
        for what, measure in cases.items():
            found[what] = [1000 * measure(page, stage) for _ in range(trials)]
        page.evaluate("() => { window.consoleProbe.ages.length = 0; }")
        time.sleep(10)
        found["video, age when drawn"] = page.evaluate("() => window.consoleProbe.ages")
        browser.close()
    for what, values in found.items():
        p50, p99 = np.percentile(values, [50, 99])
        line = {"n": len(values), "p50": p50, "p99": p99, "max": max(values)}
        shown = json.dumps({key: round(one, 1) for key, one in line.items()})
        sys.stdout.write(f"{what:40} {shown}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
