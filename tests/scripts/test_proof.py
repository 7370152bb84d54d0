"""`scripts.proofs`: verdicts and pages from made-up results, plans, and a tiny one end to end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from robot_rl.cli.evaluation import EvaluateOptions
from robot_rl.training.trainer import VALIDATION_SEED
from scripts.proofs.history import HISTORY
from scripts.proofs.hover import HOVER
from scripts.proofs.hover_robust import HOVER_ROBUST
from scripts.proofs.hybrid import HYBRID
from scripts.proofs.offline_to_online import OFFLINE_TO_ONLINE
from scripts.proofs.pages.page import write_page
from scripts.proofs.pages.record import load_record
from scripts.proofs.pages.results import Trained, changes, save_results
from scripts.proofs.proving.flights import FULL_KNOWLEDGE, TEST_SEED, Condition, fly_controller
from scripts.proofs.reach import REACH
from scripts.proofs.reach_pixels import REACH_PIXELS
from scripts.proofs.residual import PEG_RESIDUAL
from scripts.proofs.tracking import TRACKING
from scripts.proofs.velocity import VELOCITY
from tests.robot_rl.cli.tiny_run import TINY
from tests.scripts.made_up_proofs import made_up, trial

PROOFS = "scripts.proofs.__main__"
NAN = float("nan")


def job_of(proof):
    return next(iter(proof.jobs(seeds=1, overrides=(), runs=Path("runs")).values()))[0]


@pytest.mark.parametrize(
    ("proof", "made", "verdicts"),
    [
        # Hover is judged by the number of seeds, the worst, the mean, its error and its swing.
        (HOVER, {"rates": [0.9] + [0.96] * 9, "rms": 0.019}, [True] * 5),
        (HOVER, {"rates": [0.89] + [0.99] * 9, "rms": 0.021}, [True, False, True, False, False]),
        (HOVER, {"rates": [0.94] * 10, "rms": 0.0}, [True, True, False, True, True]),
        (HOVER, {"rates": [0.99] * 9, "rms": 0.0}, [False, True, True, True, True]),
        (HOVER, {"rates": [NAN] + [0.99] * 9, "rms": NAN}, [True, False, False, False, False]),
        # On any plant: the worst on each, and with the controller that was not learned (97 %).
        (HOVER_ROBUST, {"rates": [0.97] * 5}, [True] * 7),
        (HOVER_ROBUST, {"rates": [0.99] * 3 + [0.96]}, [False, *[True] * 4, False, True]),
        (HOVER_ROBUST, {"rates": [0.99] * 4 + [0.94]}, [True, *[False] * 5, True]),
        # Others by seeds, by the worst of them and by time.
        (TRACKING, {"rates": [0.9] * 5}, [True, True, True]),
        (TRACKING, {"rates": [0.9] * 5, "rms": 0.151}, [True, False, True]),
        (TRACKING, {"rates": [0.9] * 4, "seconds": 601.0}, [False, True, False]),
        (REACH, {"rates": [0.96] * 5}, [True, True, True]),
        (REACH, {"rates": [0.99] * 4 + [0.949]}, [True, False, True]),
        (REACH, {"rates": [0.99] * 4, "seconds": 601.0}, [False, True, False]),
        # Students are judged beside a teacher, who must be worth it.
        (REACH_PIXELS, {"rates": [0.9] * 2 + [0.71]}, [True, True, False]),
        (REACH_PIXELS, {"rates": [0.5] * 3}, [True, False, True]),
        (REACH_PIXELS, {"rates": [0.0] * 3}, [True, False, False]),
        (VELOCITY, {"rates": [0.9] * 2}, [True, True, True]),
        (VELOCITY, {"rates": [0.9] * 2, "rms": NAN}, [True, False, True]),
        (VELOCITY, {"rates": [0.9], "seconds": 3601.0}, [False, True, False]),
    ],
)
def test_a_proof_is_judged_by_its_bars_and_its_page_says_so(proof, made, verdicts):
    record = made_up(proof, **made)
    assert [bar.passed for bar in proof.bars(record)] == verdicts
    page = write_page(proof, record, picture=None)
    assert page.startswith(f"# {proof.title}: {'PASS' if all(verdicts) else 'FAIL'}\n")
    assert page.count("**FAIL**") == verdicts.count(False)
    assert page.count("**PASS**") == verdicts.count(True)


@pytest.mark.parametrize(("proof", "seeds"), [(TRACKING, 5), (VELOCITY, 2)])
def test_a_seed_without_an_error_passes_no_bar_wherever_it_stands(proof, seeds):
    for lost in range(seeds):
        record = made_up(proof, [0.9] * seeds)
        for group in record.groups.values():
            trials = group.seeds[lost].trials
            trials.update({one: trial(rms=NAN) for one in trials})
        assert [bar.passed for bar in proof.bars(record)].count(False) == 1, lost


@pytest.mark.parametrize(
    ("without", "verdicts"),
    [
        ([0.2] * 5, [True, True, True]),
        ([0.2] * 4, [False, True, True]),
        ([0.2] * 4 + [0.09], [True, False, True]),
        ([0.09] * 5, [True, False, False]),
        ([0.2] * 4 + [NAN], [True, False, False]),
    ],
)
def test_history_is_judged_seed_by_seed_against_the_student_without(without, verdicts):
    record = made_up(HISTORY, [0.5] * len(without), rms=0.1)
    for seed, error in zip(record.groups["student without"].seeds, without, strict=True):
        (condition,) = seed.trials
        seed.trials[condition] = trial(0.5, rms=error)
    assert [bar.passed for bar in HISTORY.bars(record)] == verdicts


@pytest.mark.slow
def test_all_students_learn_from_the_one_teacher():
    plan = HISTORY.jobs(seeds=2, overrides=(), runs=Path("runs"))
    (teacher,) = plan["teacher"]
    assert teacher.runs == Path("runs/history_teachers/seed_0")
    for group in ("student with history", "student without"):
        assert [job.seed for job in plan[group]] == [0, 1]
        for job in plan[group]:
            assert job.after is teacher
            assert f"learner.teacher={teacher.runs}" in job.arguments()
            assert job.runs == Path("runs")


EVERY = (
    HOVER, HOVER_ROBUST, TRACKING, REACH, VELOCITY, HISTORY, OFFLINE_TO_ONLINE, HYBRID,
    PEG_RESIDUAL, REACH_PIXELS,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("proof", EVERY, ids=lambda proof: proof.name)
def test_groups_of_a_proof_can_be_composed_differ_and_begin_with_what_they_name(proof):
    plan = proof.jobs(seeds=2, overrides=(), runs=Path("runs"))
    assert len({jobs[0].identity for jobs in plan.values()}) == len(plan)
    for job in (job for jobs in plan.values() for job in jobs if job.after is not None):
        assert any(one.endswith(f"={job.after.runs}") for one in job.arguments())
        if proof is OFFLINE_TO_ONLINE:
            assert job.after is plan["offline"][job.seed]


def with_seeds(record, name, **fields):
    """Replace fields of every seed of a group, by its number where a function says so."""
    group = record.groups[name]
    seeds = [replace(one, **{k: v(one) for k, v in fields.items()}) for one in group.seeds]
    record.groups[name] = replace(group, seeds=seeds)


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [
        ({"WSRL": 0.8, "RLPD": 0.7, "offline": 0.5}, [True, True]),
        ({"WSRL": 0.6, "RLPD": 0.7, "offline": 0.5}, [True, False]),
        ({"WSRL": 0.4, "RLPD": 0.3, "offline": 0.5}, [False, True]),
    ],
)
def test_going_online_is_judged_beside_staying_offline_and_keeping_the_data(rates, verdicts):
    record = made_up(OFFLINE_TO_ONLINE, [0.9] * 5)
    for name, rate in rates.items():
        with_seeds(
            record, name, trials=lambda seed, rate=rate: dict.fromkeys(seed.trials, trial(rate))
        )
    found = [bar.passed for bar in OFFLINE_TO_ONLINE.bars(record)]
    assert found == [True, False, *verdicts], "five seeds, of which no evaluation is known"


@pytest.mark.parametrize(
    ("offline", "online", "kept"),
    [
        ([(5_000, 0.2), (20_000, 0.5)], [(6_000, 0.4), (20_000, 0.9)], 0.8),
        ([(5_000, 0.9), (20_000, 0.5)], [(2_000, 0.0), (4_000, 0.0), (6_000, 0.45)], 0.9),
        ([(20_000, 0.5)], [(6_000, 0.9), (8_000, 0.1), (20_000, 0.9)], 0.2),
        ([(20_000, 0.0)], [(6_000, 0.9)], NAN),
        ([(20_000, 0.5)], [(4_000, 0.9)], NAN),
        ([(15_000, 0.5)], [(6_000, 0.9)], NAN),
    ],
)
def test_what_the_offline_phase_reached_is_kept_in_every_evaluation_after_the_warm_up(
    offline, online, kept
):
    record = made_up(OFFLINE_TO_ONLINE, [0.9] * 5)
    told = {"offline": (offline, [(20_000, 0.5)]), "WSRL": (online, [(6_000, 0.6)])}
    for name, pair in told.items():
        with_seeds(record, name, evaluations=lambda seed, pair=pair: pair[seed.seed != 2])
    told_first = record.groups["offline"]  # seeds are matched by number, not by place
    record.groups["offline"] = replace(told_first, seeds=told_first.seeds[::-1])
    bar = next(bar for bar in OFFLINE_TO_ONLINE.bars(record) if "after warm-up" in bar.what)
    assert bar.value == pytest.approx(kept, nan_ok=True)
    assert bar.passed == (kept >= 0.8)


def test_page_tells_worst_mean_and_middle_of_the_seeds():
    record = made_up(HOVER, [0.90, 0.91, 0.93, 0.98])
    lines = write_page(HOVER, record, picture="hover.png").splitlines()
    table = lines[lines.index("## Trained: plant A") :]
    cells = {
        line.split("|")[1].strip(): line.split("|")[2].strip() for line in table if "|" in line
    }
    assert cells["0"] == "90.0% (88.0% to 91.0%)"
    by_word = [line.split("|")[2].strip() for line in table if line.startswith("| **")][:3]
    assert by_word[:2] == ["90.0%", "93.0%"]
    assert by_word[2].startswith("92.0% (")  # the middle two of four
    paper = next(line for line in lines if line.startswith("| starts of the paper"))
    cells = [cell.strip() for cell in paper.split("|")[2:-1]]
    assert cells == ["93.0% (90.0%)", "", "", "97.0% (95.0% to 98.0%)"]  # the last one the expert's
    assert "![Learning curves over seeds](hover.png)" in lines


@pytest.mark.slow
def test_report_writes_the_page_again_and_exits_by_the_verdict(command, here):
    job = job_of(TRACKING)
    for rms, code, word in ((0.1, 0, "PASS"), (0.2, 1, "FAIL")):
        record = made_up(TRACKING, [0.9] * 5, rms=rms, hashes={"tracking": job.identity})
        save_results(Path("tracking.json"), record)
        assert load_record(Path("tracking.json")) == record
        answer = command(PROOFS, "report", "tracking", "out=.", exits=code)
        assert f"{word} mean RMS error, worst seed: {rms} <= 0.15" in answer.out
        assert Path("tracking.md").read_text().startswith(f"# Trajectory tracking: {word}")
    save_results(Path("tracking.json"), made_up(TRACKING, [0.9] * 5))  # of another configuration
    said = command(PROOFS, "report", "tracking", "reach", "out=.", exits=1).out
    assert "anew: python -m scripts.proofs tracking" in said
    assert "there are no results in reach.json" in said, "one refusal hides no other"


@pytest.mark.slow
def test_what_has_changed_since_is_named():
    job = job_of(TRACKING)
    before = json.loads(json.dumps(job.trained()))
    assert changes(Trained(**before), job) == []
    assert changes(Trained(**before), None) == ["nobody trains it any more"]
    before["config"]["device"] = "cuda:3"  # another machine reports on it
    del before["config"]["learner"]["batch_size"]  # a field that is newer than the results
    learner = before["config"]["learner"]
    learner["target_rule"] = learner["target"].pop("rule")  # a name of before
    del before["config"]["task"]["actor"][1]["clip"]  # the same, of an entry of a list
    assert changes(Trained(**before), job) == []
    del before["config"]["learner"]["n_step"]  # that is newer, and not what was meant before
    del before["config"]["task"]["reward"]["initial"]["alive"]  # a new reward is always a change
    steps = before["config"]["training"]["total_steps"]
    before["config"]["training"]["total_steps"] = 7
    before["config"]["task"]["was"] = 1
    before["config"]["task"]["critic"][0]["scale"] = 3.0
    before["config"]["robot"]["spec"]["rotors"] = before["config"]["robot"]["spec"]["rotors"][:2]
    scale = job.config.task.critic[0].scale
    assert sorted(changes(Trained(**before), job)) == [
        "learner.n_step is new: 5",
        "robot.spec.rotors: ['m1', 'm2'] -> ['m1', 'm2', 'm3', 'm4']",
        f"task.critic.0.scale: 3.0 -> {scale}",
        "task.reward.initial.alive is new: 0.5", "task.was is gone",
        f"training.total_steps: 7 -> {steps}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hoover"], "proof 'hoover' is unknown (did you mean 'hover'?)"),
        (["hover", "jobs=0"], "jobs must be at least 1"),
        (["report", "num_envs=3"], "changes nothing in a report"),
        (["report", "seeds=3"], "changes nothing in a report"),
        (["hover", "experiment=hopper"], "experiment cannot be changed in a proof"),
        (["hover", "training.total_step=3"], "did you mean 'training.total_steps'?"),
    ],
)
def test_what_proves_nothing_is_refused(refused, here, arguments, said):
    assert said in refused(PROOFS, *arguments)
    assert not list(here.glob("**/*.md"))


def test_policies_are_flown_at_starts_that_chose_no_checkpoint():
    assert EvaluateOptions(run="x").seed == TEST_SEED != VALIDATION_SEED


@pytest.mark.slow
def test_flight_that_leaves_the_box_is_lost():
    free = Condition(name="free", about="")
    tight = Condition(name="tight", about="", box=0.15)  # starts lie up to 0.2 m off
    calm, boxed = (
        fly_controller(FULL_KNOWLEDGE, job_of(HOVER).config, one, episodes=16)
        for one in (free, tight)
    )
    assert calm.success > 0.8
    assert boxed.success < calm.success
    assert boxed.ended == pytest.approx(1 - boxed.success, abs=1 - calm.success)


@pytest.mark.slow
def test_tiny_proof_from_training_to_page(command, here):
    arguments = ("tracking", *TINY[1:], "seeds=1", "episodes=4", "out=new/folder")
    answer = command(PROOFS, *arguments, exits=1)  # one seed of five: a bar is missed
    assert "FAIL seeds: 1 >= 5" in answer.out
    record = json.loads(Path("new/folder/tracking.json").read_text())
    assert record["bars"][0] == {
        "what": "seeds", "value": 1, "limit": 5, "at_least": True, "unit": "", "passed": False,
    }  # fmt: skip
    seed = record["groups"]["tracking"]["seeds"][0]
    assert set(seed["trials"]) == set(TRACKING.groups[0].trials)
    assert 0 < seed["learner_share"] < 1
    assert seed["world_steps"] == 1600
    assert list(Path("outputs/proofs").glob("*_s0/replay")) == []
    page_file = Path("new/folder/tracking.md")
    page = page_file.read_text()
    assert "![Learning curves over seeds](tracking.png)" in page
    assert "Changed in every training: `num_envs=16" in page
    again = command(PROOFS, *arguments, exits=1)
    assert "1 of 1 trainings were finished before" in again.out
    page = page_file.read_text()
    command(PROOFS, "report", "tracking", "out=new/folder", exits=1)
    assert page_file.read_text() == page
