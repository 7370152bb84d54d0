"""The residual proof: verdicts from made-up results, and its plan."""

import math
from pathlib import Path

import pytest

from scripts.proofs import residual
from scripts.proofs.pages.page import write_page
from tests.scripts.made_up_proofs import made_up, trial


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
