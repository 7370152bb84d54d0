"""`robot-rl export`: a bundle that loads, C that passes its test, and what is refused."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from policies.bundle import load_bundle

pytestmark = pytest.mark.slow  # they need a finished run


def test_bundle_and_c99_are_written_read_back_and_say_where_they_come_from(command, run):
    shutil.rmtree(run / "bundle")
    answer = command("export", "run=latest", "checkpoint=latest", "target=c99")
    assert f"{run}/bundle" in answer.out
    assert "verified against PyTorch: 16 envs x 100 steps, max action error" in answer.out
    runner = load_bundle(run / "bundle")
    assert runner.spec.robot.name == "crazyflie"
    origin = json.loads((run / "bundle" / "provenance.json").read_text())
    assert origin["checkpoint"]["step"] == 1600
    assert origin["run"]["task"] == "hover"
    assert origin["config"]["training"]["total_steps"] == 1600
    assert "runs" not in origin["config"], "the folder of all runs is its user's"
    assert str(Path.cwd()) not in json.dumps(origin), "no folder of one machine"
    assert f"c99     {run}/c99/policy.c" in answer.out
    header = (run / "c99" / "policy.h").read_text()
    digest = json.loads((run / "bundle" / "spec.json").read_text())["digest"]
    assert f'POLICY_BUNDLE "{digest}"' in header
    if shutil.which("gcc") is None:
        pytest.skip("this machine has no gcc to compile the self-test with")
    (test,) = (line for line in answer.out.splitlines() if line.startswith("test    "))
    done = subprocess.run(test.removeprefix("test"), shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "96 steps in 4 sequences agree" in done.stdout


def test_c99_needs_nothing_but_a_bundle(command, run):
    (run / "bundle").rename("given")
    shutil.rmtree(run)
    command("export", "bundle=given", "target=c99", "name=hover", "out=firmware")
    assert sorted(path.name for path in Path("firmware").iterdir()) == ["hover.c", "hover.h"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say which: run=runs/..."),
        (["run=runs/one", "task.radius=1"], "option 'task.radius' is unknown"),
        (["run=runs/one", "out=runs"], "exists and is not a policy bundle"),
        (["run=runs/one", "checkpoint=runs"], "is damaged or not one"),
        (["bundle=runs/one/bundle"], "can become C only, with target=c99 and without run"),
        (["bundle=runs/one/bundle", "target=c99", "name=a-b"], "'a-b' cannot be a name in C"),
    ],
)
def test_mistake_is_one_sentence(refused, run, arguments, told):
    assert told in refused("export", *arguments)
