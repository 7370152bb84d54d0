"""Python on the pages: every block runs, with what its page speaks of, in small numbers."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import robot_rl
from configs.compose import compose
from configs.schema import make_env
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.robot_command import CommandKind
from robot_rl.datasets.spec import DatasetSpec
from tests.robot_rl.datasets.samples import episode as sample_episode
from tests.test_docs import READ_THROUGH, ROOT

pytestmark = pytest.mark.slow

BLOCKS = [
    pytest.param(page, number, code, id=f"{page}, {number}")
    for page in READ_THROUGH
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    )
]
ELSEWHERE = {
    ("README.md", 1): "tests/robot_rl/cli/test_api.py",
    ("docs/export.md", 0): "tests/policies/test_caller.py",
    (
        "docs/export.md",
        1,
    ): "tests/policies/test_caller.py has the call; it needs a policy that sees",
    ("docs/own_task.md", 0): "tests/test_extending.py",
    ("docs/own_task.md", 1): "a line of configs/schema.py",
    ("docs/python.md", 0): "another library's, with packages that are not ours (moviepy)",
    ("policies/README.md", 0): "tests/policies/test_caller.py",
}
"""Blocks that do not run here, and why."""
PLAIN = DatasetSpec(groups={"actor": 12}, action_size=4, control_dt=0.02)
FEW = ("num_envs=16", "training.total_steps=600", "training.random_steps=160",
       "training.evaluation_interval=600",
       "training.evaluation_episodes=4", "training.replay_capacity=3200", "learner.batch_size=16",
       "learner.actor.hidden=[8]", "learner.critic.hidden=[8]")  # fmt: skip


def panda() -> Any:
    return compose(["task=reach", "robot=panda"]).config.robot.spec


def hover(**_: object) -> dict[str, Any]:
    config = compose(["task=hover"]).config
    env = make_env(config, num_envs=2, device=torch.device("cpu"), seed=0, evaluation=False)
    env.reset(seed=0)
    return {"env": env}


def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    train = robot_rl.train
    monkeypatch.setattr(robot_rl, "train", lambda *words, **rest: train(*words, *FEW, **rest))
    return {}


def recorded(**_: object) -> dict[str, Any]:
    steps = iter(range(12))
    known = hover()
    size = known["env"].spec.action_size
    return {
        **known, "recording": lambda: next(steps, None) is not None, "measured_at": lambda: 0,
        "act": lambda obs: torch.zeros(2, size),
    }  # fmt: skip


def full_replay(**_: object) -> dict[str, Any]:
    env = hover()["env"]
    replay = ReplayBuffer(env.spec, ("actor",), capacity=400, gamma=0.99)
    obs = env.reset(seed=0)
    for _number in range(60):
        step = env.step(torch.zeros(2, env.spec.action_size))
        replay.add({name: group.clone() for name, group in obs.items()}, step)
        obs = {name: group.clone() for name, group in step.obs.items()}
    return {"replay": replay}


def judged(**_: object) -> dict[str, Any]:
    judge = SimpleNamespace(
        judge=lambda obs: None, begin=lambda mask: None, state_dict=dict, load_state_dict=dict
    )
    return {**hover(), "my_judge": judge}


def shown(**_: object) -> dict[str, Any]:
    known = hover()
    size = known["env"].spec.action_size
    agent = SimpleNamespace(act=lambda obs: torch.zeros(2, size), begin=lambda mask: None)
    return {**known, "agent": agent}


GIVEN: dict[tuple[str, int], Callable[..., dict[str, Any]]] = {
    ("README.md", 0): trained, ("docs/first_policy.md", 0): trained,
    ("docs/data.md", 0): recorded,
    ("docs/data.md", 1): lambda **_: {"episode": sample_episode(1, spec=PLAIN)},
    ("docs/replay.md", 0): full_replay, ("docs/rewards.md", 1): judged,
    ("docs/viewing.md", 0): shown, ("robot_rl/README.md", 0): hover,
    ("hardware/README.md", 0): lambda **_: {"spec": panda()},
    ("docs/teleoperation.md", 0): lambda **_: {
        "spec": panda(), "CommandKind": CommandKind, "now": 0.0,
    },
}  # fmt: skip
"""Names that a block speaks of without making them."""
SMALLER = {
    "while True:": "for _ in range(3):", "num_envs=4096": "num_envs=8", "zeros(4096,": "zeros(8,",
    "num_envs=64": "num_envs=2", "ticks > 2000": "ticks > 20", "capacity=250_000": "capacity=64",
    "num_envs=100": "num_envs=2", "range(100)": "range(2)", "range(300)": "range(3)",
}  # fmt: skip


@pytest.mark.parametrize(("page", "number", "code"), BLOCKS)
def test_a_block_of_a_page_runs(page, number, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if (page, number) in ELSEWHERE:
        pytest.skip(f"runs elsewhere: {ELSEWHERE[page, number]}")
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    given = GIVEN.get((page, number))
    known = {} if given is None else given(monkeypatch=monkeypatch)
    exec(compile(code, f"{page}, block {number}", "exec"), known)
    if page == "docs/rewards.md" and number == 0:
        obs = {
            "actor/end_effector_error_b": np.ones((4, 3)),
            "actor/joint_velocity": np.ones((4, 7)),
        }
        assert known["reward"](obs).shape == (4,)
    close = getattr(known.get("env"), "close", None)
    if close is not None:
        close()


def test_blocks_that_run_elsewhere_are_there():
    places = {(block.values[0], block.values[1]) for block in BLOCKS}
    assert set(ELSEWHERE) <= places
    words = [word for why in ELSEWHERE.values() for word in why.split()]
    assert all((ROOT / word).is_file() for word in words if word.startswith("tests/"))
    assert set(GIVEN) <= places
    assert len(places) > 20
