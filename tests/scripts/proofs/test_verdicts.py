"""The proofs of H2O and of a residual: verdicts and pages from made-up results."""

from typing import Any

import pytest

from scripts.proofs import hybrid, residual
from scripts.proofs.pages.outcomes import plot_outcomes
from scripts.proofs.pages.page import write_page
from tests.scripts.made_up_proofs import made_up, trial


def judged(proof, rates: dict[str, dict[str, list[float]]]) -> Any:
    """Made-up results with these success rates, by group and condition."""
    record = made_up(proof, [0.5] * 10)
    for group, conditions in rates.items():
        for condition, values in conditions.items():
            for seed, value in zip(record.groups[group].seeds, values, strict=True):
                seed.trials[condition] = trial(value)
    return record


SPREAD = [0.01 * i for i in range(10)]


def around(rate: float) -> list[float]:
    return [rate + one for one in SPREAD]


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [
        ({}, [True, True, True, True, True]),
        ({"H2O": {"reality": SPREAD}}, [True, True, False, False, False]),
        ({"half and half": {"reality": [0.66] * 10}}, [True, True, True, True, False]),
        ({"half and half": {"reality": around(0.6)}}, [True, True, True, True, False]),
        ({"real data alone": {"reality": [0.9] * 10}}, [True, True, True, False, True]),
        ({"simulator alone": {"simulator": [0.25] * 10, "reality": [0.2] * 10}},
         [True, False, True, True, True]),
        ({"H2O": {"reality": [float("nan"), *around(0.6)[1:]]}},
         [True, True, False, False, False]),
    ],
)  # fmt: skip
def test_h2o_is_judged_beside_each_of_its_parts_where_the_gap_matters(rates, verdicts):
    usual = {
        "H2O": {"reality": around(0.6)},
        "simulator alone": {"simulator": [0.9] * 10, "reality": [0.3] * 10},
        "half and half": {"reality": [0.5] * 10},
        "real data alone": {"reality": [0.1] * 10},
    }
    told = {name: {**usual.get(name, {}), **rates.get(name, {})} for name in usual}
    record = judged(hybrid.HYBRID, told)
    assert [bar.passed for bar in hybrid.HYBRID.bars(record)] == verdicts


@pytest.mark.slow
def test_the_page_of_h2o_shows_every_seed_and_both_worlds(tmp_path):
    proof, picture = hybrid.HYBRID, tmp_path / "hybrid.png"
    record = judged(proof, {"H2O": {"reality": [*around(0.6)[:9], float("nan")]}})
    plot_outcomes(proof, record, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    page = write_page(proof, record, picture=picture.name)
    assert "## Seed by seed\n\n![Every seed, IQM and 95 % interval](hybrid.png)" in page
    assert "Learning curves" not in page
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| simulator")]
    assert [cell.strip() != "" for cell in rows[-1]] == [True, False, True, False, False, False]


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
