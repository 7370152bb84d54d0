"""The examples run, one after another, in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.core.process import clean_environ

ROOT = Path(__file__).resolve().parents[2]
STORY = ("train", "evaluate", "run_bundle")


@pytest.mark.slow
def test_examples_run_in_the_order_of_the_readme(tmp_path):
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(STORY)
    for name in STORY:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / f"{name}.py")], cwd=tmp_path,
            capture_output=True, text=True, timeout=240,
            env=clean_environ({"PYTHONPATH": str(ROOT)}),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout
