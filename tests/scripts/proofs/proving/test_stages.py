"""Stages before the trainings of a proof: done once, whole or not at all, and failures are told."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from robot_rl.datasets.files.manifest import MANIFEST
from scripts.proofs.proving import stages


def write_set(folder: Path) -> None:
    (folder / MANIFEST).parent.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).touch()


def test_a_script_that_fails_is_named_with_its_exit_code(monkeypatch):
    monkeypatch.setattr(stages.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=3))
    with pytest.raises(Exception, match=r"robot-rl data convert a b ended with exit code 3"):
        stages.call("data", "convert", "a", "b")


def test_a_collection_of_several_kinds_goes_on_with_the_one_that_was_stopped(monkeypatch, tmp_path):
    folder, called = tmp_path / "mixed", []

    def call(script: str, *arguments: str) -> None:
        called.append(arguments[-1])
        write_set(tmp_path / "mixed_partial")
        if len(called) == 2:
            raise KeyboardInterrupt

    def collect() -> None:
        stages.collect_once(folder, ("seed=1",), ("seed=2",), ("seed=3",))

    monkeypatch.setattr(stages, "call", call)
    with pytest.raises(KeyboardInterrupt):
        collect()
    assert not folder.exists()
    collect()
    collect()  # nothing is left to do
    # collect.py itself finds the first kind whole.
    assert called == ["seed=1", "seed=2", "seed=1", "seed=2", "seed=3"]
    assert folder.is_dir()


def test_a_collection_of_another_mixture_is_not_taken_for_this_one(monkeypatch, tmp_path):
    folder = tmp_path / "peg"

    def call(script: str, *arguments: str) -> None:
        write_set(tmp_path / "peg_partial")
        if stopped:
            raise KeyboardInterrupt

    monkeypatch.setattr(stages, "call", call)
    stopped = True
    with pytest.raises(KeyboardInterrupt):
        stages.collect_once(folder, ("episodes=3",))
    stopped = False
    with pytest.raises(Exception, match=r"episodes=3\nand is now asked for by\nepisodes=4"):
        stages.collect_once(folder, ("episodes=4",))
    stages.collect_once(folder, ("episodes=3",))
    with pytest.raises(Exception, match=r"remove peg\* there"):
        stages.collect_once(folder, ("episodes=3",), ("seed=1",))
    (tmp_path / "peg.collected").unlink()  # sets of before did not tell
    stages.collect_once(folder, ("episodes=4",))
