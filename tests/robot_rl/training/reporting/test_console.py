"""What a person sees while training: aligned lines, and plain ones where there is no screen."""

import errno
import io
import logging
import math
import re

import pytest

from robot_rl.training.reporting.console import (
    Console,
)

RECORD = {
    "step": 1_024_000,
    "seconds": 12.4,
    "time/steps_per_second": 85_321.0,
    "time/collect_fraction": 0.31,
    "time/learn_fraction": 0.66,
    "rollout/return": 412.34,
    "rollout/success": 0.875,
    "train/critic_loss": 0.0123,
    "train/actor_loss": -1.234,
    "train/temperature": 4.5e-5,
}

EXPECTED = """\
hover - crazyflie - sac - seed 1
  steps    time steps/s collect/learn     ETA   return success   critic    actor     temp
  1.02M    0:12   85.3k     31% / 66%    0:36      412   87.5%   0.0123    -1.23  4.5e-05
        evaluation: success 93.0%, return 1.2e+05
  2.05M    0:25   82.6k         - / -    0:24        -       -        -        -        -
warning: a disk is slow

finished 4.00M steps in 0:49
  success  97.2%
  run      runs/x
"""


class Screen(io.StringIO):
    def isatty(self):
        return True


def drive(console):
    console.start(4_000_000, 0, "hover - crazyflie - sac - seed 1")
    console.interval({**RECORD, "eval/success": 0.93, "eval/return": 123_456.0})
    console.interval({"step": 2_048_000, "seconds": 24.8})
    handler = console.log_handler()
    handler.handle(logging.makeLogRecord({"msg": "a disk is slow", "levelname": "WARNING"}))
    console.finish("finished 4.00M steps in 0:49", {"success": "97.2%", "run": "runs/x"})


def test_without_a_terminal_there_are_plain_aligned_lines_of_a_hundred_columns():
    stream, quiet = io.StringIO(), io.StringIO()
    drive(Console(stream=stream))
    drive(Console(stream=quiet, quiet=True))
    assert (stream.getvalue(), quiet.getvalue()) == (EXPECTED, "")


def test_on_a_terminal_the_same_lines_stand_above_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Screen()
    with Console(stream=stream) as console:
        drive(console)
    shown = stream.getvalue()
    assert "\x1b[?25l" in shown  # the bar hides the cursor
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # and gives it back
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    for line in EXPECTED.splitlines():
        assert line in text


def test_a_resumed_run_measures_its_own_session():
    stream = io.StringIO()
    console = Console(stream=stream)
    console.start(4000, 2000, "title", start_seconds=100.0)
    console.interval({"step": 3000, "seconds": 110.0})
    lines = stream.getvalue().splitlines()
    assert lines[1] == "goes on from step 2.00k of 4.00k"
    assert lines[3].split()[:6] == ["3.00k", "1:50", "100", "-", "/", "-"]
    assert lines[3].split()[6] == "0:10"


@pytest.mark.parametrize(("is_terminal", "error"), [(False, errno.EPIPE), (True, errno.EIO)])
def test_training_goes_on_in_silence_when_the_reader_has_gone(monkeypatch, is_terminal, error):
    class Closed(io.StringIO):
        def isatty(self):
            return is_terminal

        def write(self, text):
            raise OSError(error, "gone")

    monkeypatch.setenv("TERM", "xterm")
    with Console(stream=Closed()) as console:
        drive(console)


def test_an_evaluation_names_nothing_that_no_episode_measured():
    stream = io.StringIO()
    Console(stream=stream).interval({**RECORD, "eval/success": 0.0, "eval/distance": math.nan})
    assert stream.getvalue().splitlines()[-1].strip() == "evaluation: success 0.0%"


def test_an_evaluation_under_changes_has_a_line_for_them_the_worst_first():
    stream = io.StringIO()
    values = {"mass": 0.98, "delay": 0.5, "force": 0.7, "thrust": 0.9, "lag": 0.8}
    found = {f"eval/{name}/success": value for name, value in values.items()}
    console = Console(stream=stream)
    console.interval({**RECORD, "eval/success": 0.99, "eval/worst_success": 0.5, **found})
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines[-2:] == [
        "evaluation: success 99.0%, worst_success 50.0%",
        "changed: delay 50.0%, force 70.0%, lag 80.0%, thrust 90.0%, 1 more",
    ]
