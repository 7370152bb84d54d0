"""`robot-rl train learner=residual`: a base, demonstrations beside it, and on again."""

import shutil
from pathlib import Path

import pytest

from tests.bases import write_base
from tests.robot_rl.cli.demonstrations import write_demonstrations
from tests.robot_rl.cli.tiny_run import TINY, assert_equal_ends

pytestmark = pytest.mark.slow

SHORT = (
    *TINY, "learner=residual", "num_envs=8", "task.episode_length=0.5",
    "task.success_window=0.2", "video=false", "learner.actor.hidden=[16]",
    "learner.critic.hidden=[16]", "learner.actor_steps.critic_updates=4", "training.random_steps=0",
    "training.warm_up_steps=80", "training.total_steps=160", "training.evaluation_interval=80",
)  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("given")
    data = write_demonstrations(folder / "set")
    return write_base(folder / "base.onnx", 82, 4), data


def settings(base: Path, data: Path) -> tuple[str, ...]:
    rest = tuple(one for one in SHORT if not one.startswith("experiment="))
    return (*rest, f"learner.base.paths=[{base}]", f"training.prior.run={data}")


def test_a_resumed_run_equals_the_uninterrupted_one_and_brings_its_base(
    here, command, train_only, given
):
    base = Path(shutil.copy(given[0], here / "base.onnx"))
    told = settings(base, given[1])
    train_only(*told, "runs=whole")
    train_only(*told, "runs=parts", "training.total_steps=80")
    base.unlink()  # the run has its own
    part, whole = (next((here / name).iterdir()) for name in ("parts", "whole"))
    answer = train_only(f"resume={part}", "training.total_steps=160")
    assert_equal_ends(part, whole)
    answer = command("evaluate", f"run={part}", "episodes=3", "video=false")
    answer = command("export", f"run={part}", "out=bundle")
    answer = command("critics", f"run={part}", "parts=2")
    _, _, early, late = answer.out.splitlines()
    assert early.split()[:4] == ["0%", "to", "50%", "60"]  # of 6 episodes of 20 steps
    assert late.split()[:5] == ["50%", "to", "100%", "60", "0"]  # nothing was paid


def test_critics_that_cannot_be_asked_are_a_sentence(refused, given, run):
    assert "run is empty" in refused("critics")
    assert "'seed=3' changes nothing here" in refused("critics", "run=nowhere", "seed=3")
    assert "learned from no stored steps" in refused("critics", f"run={run}")
