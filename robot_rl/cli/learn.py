"""Learning on a robot: `robot-rl learn task=reach`; `--help` lists the choices."""

import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.core.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from configs.schema import RunConfig
    from robot_rl.cli.learning.options import LearnOptions
    from robot_rl.training.runs.run_folder import RunFolder

HELP = """Learns on a robot while it works: off-policy, with demonstrations and help by persons.

usage: robot-rl learn [group=name ...] [field=value ...]
       robot-rl learn run=runs/<run> [field=value ...]

task:  {tasks}
robot: {robots}

options:
  run=             folder of a run to go on with, or latest; a new run if empty
  role=all         all: learner and robot on this computer; learner or robot: that part alone
  driver=sim       robot that is learned on: sim, a simulated one in real time
  address=         of the learner: where it listens, or where the robot finds it;
                   127.0.0.1:50151 if empty, any free port with role=all
  name=robot       name of the robot; several at one learner need different ones
  pace=true        false lets a simulated robot step as fast as it can
  token_file=      file with a word that both sides know; needed beyond this computer
  certificate= key=   files of the learner's TLS pair (PEM); the robot needs the certificate alone

most used fields:
  training.prior.run=demos      demonstrations: half of every minibatch (training.prior.share)
  training.total_steps=1e5      steps of the robots after which it ends
  training.updates_per_step=20  updates per step of the robot, at most
  online.start_steps=300        steps before the first update
  online.quota_mb=2000          disk for the robot's steps while the learner is away
  training.start.run=runs/...   begin with the learner of another run

Everything is in the run's folder. Learner and robot may be killed at any time and started again
with run=...: no step is lost, none is learned from twice. Ctrl-C ends both in order.

examples:
  robot-rl learn task=reach
  robot-rl learn task=peg training.prior.run=datasets/peg_demos
  robot-rl learn run=latest
  robot-rl learn role=learner task=reach address=0.0.0.0:50151 token_file=token \\
      certificate=certificate.pem key=key.pem
  robot-rl learn role=robot task=reach address=learner.lan:50151 token_file=token \\
      certificate=certificate.pem"""

_DEFAULTS = ("learner=rlpd", "num_envs=1", "device=cpu")
"""Choices of this command where nothing else is said."""
_LOCK_SECONDS = 10.0
"""Longest wait for a killed process of the same run to be gone."""


def run(words: Sequence[str]) -> int:
    """Learn as the command line says; returns the exit code."""
    from configs.compose import read_options
    from robot_rl.cli.learning.options import LearnOptions, Role

    options, rest = read_options(LearnOptions, words)
    options.security()
    if options.role is Role.all:
        return _run_all(options, rest)
    from robot_rl.cli.learning.options import DEFAULT_ADDRESS

    options = replace(options, address=options.address or DEFAULT_ADDRESS)
    options.security().check_address(options.address, serves=options.role is Role.learner)
    return (
        _run_learner(options, rest) if options.role is Role.learner else _run_robot(options, rest)
    )


def _run_all(options: "LearnOptions", rest: Sequence[str]) -> int:
    """Both sides, supervised."""
    from robot_rl.cli.learning.supervisor import supervise

    folder, _ = _folder(options, rest)
    path = str(folder.path)
    folder.close()
    address = options.address or f"127.0.0.1:{_free_port()}"
    given = {
        "run": path, "driver": options.driver.value, "address": address, "name": options.name,
        "pace": str(options.pace).lower(), "token_file": options.token_file,
        "certificate": options.certificate, "key": options.key,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in given.items() if value]
    print(f"learns in {path}; go on later with: robot-rl learn run={path}", flush=True)
    return supervise({
        role: ["learn", f"role={role}", *words, *rest] if options.run else
        ["learn", f"role={role}", *words]
        for role in ("learner", "robot")
    })  # fmt: skip


def _run_learner(options: "LearnOptions", rest: Sequence[str]) -> int:
    from robot_rl.cli.learning.learner import run_learner
    from robot_rl.cli.learning.supervisor import orphaned

    folder, config = _folder(options, rest)
    with folder:
        run_learner(folder, config, options, orphaned)
    return 0


def _run_robot(options: "LearnOptions", rest: Sequence[str]) -> int:
    from robot_rl.cli.learning.actor import run_actor
    from robot_rl.cli.learning.supervisor import orphaned

    folder, config = _folder(options, rest, writes=False)
    run_actor(folder, config, options, _asked_to_end(orphaned))
    return 0


def _asked_to_end(orphaned: Callable[[], bool]) -> Callable[[], bool]:
    """True once Ctrl-C or SIGTERM has come, or the supervisor is gone."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: asked.append(number))
    return lambda: bool(asked) or orphaned()


def _folder(
    options: "LearnOptions", rest: Sequence[str], *, writes: bool = True
) -> tuple["RunFolder", "RunConfig"]:
    """The run's folder, made where none is named, and its configuration."""
    from configs.compose import compose, to_plain
    from robot_rl.cli.components import run_name, run_path
    from robot_rl.cli.resume import resumed_config
    from robot_rl.training.runs.provenance import collect_provenance
    from robot_rl.training.runs.run_folder import RunFolder

    if options.run:
        path = run_path(options.run)
        folder = _opened(path) if writes else RunFolder.open(path)
        return folder, resumed_config(folder, rest)
    named = {word.partition("=")[0] for word in rest}
    defaults = [word for word in _DEFAULTS if word.partition("=")[0] not in named]
    composition = compose([*defaults, *rest])
    config = composition.config
    if config.num_envs != 1:
        raise ConfigError(f"num_envs={config.num_envs} was asked for; a robot is one: num_envs=1")
    plain, name = to_plain(config), run_name(config, composition.chosen)
    origin = collect_provenance(plain, seed=config.seed, device=config.device)
    folder = RunFolder.create(config.runs, name, plain, origin)
    if not writes:
        folder.close()
    return folder, config


def _opened(path: Path) -> "RunFolder":
    """A run to write; waits a little for a killed process to let go of it."""
    from robot_rl.cli.learning.supervisor import is_supervised
    from robot_rl.training.runs.run_folder import RunFolder

    end = time.monotonic() + (_LOCK_SECONDS if is_supervised() else 0.0)
    while True:
        try:
            return RunFolder.open(path, write=True)
        except StorageError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
