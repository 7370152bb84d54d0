"""Reward functions of strangers: what they may compute, and everything that they may not do."""

from contextlib import closing
from pathlib import Path

import pytest
import torch

from robot_rl.core.env import EnvSpec, GroupSpec, TermSpec
from robot_rl.core.errors import RewardError
from robot_rl.rewards.function import FunctionJudge, check_source, named_terms
from robot_rl.rewards.sandbox import SandboxedFunction

SPEC = EnvSpec(
    num_envs=4, device=torch.device("cpu"), action_size=1, control_dt=0.1,
    groups={"actor": GroupSpec(
        shape=(5,), terms=(TermSpec(name="way", width=2), TermSpec(name="speed", width=3)),
    )},
)  # fmt: skip
OBS = {"actor": torch.arange(20, dtype=torch.float32).reshape(4, 5)}
GOOD = """
import numpy as np

SCALE = 0.1

def reward(obs):
    distance = np.linalg.norm(obs["actor/way"], axis=1)
    return -distance - SCALE * np.square(obs["actor/speed"]).sum(axis=1)
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "reward.py"
    path.write_text(text)
    return path


def test_a_function_of_named_terms_pays(tmp_path):
    with closing(SandboxedFunction(written(tmp_path, GOOD), seconds=20)) as function:
        value = FunctionJudge(function, SPEC).judge(OBS)
    way, speed = OBS["actor"][:, :2], OBS["actor"][:, 2:]
    expected = -way.norm(dim=1) - 0.1 * speed.square().sum(1)
    assert torch.allclose(value.reward, expected)
    assert not value.success.any()


def test_terms_have_names_and_groups_stay():
    found = named_terms({"actor": OBS["actor"].numpy()}, SPEC)
    assert {name: array.shape for name, array in found.items()} == {
        "actor": (4, 5), "actor/way": (4, 2), "actor/speed": (4, 3),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("import os", "line 1: it imports 'os'"),
        ("from numpy import load", "it imports 'load'"),
        ("from subprocess import run", "it imports 'subprocess'"),
        ("x = open('/etc/passwd')", "it names 'open'"),
        ("x = eval('1')", "it names 'eval'"),
        ("x = ().__class__.__bases__", "it reads the attribute '__bases__'"),
        ("import numpy\nx = numpy.fromfile('a')", "line 2: it reads the attribute 'fromfile'"),
        ("x = __builtins__", "it names '__builtins__'"),
        ("x = (", "is no Python"),
    ],
)  # fmt: skip
def test_a_file_that_reaches_for_more_is_refused_before_it_runs(tmp_path, line, sentence):
    path = written(tmp_path, f"{line}\ndef reward(obs):\n    return 0\n")
    with pytest.raises(RewardError) as refused:
        check_source(path)
    assert sentence in str(refused.value)


def test_a_file_without_the_function_is_refused(tmp_path):
    with pytest.raises(RewardError, match=r"must define one function reward.obs."):
        check_source(written(tmp_path, "def rewards(obs): return 0"))
    with pytest.raises(RewardError, match="cannot be read"):
        check_source(tmp_path / "none.py")


BEYOND = {
    "the network": "np.linalg.linalg.os.getcwd()",
    "a file": "obs['actor'].tofile('stolen')",
    "a module": "np.ctypeslib.os.listdir('/')",
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_gets_past_the_reader_is_stopped_by_the_process(tmp_path, monkeypatch, what):
    """The reader is switched off: the child alone must refuse."""
    monkeypatch.setattr("robot_rl.rewards.sandbox.check_source", Path.read_text)
    text = f"import numpy as np\ndef reward(obs):\n    {BEYOND[what]}\n    return obs['actor']"
    with (
        closing(SandboxedFunction(written(tmp_path, text), seconds=20)) as function,
        pytest.raises(RewardError, match=r"failed in line \d: "),
    ):
        function({"actor": OBS["actor"].numpy()})
    assert not (tmp_path / "stolen").exists()


def test_lines_outside_of_the_function_are_stopped_too(tmp_path, monkeypatch):
    monkeypatch.setattr("robot_rl.rewards.sandbox.check_source", Path.read_text)
    text = "import numpy as np\nnp.ctypeslib.os.listdir('/')\ndef reward(obs):\n    return 0\n"
    with pytest.raises(RewardError, match="it reached for '"):
        SandboxedFunction(written(tmp_path, text), seconds=20)


def test_an_endless_loop_is_ended_in_time(tmp_path):
    path = written(tmp_path, "def reward(obs):\n    while True:\n        pass\n")
    function = SandboxedFunction(path, seconds=0.5)
    with pytest.raises(RewardError, match=r"took longer than 0.5 s and was ended"):
        function({"actor": OBS["actor"].numpy()})
    assert function._process.returncode is not None


def test_more_memory_than_allowed_is_an_error(tmp_path):
    text = "import numpy as np\ndef reward(obs):\n    return np.ones(2_000_000_000)"
    with (
        closing(SandboxedFunction(written(tmp_path, text), seconds=20)) as function,
        pytest.raises(RewardError, match=r"MemoryError|ended with the code"),
    ):
        function({"actor": OBS["actor"].numpy()})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("obs['actor']", r"answered with shape \(4, 5\) about 4 frames"),
        ("np.log(0 * obs['actor'][:, 0])", "answered -inf about frame 0 of 4"),
        ("obs['aktor'][:, 0]", r"failed in line 3: term 'aktor' is unknown \(did you mean 'actor'"),
        (
            "obs['actor/weg'][:, 0]",
            r"\(did you mean 'actor/way'\?\); known: actor, actor/speed",
        ),
        ("obs[7]", "line 3: term '7' is unknown; known: actor, actor/speed, actor/way"),
        ("{}['x']", "failed in line 3: KeyError: 'x'"),
        ("np.zeros(2) @ np.zeros(3)", "failed in line 3: ValueError: matmul"),
    ],
)
def test_answers_that_are_no_rewards_are_said(tmp_path, answer, sentence):
    path = written(tmp_path, f"import numpy as np\ndef reward(obs):\n    return {answer}\n")
    with (
        closing(SandboxedFunction(path, seconds=20)) as function,
        pytest.raises(RewardError, match=sentence),
    ):
        FunctionJudge(function, SPEC).judge(OBS)


def test_an_error_is_told_with_the_line_of_the_function_that_it_came_from(tmp_path):
    """A misspelt term was a bare KeyError, without a line."""
    text = "def half(obs):\n    x = 1\n    return obs['far']\n"
    text += "def reward(obs):\n    return half(obs)\n"
    path = written(tmp_path, text)
    with (
        closing(SandboxedFunction(path, seconds=20)) as function,
        pytest.raises(RewardError, match=r"reward.py failed in line 3: term 'far' is unknown"),
    ):
        FunctionJudge(function, SPEC).judge(OBS)


def test_a_missing_term_may_be_asked_for_in_the_ways_of_a_dict(tmp_path):
    text = """
def reward(obs):
    try:
        return obs["none"]
    except KeyError:
        return obs.get("nothing", obs["actor"][:, 0]) if "nothing" not in obs else 0
"""
    with closing(SandboxedFunction(written(tmp_path, text), seconds=20)) as function:
        assert torch.equal(FunctionJudge(function, SPEC).judge(OBS).reward, OBS["actor"][:, 0])
