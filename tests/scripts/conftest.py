"""The commands, called as from a shell but in this process."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scripts.standing_policy import write_standing_policy
from tests.scripts.tiny_run import SCRIPTS, TINY


@dataclass(frozen=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def command(monkeypatch, capsys) -> Command:
    """Run a command: `command("train", "seed=1")`."""
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def run(name: str, *arguments: str) -> Answer:
        code = 0
        try:
            importlib.import_module(name).main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(command) -> Callable[..., str]:
    """Run a command that must end with one sentence and exit code 2; returns the sentence."""

    def run(name: str, *arguments: str) -> str:
        answer = command(name, *arguments)
        assert answer.code == 2, answer
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1
        return answer.err

    return run


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to be in; runs go to `runs` below it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Path:
    """A finished run with everything that training leaves, made once."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        with pytest.raises(SystemExit) as ended:
            importlib.import_module("train").main([*TINY, f"runs={root}"])
    assert not ended.value.code
    return next(root.iterdir())


@pytest.fixture(scope="session")
def go2_bundle(tmp_path_factory) -> Path:
    """A policy that lets a go2 stand, with the configuration that it would have been trained in."""
    return write_standing_policy(tmp_path_factory.mktemp("go2") / "bundle")


@pytest.fixture
def domain(worker_id: str) -> int:
    """A ROS domain of this test process; others of these tests take other ones."""
    number = int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 0
    return 82 + number % 10
