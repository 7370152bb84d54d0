"""Proofs of what teachers and stored data are worth: verdicts from made-up results, and plans."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scripts.made_up_proofs import made_up, proofs, trial

__all__ = ["proofs"]  # a fixture


@pytest.mark.parametrize(
    ("without", "verdicts"),
    [
        ([0.2] * 5, [True, True, True]),
        ([0.2] * 4, [False, True, True]),
        ([0.2] * 4 + [0.09], [True, False, True]),
        ([0.09] * 5, [True, False, False]),
        ([0.2] * 4 + [float("nan")], [True, False, False]),
    ],
)
def test_history_is_judged_seed_by_seed_against_the_student_without(proofs, without, verdicts):
    history = proofs.history.HISTORY
    record = made_up(proofs, history, [0.5] * len(without), rms=0.1)
    for seed, error in zip(record.groups["student without"].seeds, without, strict=True):
        (condition,) = seed.trials
        seed.trials[condition] = trial(proofs, 0.5, rms=error)
    assert [bar.passed for bar in history.bars(record)] == verdicts
    assert proofs.page.write_page(history, record, picture=None).count("**FAIL**") == sum(
        not passed for passed in verdicts
    )


def test_all_students_learn_from_the_one_teacher(proofs):
    plan = proofs.history.HISTORY.jobs(seeds=2, overrides=(), runs=Path("runs"))
    (teacher,) = plan["teacher"]
    assert teacher.runs == Path("runs/history_teachers/seed_0")
    for group in ("student with history", "student without"):
        assert [job.seed for job in plan[group]] == [0, 1]
        for job in plan[group]:
            assert job.after is teacher
            assert f"learner.teacher={teacher.runs}" in job.arguments()
            assert job.runs == Path("runs")


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [
        ({"WSRL": 0.8, "Cal-QL with its data": 0.7, "offline only": 0.5}, [True, True]),
        ({"WSRL": 0.6, "Cal-QL with its data": 0.7, "offline only": 0.5}, [True, False]),
        ({"WSRL": 0.4, "Cal-QL with its data": 0.3, "offline only": 0.5}, [False, True]),
    ],
)
def test_going_online_is_judged_beside_staying_offline_and_keeping_the_data(
    proofs, rates, verdicts
):
    proof = importlib.import_module("proofs.offline_to_online").OFFLINE_TO_ONLINE
    record = made_up(proofs, proof, [0.9] * 5)
    for name, rate in rates.items():
        seeds = [
            replace(seed, trials={n: trial(proofs, rate) for n in seed.trials})
            for seed in record.groups[name].seeds
        ]
        record.groups[name] = replace(record.groups[name], seeds=seeds)
    found = [bar.passed for bar in proof.bars(record)]
    assert found == [True, False, *verdicts], "five seeds, of which no evaluation is known"


@pytest.mark.parametrize(
    ("worst", "kept"),
    [
        ([(5_000, 0.2), (20_000, 0.5), (24_000, 0.4), (40_000, 0.9)], 0.8),
        ([(5_000, 0.9), (20_000, 0.5), (22_000, 0.0), (24_000, 0.45)], 0.9),
        ([(20_000, 0.5), (24_000, 0.9), (26_000, 0.1), (40_000, 0.9)], 0.2),
        ([(20_000, 0.0), (24_000, 0.9)], float("nan")),
        ([(20_000, 0.5)], float("nan")),
    ],
)
def test_what_the_offline_phase_reached_is_kept_in_every_evaluation_after_the_warm_up(
    proofs, worst, kept
):
    proof = importlib.import_module("proofs.offline_to_online").OFFLINE_TO_ONLINE
    record = made_up(proofs, proof, [0.9] * 5)
    fine = [(20_000, 0.5), (24_000, 0.6)]
    seeds = [
        replace(seed, evaluations=worst if i == 2 else fine)
        for i, seed in enumerate(record.groups["WSRL"].seeds)
    ]
    record.groups["WSRL"] = replace(record.groups["WSRL"], seeds=seeds)
    bar = next(bar for bar in proof.bars(record) if "after warm-up" in bar.what)
    assert bar.value == pytest.approx(kept, nan_ok=True)
    assert bar.passed == (kept >= 0.8)


def test_methods_of_offline_to_online_differ_in_their_phases_alone(proofs):
    proof = importlib.import_module("proofs.offline_to_online").OFFLINE_TO_ONLINE
    jobs = proof.jobs(seeds=1, overrides=(), runs=Path("there"))
    told = {name: one[0].config for name, one in jobs.items()}
    for config in told.values():
        assert config.training.prior.run == "there/data/reach_half_trained"
        assert config.learner.actor.hidden == config.learner.critic.hidden == [64, 64]
        assert (config.num_envs, config.training.updates_per_step) == (8, 8)
    phases = {
        name: (c.training.offline.updates > 0, c.training.total_steps > 0, c.training.prior.share)
        for name, c in told.items()
    }
    assert phases == {
        "WSRL": (True, True, 0.0), "Cal-QL with its data": (True, True, 0.25),
        "RLPD": (False, True, 0.5), "offline only": (True, False, 0.0),
    }  # fmt: skip
    assert not told["WSRL"].learner.conservatism.online
    assert told["Cal-QL with its data"].learner.conservatism.online
