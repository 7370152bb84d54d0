"""docs/parts.md: a robot, a task, a reward term and a learner take the places it names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.core.process import clean_environ
from tests.robot_rl.cli.tiny_run import TINY

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("robot_rl", "policies", "sim", "hardware", "configs")


class House:
    """A copy of the packages, and which of its files were touched."""

    def __init__(self, folder: Path) -> None:
        """Link every file."""
        self.folder = folder
        self.touched: set[str] = set()
        ignore = shutil.ignore_patterns("__pycache__")
        for name in PRODUCT:
            shutil.copytree(ROOT / name, folder / name, ignore=ignore, copy_function=os.symlink)

    def read(self, path: str) -> str:
        return (self.folder / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        (self.folder / path).unlink(missing_ok=True)  # a link
        (self.folder / path).write_text(text, encoding="utf-8")
        self.touched.add(path)

    def copy(self, path: str, to: str, **words: str) -> None:
        """Copy a file with other words in it."""
        text = self.read(path)
        for old, new in words.items():
            assert old in text
            text = re.sub(rf"(?<!\w){re.escape(old)}", lambda _, new=new: new, text)
        self.write(to, text)

    def register(self, group: str, name: str, module: str, classes: tuple[str, str]) -> None:
        """Add the line to the schemas, and its import."""
        text = self.read("configs/schema.py")
        line = f'    Component("{group}", "{name}", {", ".join(classes)}),\n'
        text = text.replace("COMPONENTS = (\n", f"COMPONENTS = (\n{line}", 1)
        last = text.index("from sim.tasks.")
        text = f"{text[:last]}from {module} import {', '.join(classes)}\n{text[last:]}"
        self.write("configs/schema.py", text)


def places(section: str) -> set[str]:
    """Files that a section of the page names, and folders of those that it takes as examples."""
    page = (ROOT / "docs/parts.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    paths = re.findall(rf"`((?:{'|'.join(PRODUCT)})/[^`]*)`", text)
    return {place for path in paths for place in (path, str(Path(path).parent))}


def told(house: House, section: str) -> bool:
    """True if the page names every place that was touched; forgets them."""
    touched, house.touched = house.touched, set()
    known = places(section)
    return all(path in known or str(Path(path).parent) in known for path in touched)


@pytest.mark.slow
def test_one_of_each_is_added_in_the_places_that_the_page_names(tmp_path: Path) -> None:
    house = House(tmp_path / "house")

    house.copy("configs/robot/crazyflie.yaml", "configs/robot/dragonfly.yaml",
               crazyflie="dragonfly")  # fmt: skip
    assert told(house, "A robot")

    house.copy("sim/tasks/flights/hover.py", "sim/tasks/flights/linger.py", Hover="Linger")
    house.copy("configs/task/hover.yaml", "configs/task/linger.yaml", hover_schema="linger_schema")
    house.register("task", "linger", "sim.tasks.flights.linger", ("LingerConfig", "LingerTask"))
    assert told(house, "A task")

    house.copy(
        "sim/tasks/flights/linger.py", "sim/tasks/flights/linger.py",
        **{"            reward_terms=terms,":
           '            reward_terms={**terms, "height": true_state.position_w[:, 2].abs()},'},
    )  # fmt: skip
    house.copy("configs/task/linger.yaml", "configs/task/linger.yaml",
               **{"initial: {": "initial: {height: -0.1, "})  # fmt: skip
    assert told(house, "A reward term")

    house.copy("robot_rl/learners/td3.py", "robot_rl/learners/mine.py", TD3="Mine")
    house.write("configs/learner/mine.yaml", "# Mine.\ndefaults:\n  - mine_schema\n  - _self_\n")
    house.register("learner", "mine", "robot_rl.learners.mine", ("MineConfig", "Mine"))
    assert told(house, "A learner")

    done = subprocess.run(
        [sys.executable, "-m", "robot_rl.cli", "train", "task=linger", "robot=dragonfly",
         "learner=mine", *TINY],
        env=clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(house.folder)}),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.endswith("linger_dragonfly_mine_s0")
    # Weights and terms meet by name: without its term the weight would have been refused.
    assert "height: -0.1" in (run / "config.yaml").read_text(encoding="utf-8")
    assert "dragonfly" in (run / "bundle/spec.json").read_text(encoding="utf-8")
