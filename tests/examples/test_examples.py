"""The examples run, one after another, in an empty folder."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from robot_rl.core.process import clean_environ

ROOT = Path(__file__).resolve().parents[2]
ON_A_ROBOT = ("run_bundle", "deploy_without_ros")
"""Need no torch: run in processes of their own, which would notice it."""
WITH_ROS = ("ros2_robot_node", "ros2_simulated_robot")
"""Need ROS 2: tests/robot_rl/cli/test_ros2_robot_node.py and learning/test_ros_robot.py there."""


@pytest.mark.slow
def test_examples_run_in_the_order_of_the_readme(tmp_path, monkeypatch, capsys):
    rows = re.findall(r"^\| `(\w+)\.py`", (ROOT / "examples/README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
    monkeypatch.chdir(tmp_path)
    for name in rows:
        if name in WITH_ROS:
            continue
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_policy", "compare_settings"])
def test_notebooks_run_and_show_their_progress(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # none is committed
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=place).execute()
    shown = json.dumps([output for cell in notebook.cells for output in cell.get("outputs", ())])
    assert "image/png" in shown
    if name == "first_policy":
        assert '<progress value=\\"1.0000\\"' in shown
        assert "finished 4.80k steps" in shown
