"""The residual proof: verdicts from made-up results."""

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
