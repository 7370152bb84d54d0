"""What a run records of its origin."""

import json
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from robot_rl.training.runs.provenance import collect_provenance, config_hash, git_state, plain


class Colour(Enum):
    red = 1


@dataclass
class Part:
    sizes: tuple[int, ...] = (1, 2)
    colour: Colour = Colour.red


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_hash_does_not_depend_on_the_order_of_keys():
    a = {"x": 1, "y": {"a": 0.1, "b": [1, 2]}}
    assert config_hash(a) == config_hash({"y": {"b": [1, 2], "a": 0.1}, "x": 1})
    # The digest of '{"x":1}': it must stay the same between versions of this program.
    known = "5041bf1f713df204784353e82f6a4a535931cb64f1f4b4a5aeaffcb720918b22"
    assert config_hash({"x": 1}) == known


def test_a_configuration_becomes_plain():
    found = plain({"part": Part(), "path": Path("a/b"), 3: np.float64(0.5), "n": None})
    assert found == {"part": {"sizes": [1, 2], "colour": "red"}, "path": "a/b", "3": 0.5, "n": None}
    assert type(found["3"]) is float
    with pytest.raises(TypeError, match="object"):
        plain({"x": object()})


def test_git_state_knows_commits_changes_and_folders_outside(tmp_path, monkeypatch):
    found = collect_provenance({"x": 1}, seed=7, device="cpu")
    assert json.loads(json.dumps(found)) == found
    assert found["config_sha256"] == config_hash({"x": 1})
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    git(tmp_path, "init")
    assert git_state(tmp_path) is None  # nothing committed yet
    (tmp_path / "a").write_text("1")
    (tmp_path / ".gitignore").write_text("env\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    state = git_state(tmp_path)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "a").write_text("2")
    changed = git_state(tmp_path)
    assert changed is not None
    assert changed["dirty"] is True
    (tmp_path / "env").mkdir()
    assert git_state(tmp_path / "env") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None  # git is missing
