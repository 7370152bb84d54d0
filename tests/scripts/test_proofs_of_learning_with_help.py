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
        ({"WSRL": 0.8, "RLPD": 0.7, "offline": 0.5}, [True, True]),
        ({"WSRL": 0.6, "RLPD": 0.7, "offline": 0.5}, [True, False]),
        ({"WSRL": 0.4, "RLPD": 0.3, "offline": 0.5}, [False, True]),
    ],
)
def test_going_online_is_judged_beside_staying_offline_and_keeping_the_data(
    proofs, rates, verdicts
):
    proof = importlib.import_module("scripts.proofs.offline_to_online").OFFLINE_TO_ONLINE
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
    ("offline", "online", "kept"),
    [
        ([(5_000, 0.2), (20_000, 0.5)], [(6_000, 0.4), (20_000, 0.9)], 0.8),
        ([(5_000, 0.9), (20_000, 0.5)], [(2_000, 0.0), (4_000, 0.0), (6_000, 0.45)], 0.9),
        ([(20_000, 0.5)], [(6_000, 0.9), (8_000, 0.1), (20_000, 0.9)], 0.2),
        ([(20_000, 0.0)], [(6_000, 0.9)], float("nan")),
        ([(20_000, 0.5)], [(4_000, 0.9)], float("nan")),
        ([(15_000, 0.5)], [(6_000, 0.9)], float("nan")),
    ],
)
def test_what_the_offline_phase_reached_is_kept_in_every_evaluation_after_the_warm_up(
    proofs, offline, online, kept
):
    proof = importlib.import_module("scripts.proofs.offline_to_online").OFFLINE_TO_ONLINE
    record = made_up(proofs, proof, [0.9] * 5)
    told = {"offline": (offline, [(20_000, 0.5)]), "WSRL": (online, [(6_000, 0.6)])}
    for name, (worst, fine) in told.items():
        seeds = [
            replace(seed, evaluations=worst if seed.seed == 2 else fine)
            for seed in record.groups[name].seeds
        ]
        record.groups[name] = replace(record.groups[name], seeds=seeds)
    told_first = record.groups["offline"]  # seeds are matched by number, not by place
    record.groups["offline"] = replace(told_first, seeds=told_first.seeds[::-1])
    bar = next(bar for bar in proof.bars(record) if "after warm-up" in bar.what)
    assert bar.value == pytest.approx(kept, nan_ok=True)
    assert bar.passed == (kept >= 0.8)


def test_methods_of_offline_to_online_differ_in_their_phases_alone(proofs):
    proof = importlib.import_module("scripts.proofs.offline_to_online").OFFLINE_TO_ONLINE
    jobs = proof.jobs(seeds=2, overrides=(), runs=Path("there"))
    told = {name: of_seeds[1].config for name, of_seeds in jobs.items()}
    for name, config in told.items():
        stored = "" if name.startswith("WSRL") else "there/data/reach_of_mixed_quality"
        assert config.training.prior.run == stored
        assert config.learner.actor.hidden == config.learner.critic.hidden == [64, 64]
        assert (config.num_envs, config.training.updates_per_step) == (8, 8)
    phases = {
        name: (c.training.offline.updates > 0, c.training.total_steps > 0, c.training.prior.share)
        for name, c in told.items()
    }
    assert phases == {
        "offline": (True, False, 0.0), "WSRL": (False, True, 0.0),
        "WSRL, penalty ends at once": (False, True, 0.0),
        "Cal-QL with its data": (False, True, 0.25), "RLPD": (False, True, 0.5),
    }  # fmt: skip
    assert not told["WSRL"].learner.conservatism.online
    assert told["Cal-QL with its data"].learner.conservatism.online
    assert told["WSRL"].learner.conservatism.fade_updates == 10_000
    assert told["WSRL, penalty ends at once"].learner.conservatism.fade_updates == 0
    for name in ("WSRL", "WSRL, penalty ends at once", "Cal-QL with its data"):
        offline = jobs["offline"][1]
        assert jobs[name][1].after is offline
        assert told[name].training.start.run == str(offline.runs)
        assert str(offline.runs).endswith("seed_1")
