"""Runs to which something happens: what was announced as saved is there, and the run goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

from robot_rl.training.runs.run_folder import RunFolder, RunState
from tests.robot_rl.cli.interrupted_runs import ENDING, INTERVAL, TRAINING, Result, ways
from tests.robot_rl.cli.tiny_run import assert_equal_ends, python

SAVED = "everything is saved; resume with: robot-rl train resume="
EVERY = 16
"""Of the ways that are tried where not all are."""


def tried(tmp_path: Path, every: int, first: int) -> tuple[Path, list[Result]]:
    script = Path(__file__).with_name("interrupted_runs.py")
    done = python(str(script), str(tmp_path), str(every), str(first), timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    return Path(report["whole"]), [Result(**one) for one in report["results"]]


def wrong(result: Result, whole: Path) -> list[str]:
    """Facts that are not as they should be."""
    run, found = Path(result.run), list[str]()
    if result.code != result.wanted:
        found.append(f"exit code {result.code} instead of {result.wanted}")
    if "Traceback" in result.said + result.then:
        found.append("a traceback")
    if result.resumed != 0:
        found.append(f"going on ended with {result.resumed}")
    if RunFolder.open(run).status().state is not RunState.FINISHED:
        found.append("it did not finish")
    if result.steps != sorted(set(result.steps)) or result.steps[-1:] != [4 * INTERVAL]:
        found.append(f"metrics of the steps {result.steps}")
    moment = result.name.partition(" while ")[2]
    stopped = moment in TRAINING and result.code > 0 and "twice" not in result.name
    if stopped and SAVED not in result.said:
        found.append("nothing was announced as saved")
    if moment in ENDING and not (run / "bundle" / "spec.json").is_file():
        found.append("there is no bundle")
    if SAVED in result.said:  # then the newest checkpoint is the step at which it stopped
        found += [] if f"goes on from step {_count(result.saved)}" in result.then or (
            result.saved == 4 * INTERVAL
        ) else ["it did not go on from what was saved"]  # fmt: skip
    try:
        assert_equal_ends(run, whole)
    except AssertionError as error:
        found.append(f"another end than the whole run: {error}")
    return found


def _count(step: int) -> str:
    return f"{step / 1000:.2f}k" if step >= 1000 else str(step)


def test_there_are_sixty_ways_and_no_two_are_the_same():
    names = [way.name for way in ways()]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.timeout(1600)
@pytest.mark.parametrize(
    ("every", "first"), [(EVERY, 5), pytest.param(1, 0, marks=pytest.mark.full)]
)
def test_whatever_happens_to_a_run_it_goes_on_to_the_same_end(every, first, tmp_path):
    whole, results = tried(tmp_path, every, first)
    assert len(results) >= len(list(ways())) // every
    assert {one.name: found for one in results if (found := wrong(one, whole))} == {}
