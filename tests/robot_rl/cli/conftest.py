"""The commands, called as from a shell but in this process."""

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from hardware.control.ipc import remove_dead_channel
from hardware.control.request_socket import remove_dead_socket
from robot_rl.cli.main import main
from robot_rl.training.collector import Collector
from scripts.bench.deployment.scripted import write_standing_policy
from tests.robot_rl.cli.deployments import left_behind
from tests.robot_rl.cli.tiny_run import TINY, output_of


class Answer(NamedTuple):
    """Output of a command."""

    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def command(capsys) -> Command:
    """Run a command: `command("train", "seed=1")`, or a module by its dotted name.

    It must end with the exit code `exits`, 0 unless another is named.
    """

    def run(name: str, *arguments: str, exits: int = 0) -> Answer:
        code = 0
        try:
            if "." in name:
                importlib.import_module(name).main(list(arguments))
            else:
                main([name, *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        answer = Answer(*capsys.readouterr())
        assert code == exits, answer
        return answer

    return run


@pytest.fixture
def train_only(command) -> Callable[..., Answer]:
    """Train without the pictures and the bundle that follow, and take seconds."""

    def run(*arguments: str, exits: int = 0) -> Answer:
        session = importlib.import_module("robot_rl.cli.session")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "report_outcome", lambda *_: {})
            return command("train", *arguments, exits=exits)

    return run


@pytest.fixture
def refused(command) -> Callable[..., str]:
    """Run a command that must end with one sentence and exit code 2; returns the sentence."""

    def run(name: str, *arguments: str) -> str:
        told = command(name, *arguments, exits=2).err
        assert told.startswith("error: ")
        assert told.count("\n") == 1
        return told

    return run


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to be in; runs go to `runs` below it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> tuple[Path, str]:
    """A finished run with everything that training leaves, and its output; made once."""
    root = tmp_path_factory.mktemp("finished")
    said = output_of("train", *TINY, f"runs={root}")
    return next(root.iterdir()), said


@pytest.fixture(scope="session")
def finished_run(finished) -> Path:
    return finished[0]


@pytest.fixture
def at_collect(monkeypatch) -> Callable[[int, Callable[[], object]], None]:
    """Call a function once, before a given step of a run: `at_collect(step, function)`."""

    def install(step: int, function: Callable[[], object]) -> None:
        act, done = Collector.act, []

        def wrapped(self: Collector) -> Tensor:
            if self.env_steps >= step and not done:
                done.append(step)
                function()
            return act(self)

        monkeypatch.setattr(Collector, "act", wrapped)

    return install


@pytest.fixture
def run(finished_run, here) -> Path:
    """A copy of the finished run, in `runs/one`."""
    return Path(shutil.copytree(finished_run, "runs/one"))


@pytest.fixture(scope="session")
def go2_bundle(tmp_path_factory) -> Path:
    """A policy that lets a go2 stand, with the configuration that it would have been trained in."""
    return write_standing_policy(tmp_path_factory.mktemp("go2") / "bundle")


@pytest.fixture(scope="session")
def domain(domain: int) -> int:
    """A ROS domain of this test process alone, in which no killed test has left anything."""
    for name in left_behind(domain):
        channel = name.removeprefix("robot_rl.")
        remove_dead_channel(channel)
        remove_dead_socket(channel)
    return domain
