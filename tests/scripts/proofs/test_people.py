"""The proof of a person beside a robot: verdicts and page, and a tiny one end to end."""

import json

import pytest

from configs.compose import compose, to_plain
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


def help_over_time(record, share):
    """The person's share of the steps of every run, at first and in the end."""
    for group in record.groups.values():
        for seed in group.seeds:
            curve = [(600.0, 0.9), (7200.0, share)]
            seed.more_evaluations.update(
                {"rollout/unaided_success": [], "rollout/intervention_rate": curve}
            )


def test_the_experiment_that_pages_name_is_what_the_proof_trains():
    (group,) = [one for one in people.PEOPLE.groups if one.name == "HIL-SERL with a person"]
    of_the_robot = ("twin.", "person=", "record_steps=", "device=", "training.prior.run=")
    fields = [one for one in group.overrides if not one.startswith(of_the_robot)]
    assert to_plain(compose(fields, beside_robots=True).config) == to_plain(
        compose(["experiment=peg_with_person"]).config
    )


@pytest.mark.parametrize(
    ("rates", "share", "verdicts"),
    [
        ((0.95, 0.1, 0.5), 0.04, [True, True, True, True, True]),
        ((0.1, 0.95, 0.5), 0.04, [True, False, False, False, True]),
        ((0.8, 0.1, 0.9), 0.06, [True, False, False, True, False]),
        ((0.95, 0.1, 0.0), 0.3, [True, True, True, True, False]),
    ],
)
def test_hil_serl_is_judged_beside_those_without_a_person(rates, share, verdicts):
    record = judged(*rates)
    help_over_time(record, share)
    assert [bar.passed for bar in people.PEOPLE.bars(record)] == verdicts
    page = write_page(people.PEOPLE, record, picture="people.png")
    assert page.count("**FAIL**") == verdicts.count(False)


def test_of_a_run_without_records_nothing_is_said_about_help():
    record = judged(0.95, 0.1, 0.5)
    for group in record.groups.values():
        for seed in group.seeds:
            seed.more_evaluations["rollout/intervention_rate"] = []
    assert not people.PEOPLE.bars(record)[-1].passed


def test_observations_of_the_task_keep_their_braces_in_the_commands(tmp_path):
    jobs = people.PEOPLE.jobs(seeds=1, overrides=(), runs=tmp_path)
    for made in jobs.values():
        config = made[0].config
        assert config.task.actor[-1].term == "sensed/target_offset"
        assert config.robot.decimation * config.robot.physics_dt == pytest.approx(0.1)
    assert jobs["RLPD"][0].config.training.prior.run.startswith(str(tmp_path))


def test_minutes_count_from_the_first_full_window_and_help_is_shown_over_time():
    record = judged(0.9, 0.9, 0.1)
    unaided = [(600.0, 1.0), (1800.0, 0.85), (2400.0, 0.9), (3600.0, 0.5)]
    for group in record.groups.values():
        for seed in group.seeds:
            seed.more_evaluations.update({
                "rollout/unaided_success": unaided,
                "rollout/intervention_rate": [
                    (1200.0, 0.6), (3600.0, 0.2 + 0.1 * seed.seed), (5600.0, 0.1),
                ],
            })  # fmt: skip
    assert people.minutes_to_success(record.groups["RLPD"].seeds[0]) == 4.0
    lines = people.findings(record).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "RLPD" in line]
    assert rows[0] == ["RLPD", "4.0", "4.0", "4.0"]
    assert rows[1][1:] == ["60% (60% to 60%)", *["30% (20% to 40%)"] * 2, "-"]


@pytest.mark.slow
@pytest.mark.full
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
