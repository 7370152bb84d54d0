"""The examples run, one after another, in an empty folder."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.core.process import clean_environ

ROOT = Path(__file__).resolve().parents[2]
ON_A_ROBOT = ("run_bundle", "deploy_without_ros")
"""Need no torch: run in processes of their own, which would notice it."""
STORY = (
    "train", "evaluate", *ON_A_ROBOT, "reward_term", "cameras", "custom_task", "custom_learner",
)  # fmt: skip
WITH_ROS = "ros2_robot_node"
"""Needs ROS 2: tests/robot_rl/cli/test_ros2_robot_node.py."""


@pytest.mark.slow
def test_examples_run_in_the_order_of_the_readme(tmp_path, monkeypatch, capsys):
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert examples == {*STORY, WITH_ROS}
    monkeypatch.chdir(tmp_path)
    for name in STORY:
        path = str(ROOT / "examples" / f"{name}.py")
        if name in ON_A_ROBOT:
            environ = clean_environ({"PYTHONPATH": str(ROOT)})
            done = subprocess.run(
                [sys.executable, path], env=environ, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout
            continue
        code = None
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        assert not code, name
        assert capsys.readouterr().out, name
