"""The proof of a person beside a robot: verdicts and page, and a tiny one end to end."""

import json

import pytest

from robot_rl.training.runs.run_folder import RunFolder, RunState, find_runs
from scripts.proofs import people
from scripts.proofs.pages.page import write_page
from scripts.proofs.pages.record import load_record
from tests.scripts.made_up_proofs import made_up, trial

PROOFS = "scripts.proofs.__main__"
TINY = (
    "seeds=1", "training.total_steps=300", "training.evaluation_interval=300",
    "online.start_steps=100", "learner.batch_size=32", "trials=2", "record_steps=100",
    "task.episode_length=4", "training.offline.updates=0", "logging.tensorboard=false",
)  # fmt: skip


def judged(hil, silri, rlpd):
    record = made_up(people.PEOPLE, [0.2] * 3)
    told = {
        "HIL-SERL with a person": hil, "SiLRI with a person": silri, "RLPD": rlpd,
    }  # fmt: skip
    for name, rate in told.items():
        for seed in record.groups[name].seeds:
            seed.trials["policy alone"] = trial(rate)
    return record


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [
        ((0.95, 0.1, 0.5), [True, True, True, True]),
        ((0.1, 0.95, 0.5), [True, True, True, True]),
        ((0.8, 0.1, 0.9), [True, False, False, True]),
        ((0.1, 0.1, 0.0), [True, False, True, False]),
    ],
)
def test_the_better_method_with_a_person_is_judged_beside_those_without(rates, verdicts):
    record = judged(*rates)
    for group in record.groups.values():
        for seed in group.seeds:
            seed.more_evaluations.update(
                {"rollout/unaided_success": [], "rollout/intervention_rate": []}
            )
    assert [bar.passed for bar in people.PEOPLE.bars(record)] == verdicts
    page = write_page(people.PEOPLE, record, picture="people.png")
    assert page.count("**FAIL**") == verdicts.count(False)


def test_minutes_count_from_the_first_full_window_and_help_is_shown_over_time():
    record = judged(0.9, 0.9, 0.1)
    unaided = [(1500.0, 1.0), (4500.0, 0.85), (6000.0, 0.9), (9000.0, 0.5)]
    for group in record.groups.values():
        for seed in group.seeds:
            seed.more_evaluations.update({
                "rollout/unaided_success": unaided,
                "rollout/intervention_rate": [
                    (3000.0, 0.6), (9000.0, 0.2 + 0.1 * seed.seed), (14000.0, 0.1),
                ],
            })  # fmt: skip
    assert people.minutes_to_success(record.groups["RLPD"].seeds[0]) == 4.0
    lines = people.findings(record).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "RLPD" in line]
    assert rows[0] == ["RLPD", "4.0", "4.0", "4.0"]
    assert rows[1][1:] == ["60% (60% to 60%)", *["30% (20% to 40%)"] * 2, "-"]


@pytest.mark.slow
def test_a_tiny_proof_learns_beside_a_person_tries_and_is_not_repeated(tmp_path, command):
    arguments = ("people", *TINY, f"runs={tmp_path}")
    command(PROOFS, *arguments, exits=1)
    record = load_record(tmp_path / "tables" / "people.json")
    assert (tmp_path / "tables" / "people.png").is_file()
    helped = record.groups["HIL-SERL with a person"].seeds[0]
    alone = record.groups["RLPD"].seeds[0]
    assert max(rate for _, rate in helped.more_evaluations["rollout/intervention_rate"]) > 0
    assert max(rate for _, rate in alone.more_evaluations["rollout/intervention_rate"]) == 0
    assert helped.trials["policy alone"].episodes == 2
    runs = find_runs(tmp_path)
    assert len(runs) == 5
    assert all(RunFolder.open(run).status().state is RunState.FINISHED for run in runs)
    assert all(len(json.loads((run / "trials.json").read_bytes())) == 2 for run in runs)
    command(PROOFS, *arguments, exits=1)
    assert find_runs(tmp_path) == runs
