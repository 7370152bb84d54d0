"""Folders of a user's project that are called as our packages: passed by, or refused in words."""

import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.core.process import PACKAGES, clean_environ

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
EDITABLE = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in {packages}:
            folder = "{root}/" + name
            return spec_from_file_location(
                name, folder + "/__init__.py", submodule_search_locations=[folder]
            )

sys.meta_path[:] = [one for one in sys.meta_path if "Editable" not in repr(one)]
sys.meta_path.append(Finder)
"""
"""Finds our packages last, as an editable installation by setuptools does."""
API = "import robot_rl; print(robot_rl.make_env('task=hover', num_envs=3).spec.num_envs)"
TREES = {
    "folders of files": [f"{name}/task/mine.yaml" for name in PACKAGES[1:]],
    "folders of modules": ["sim/mine.py", "policies/mine.py", "configs/task.yaml"],
    "packages": [f"{name}/__init__.py" for name in (*PACKAGES[1:], "scripts")],
    "a module": ["sim.py", "configs/task.yaml"],
}


@pytest.fixture(scope="module", params=["editable", "installed"])
def installed(request, tmp_path_factory):
    """Folder to put on PYTHONPATH."""
    folder = tmp_path_factory.mktemp("site")
    if request.param == "editable":
        text = EDITABLE.format(packages=PACKAGES, root=ROOT)
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    else:
        text = EDITABLE.format(packages=(), root=ROOT)
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        for name in PACKAGES:
            (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(params=TREES)
def project(request, tmp_path):
    """A folder of a user that has such folders."""
    for name in TREES[request.param]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return request.param, tmp_path


def run(installed: Path, here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=here, capture_output=True, text=True, timeout=300,
        env=clean_environ({"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}),
    )  # fmt: skip


def test_command_passes_them_by(installed, project):
    _, here = project
    done = run(installed, here, "-m", "robot_rl.cli", "train", "task=hover", "--cfg", "job")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("schemas:")


def test_program_uses_files_and_refuses_modules_in_words(installed, project):
    kind, here = project
    done = run(installed, here, "-c", API)
    if kind == "folders of files":
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
        return
    if kind == "folders of modules" and installed_plainly(installed):
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr  # a package comes first
        return
    told = done.stderr.splitlines()[-1]
    assert told.startswith("robot_rl.core.process.InstallationError: ")
    assert f"{here / 'sim'}" in told
    assert "would be imported in the place of robot_rl's own" in told
    assert "rename yours" in told


def installed_plainly(folder: Path) -> bool:
    return (folder / "robot_rl").exists()


def test_program_whose_own_module_came_first_is_refused(installed, tmp_path):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "__init__.py").write_text("")
    done = run(installed, tmp_path, "-c", f"import sim; {API}")
    assert "own sim, which lies in" in done.stderr.splitlines()[-1]
