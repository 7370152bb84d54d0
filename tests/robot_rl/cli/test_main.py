"""`robot-rl` itself: its help, its version, its nearest command, and what Tab completes."""

import os
import shutil
import subprocess
import sys

import pytest

import robot_rl
from robot_rl.cli.command_line import read_options, read_overrides
from robot_rl.cli.data import SplitOptions
from robot_rl.cli.main import COMMANDS, complete
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import clean_environ
from tests.robot_rl.cli.tiny_run import ROOT, python


def test_help_fits_a_terminal_and_names_every_command(command):
    answer = command("--help")
    assert answer == command("-h")
    for name in COMMANDS:
        assert f"\n  {name} " in answer.out
        told = command(name, "--help")
        assert told.err == ""
        assert f"usage: robot-rl {name}" in told.out
        assert name == "train" or max(map(len, told.out.splitlines())) <= 100
    assert "no safety-rated emergency stop" in " ".join(command("deploy", "--help").out.split())
    assert command("--version").out == f"robot-rl {robot_rl.__version__}\n"


def test_a_misspelt_command_names_the_nearest(refused):
    assert "command 'evalaute' is unknown (did you mean 'evaluate'?)" in refused("evalaute")


def test_help_loads_no_package_that_takes_time():
    heavy = ("torch", "numpy", "hydra", "mujoco", "warp", "matplotlib", "configs.schema")
    code = f"""
import sys
from robot_rl.cli.main import main
main(["--help"])
try:
    main(["train", "--help"])
finally:
    print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    assert python("-c", code, check=True).stderr == "[]\n"


def test_flags_are_few_and_may_stand_anywhere():
    words, flags = read_overrides(["seed=1", "--cfg", "job", "-m", "a=2"], "", "cfg", "multirun")
    assert (words, flags.cfg, flags.multirun, flags.info) == (["seed=1", "a=2"], True, True, False)
    assert read_overrides(["--cfg", "seed=1"], "", "cfg")[0] == ["seed=1"]
    with pytest.raises(ConfigError, match="expected --cfg job"):
        read_overrides(["--cfg=hydra"], "", "cfg")


def test_options_are_read_by_their_types():
    words = ["out=a=b", "shares={train:0.9}", "shares=val:1e-1", "seed=3", "by_task=false"]
    options = read_options(SplitOptions, words)
    assert str(options.out) == "a=b"
    assert options.shares == {"train": 0.9, "val": 0.1}
    assert (options.seed, options.by_task) == (3, False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["eva"], ["evaluate"]),
        (["train", "task=hov"], ["task=hover"]),
        (["train", "learner=flash"], ["learner=flash_sac"]),
        (["train", "training.tot"], ["training.total_steps="]),
        (["train", "--mu"], ["--multirun"]),
        (["evaluate", "epis"], ["episodes="]),
        (["runs", "comp"], ["compare"]),
        (["data", "rel"], ["relabel"]),
        (["runs", "compare", "met"], ["metric="]),
        (["evaluate", "run=la"], ["run=latest"]),
        (["nothing", "task="], []),
    ],
)
def test_tab_completes(words, expected):
    assert complete(words) == expected


def test_tab_completes_folders(here):
    (here / "runs" / "first").mkdir(parents=True)
    assert complete(["evaluate", "run=runs/"]) == ["run=runs/first/"]


@pytest.mark.slow
def test_bash_completes_behind_the_equals_sign(command, here):
    """As bash does it: words are cut at `=`, and what is offered must be what stands behind it."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    (here / "robot-rl").write_text(f'#!/bin/sh\nexec {sys.executable} -m robot_rl.cli "$@"\n')
    (here / "robot-rl").chmod(0o755)
    script = command("completion", "bash").out
    line = "robot-rl train task=veloc"
    done = subprocess.run(
        ["bash", "-c", f"{script}\nCOMP_LINE='{line}' COMP_POINT={len(line)}; _robot_rl; "
         'printf "%s\\n" "${COMPREPLY[@]}"'],
        env=clean_environ({"PYTHONPATH": str(ROOT), "PATH": f"{here}:{os.environ['PATH']}"}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["velocity", "velocity_hidden", "velocity_rough"], done.stderr
