"""What is shipped, what is pinned, and that the set-up asks for both."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from robot_rl.core.process import PACKAGES, clean_environ
from tests.robot_rl.cli.tiny_run import TINY

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BASE = PROJECT["project"]["dependencies"]
TEMPLATE = "project_template"
"""Folder of the project that `robot-rl new project` writes."""
EXTRAS = PROJECT["project"]["optional-dependencies"]


def normal(requirement):
    """Name of the package that a requirement asks for, spelt as package indexes compare it."""
    name = re.match(r"[\w.-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def pins():
    lines = [
        line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()
    ]
    return [line for line in lines if line]


def test_torch_is_pinned_first_and_torchvision_never_asked_for():
    assert pins()[0] == "torch==2.13.0"
    everything = [line for lines in (BASE, *EXTRAS.values()) for line in lines]
    assert "torchvision" not in {normal(line) for line in everything + pins()}


@pytest.mark.parametrize("extra", ["base", *EXTRAS])
def test_every_direct_dependency_is_pinned(extra):
    asked = BASE if extra == "base" else EXTRAS[extra]
    pinned = {normal(line) for line in pins()}
    assert {normal(line) for line in asked} - pinned == set()
    assert all("==" in line for line in pins())
    assert extra == "ros2" or not any(normal(line).startswith("ros-") for line in asked)


def test_a_robot_computer_is_not_asked_to_install_torch():
    base = {normal(line) for line in BASE}
    assert base == {"numpy", "array-api-compat", "onnxruntime"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of what it is made of."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # setuptools leaves its build folder there
    source.mkdir()
    for name in (*PACKAGES, "scripts", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    reply = subprocess.run(
        [*command, source], env=clean_environ(), capture_output=True, text=True, timeout=120
    )
    assert reply.returncode == 0, reply.stdout + reply.stderr
    (path,) = folder.glob("robot_rl-*.whl")
    return path


@pytest.mark.slow
def test_wheel_ships_the_five_packages_with_their_files_and_nothing_else(wheel):
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in shipped} == set(PACKAGES)
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (
            path.suffix
            in {".py", ".pyi", ".cpp", ".h", ".yaml", ".xml", ".html", ".css", ".js", ".svg"}
            or path.name in {"py.typed", "README.md"}
            or path.parent.name in {"resource", "scripts"}  # of the package for colcon
            or path.parent.name == TEMPLATE
            or path.parent.parent.name == "zoo"  # policies that ship
        )
    }
    assert wanted - shipped == set()
    assert shipped - wanted == set()


@pytest.mark.slow
def test_wheel_trains_from_any_folder_without_the_repository(wheel, tmp_path):
    """Unpacked instead of installed: the packages it needs are those of this environment."""
    installed, here = tmp_path / "installed", tmp_path / "here"
    zipfile.ZipFile(wheel).extractall(installed)
    here.mkdir()
    (dist_info,) = installed.glob("*.dist-info")
    assert "robot-rl = robot_rl.cli.main:main" in (dist_info / "entry_points.txt").read_text()
    run = "import robot_rl; print(robot_rl.__file__); from robot_rl.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", run, "train", *TINY], cwd=here, capture_output=True,
        text=True, timeout=240, env=clean_environ({"PYTHONPATH": str(installed)}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))
    (path,) = (here / "runs").iterdir()
    assert (path / "bundle" / "spec.json").is_file()
    assert f"robot-rl evaluate run=runs/{path.name}" in done.stdout


REPOSITORY_ONLY = re.compile(
    r"\bscripts[/.]\w|\bdocs/|\btests/|(?<![\w.])configs/|\.md\b"
    r"|\bmake (train|setup|test|adapters|bench|proof|race)\b"
)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_message_names_a_file_that_only_the_repository_has(package):
    """Docstrings may: who reads them has the source."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        if path.relative_to(ROOT).as_posix() == "robot_rl/cli/new.py":
            continue  # what it writes has a Makefile of its own
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):  # docstrings of modules, classes, functions and fields
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = None
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for match in REPOSITORY_ONLY.finditer(node.value):
                    found[f"{path.relative_to(ROOT)}:{node.lineno}"] = match[0]
    assert found == {}


def test_make_does_without_a_sourced_ros(tmp_path):
    """Its plug-ins of pytest end each call, and its libraries are not those of .venv's rclpy."""
    asking = tmp_path / "asking.mk"
    asking.write_text(f"include {ROOT}/Makefile\nseen:\n\t@env\n")
    sourced = {
        "PYTHONPATH": "/opt/ros/jazzy/lib/python3.12/site-packages",
        "AMENT_PREFIX_PATH": "/opt/ros/jazzy",
        "LD_LIBRARY_PATH": "/opt/ros/jazzy/lib:/usr/local/cuda/lib64",
    }
    done = subprocess.run(
        ["make", "-C", ROOT, "-f", asking, "seen"],
        env=clean_environ(sourced), capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert not {"PYTHONPATH", "AMENT_PREFIX_PATH"} & set(seen)
    assert seen["LD_LIBRARY_PATH"] == "/usr/local/cuda/lib64"
