"""The proof of compiled updates: verdicts and its page from made-up results, and its plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.proofs.compiled import COMPILED
from scripts.proofs.pages.page import write_page
from scripts.proofs.proving.stages import Preparation
from scripts.proofs.proving.training import ProofError
from tests.scripts.made_up_proofs import made_up

ALIKE = [0.0, 1.0, 2.0, 3.0, 4.0]
OTHER = [5.0, 6.0, 7.0, 8.0, 9.0]


def made_up_curves(compiled, operations, successes=(0.0, 1.0)):
    """Results with these mean returns, and the same successes at 1 and 2 million steps."""
    record = made_up(COMPILED, [0.9] * 5)
    for group, returns in zip(record.groups.values(), (compiled, operations), strict=True):
        group.seeds[:] = [
            replace(
                seed,
                evaluations=[(1e6, value - 1.0), (2e6, value + 1.0)],
                more_evaluations={
                    "eval/success": list(zip((1e6, 2e6), successes, strict=True)),
                },
            )
            for seed, value in zip(group.seeds, returns, strict=True)
        ]
    return record


@pytest.mark.parametrize(
    ("operations", "successes", "p_values", "measure"),
    [
        (ALIKE, (0.0, 1.0), [1.0, 1.0], "million steps to 90 % success"),
        (OTHER, (0.0, 1.0), [2 / 252, 1.0], "million steps to 90 % success"),
        (OTHER, (0.0, 0.8), [2 / 252, 2 / 252], "evaluation return, last"),
    ],
)
def test_both_groups_are_judged_by_area_and_speed(operations, successes, p_values, measure):
    record = made_up_curves(ALIKE, operations, successes)
    seeds, *tests = COMPILED.bars(record)
    assert seeds.passed
    assert [one.value for one in tests] == pytest.approx(p_values)
    assert [one.passed for one in tests] == [value >= 0.05 for value in p_values]
    page = write_page(COMPILED, record, picture="compiled.png")
    assert f"| p-value, {measure}" in page
    came = 5 if measure.startswith("million") else 0
    assert f"at all: {came} of 5 (compiled), {came} of 5 (PyTorch operations)" in page
    if came:
        assert "1.9 +- 0" in page  # nine tenths of the way from 0 to 1


@pytest.mark.slow
def test_the_groups_differ_in_the_update_alone():
    plan = COMPILED.jobs(seeds=9, overrides=(), runs=Path("there"))
    compiled, operations = plan.values()
    assert [job.seed for job in compiled] == [job.seed for job in operations] == list(range(5))
    ours, theirs = compiled[0].plain, operations[0].plain
    assert ours["learner"].pop("compile") is True
    assert theirs["learner"].pop("compile") is False
    assert ours == theirs


@pytest.mark.slow
def test_updates_that_are_not_compiled_are_not_proven():
    plan = COMPILED.jobs(seeds=0, overrides=["learner.critic.kind=simba"], runs=Path("there"))
    given = Preparation(runs=Path("there"), jobs=plan, workers=1, say=print)
    assert COMPILED.prepare is not None
    with pytest.raises(ProofError, match="needs compiled updates, got: PyTorch operations"):
        COMPILED.prepare(given)
