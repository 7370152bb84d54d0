"""The residual proof: verdicts from made-up results, its plan, and a tiny one of it."""

import importlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.proofs import residual
from scripts.proofs.pages.page import write_page
from tests.scripts.made_up_proofs import made_up, trial

SHORT = ("task.episode_length=0.8", "task.success_window=0.2")
ONLINE = (
    "training.total_steps=160", "training.evaluation_interval=160", "training.updates_per_step=1",
    "training.replay_capacity=320", "training.evaluation_episodes=4", "learner.batch_size=16",
    "learner.actor.hidden=[16]", "learner.critic.hidden=[16]",
)  # fmt: skip
TINY = {
    "behaviour cloning": (
        "training.total_steps=4", "training.evaluation_interval=4", "learner.actor.hidden=[16]",
        "training.evaluation_episodes=4", "learner.batch_size=16",
    ),
    "residual": (*ONLINE, "training.warm_up_steps=80", "learner.actor_steps.critic_updates=2"),
    "RLPD": (*ONLINE, "training.random_steps=80"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "corrected", "seconds", "verdicts"),
    [
        (0.3, [0.97, 0.95], 3600.0, [True, True, True, True]),
        (0.19, [0.97, 0.95], 3600.0, [False, True, True, True]),
        (0.71, [0.97, 0.95], 3600.0, [True, False, True, True]),
        (0.3, [0.99, 0.94], 3601.0, [True, True, False, False]),
        (0.3, [float("nan"), 0.99], 60.0, [True, True, False, True]),
    ],
)
def test_a_residual_is_judged_by_its_worst_seed_over_a_base_that_leaves_room(
    base, corrected, seconds, verdicts
):
    proof = residual.PEG_RESIDUAL
    record = made_up(proof, corrected, seconds=seconds)
    for name, rates in {"behaviour cloning": [base] * 2, "residual": corrected}.items():
        for seed, rate in zip(record.groups[name].seeds, rates, strict=True):
            seed.trials["holes of the task"] = trial(rate)
    assert [bar.passed for bar in proof.bars(record)] == verdicts
    page = write_page(proof, record, picture="residual.png")
    assert page.count("**FAIL**") == verdicts.count(False)
    assert "## Learning curves" in page


@pytest.mark.slow
def test_both_learn_from_the_same_steps_and_the_one_base():
    jobs = residual.PEG_RESIDUAL.jobs(seeds=0, overrides=(), runs=Path("there"))
    assert {name: len(group) for name, group in jobs.items()} == {
        "behaviour cloning": 1, "residual": 2, "RLPD": 2
    }  # fmt: skip
    clone, ours, other = (group[0].config for group in jobs.values())
    data = "there/data/peg_demonstrations"
    assert clone.training.demonstrations.data == data
    assert ours.learner.base.paths == ["there/data/peg_base"]
    for config in (ours, other):
        assert config.training.prior.run == data
        assert config.training.length == 250_000
        assert config.training.updates_per_step == config.num_envs  # an update for a step
        # A peg that stays inserted is worth 1.
        (pay,) = [w for name, w in config.task.reward.items() if name == "inserted"]
        assert pay / (1 - config.learner.gamma) == pytest.approx(1.0)
    # The wanted entropy asks for about the noise that it begins with, and the base bears it.
    actor, wanted = ours.learner.actor, ours.learner.target_entropy_per_action
    assert actor.initial_std <= 0.0025
    assert actor.scale * math.exp(wanted - 1.419) == pytest.approx(actor.initial_std, rel=0.1)


@pytest.mark.slow
@pytest.mark.full
def test_a_tiny_one_from_demonstrations_to_the_page(command, train_only, here, monkeypatch):
    stages, called = importlib.import_module("scripts.proofs.proving.stages"), []

    def call(script: str, *arguments: str) -> None:
        called.append(script)
        run = train_only if script == "train" else lambda *told: command(script, *told)
        answer = run(*arguments)
        assert answer.code == 0, answer.err

    for module in (stages, residual):
        monkeypatch.setattr(module, "call", call)
    few = [one for one in residual._DEMONSTRATIONS if not one.startswith("episodes=")]
    monkeypatch.setattr(residual, "_DEMONSTRATIONS", (*few, "episodes=3", "num_envs=3", *SHORT))
    small = [
        replace(one, overrides=(*one.overrides, *TINY[one.name], *SHORT))
        for one in residual.PEG_RESIDUAL.groups
    ]
    monkeypatch.setattr(
        residual, "PEG_RESIDUAL", replace(residual.PEG_RESIDUAL, groups=tuple(small))
    )
    runs = Path("outputs/proofs")
    plan = residual.PEG_RESIDUAL.jobs(seeds=1, overrides=(), runs=runs)

    def trained(jobs: Any, **_: Any) -> dict[Any, Any]:
        """As `train_all`, in this process."""
        for job in jobs:
            if job.find() is None:
                call("train", *job.arguments())
        return {job: job.find() for job in jobs}

    monkeypatch.setattr(residual, "train_all", trained)
    given = stages.Preparation(runs=runs, jobs=plan, workers=1, say=lambda line: None)
    residual.prepare(given)
    assert called == ["collect", "train", "export"]
    residual.prepare(given)
    assert called == ["collect", "train", "export"]  # it is there
    for name in ("residual", "RLPD"):
        call("train", *plan[name][0].arguments())
    answer = command("scripts.proofs.__main__", "residual", "seeds=1", "episodes=4", "out=results")
    assert answer.code == 1, answer.err
    assert "3 of 3 trainings were finished before" in answer.out
    assert Path("results/residual.md").read_text().startswith("# A residual on a clone: FAIL")
    assert Path("results/residual.png").is_file()
    (runs / "data/peg_base.identity").write_text("another")
    with pytest.raises(Exception, match="was trained with other settings than 'behaviour cloning'"):
        residual.prepare(given)
