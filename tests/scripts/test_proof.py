"""`scripts.proofs`: verdicts and pages from made-up results, and a tiny proof from end to end."""

import importlib
import json
from pathlib import Path

import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.training.trainer import VALIDATION_SEED
from tests.robot_rl.cli.tiny_run import TINY
from tests.scripts.made_up_proofs import made_up, proofs, trial

__all__ = ["proofs"]  # a fixture


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [
        ([0.96] * 10, [True, True, True]),
        ([0.9] + [0.96] * 9, [True, True, True]),
        ([0.89] + [0.99] * 9, [True, False, True]),
        ([0.94] * 10, [True, True, False]),
        ([0.99] * 9, [False, True, True]),
        ([float("nan")] + [0.99] * 9, [True, False, False]),
    ],
)
def test_hover_is_judged_by_worst_seed_mean_and_number_of_seeds(proofs, rates, verdicts):
    hover = proofs.hover.HOVER
    record = made_up(proofs, hover, rates)
    assert [bar.passed for bar in hover.bars(record)] == verdicts
    page = proofs.page.write_page(hover, record, picture=None)
    assert page.startswith(f"# Hover: {'PASS' if all(verdicts) else 'FAIL'}\n")
    assert page.count("**FAIL**") == verdicts.count(False)
    assert page.count("**PASS**") == verdicts.count(True)


@pytest.mark.parametrize(
    ("name", "changes", "verdicts"),
    [
        ("tracking", {}, [True, True, True]),
        ("tracking", {"rms": 0.151}, [True, False, True]),
        ("tracking", {"seconds": 601.0}, [True, True, False]),
        ("tracking", {"rates": [0.9] * 4}, [False, True, True]),
        ("reach", {}, [True, True, True]),
        ("reach", {"rates": [0.99] * 4 + [0.949]}, [True, False, True]),
        ("reach", {"seconds": 601.0}, [True, True, False]),
        ("reach", {"rates": [0.99] * 4}, [False, True, True]),
        ("velocity", {}, [True, True, True]),
        ("velocity", {"rms": 0.151}, [True, False, True]),
        ("velocity", {"rms": float("nan")}, [True, False, True]),
        ("velocity", {"seconds": 3601.0}, [True, True, False]),
        ("velocity", {"rates": [0.9]}, [False, True, True]),
    ],
)
def test_others_are_judged_by_seeds_by_the_worst_of_them_and_by_time(
    proofs, name, changes, verdicts
):
    proof = getattr(getattr(proofs, name), name.upper())
    rates = {"tracking": [0.9] * 5, "reach": [0.96] * 5, "velocity": [0.9] * 2}[name]
    record = made_up(proofs, proof, **{"rates": rates, **changes})
    assert [bar.passed for bar in proof.bars(record)] == verdicts
    page = proofs.page.write_page(proof, record, picture=None)
    assert page.count("**FAIL**") == verdicts.count(False)
    assert ("| velocity error" in page) == (name == "velocity")


@pytest.mark.parametrize(
    ("module", "name", "seeds"), [("tracking", "TRACKING", 5), ("velocity", "VELOCITY", 2)]
)
def test_a_seed_without_an_error_passes_no_bar_wherever_it_stands(proofs, module, name, seeds):
    proof = getattr(getattr(proofs, module), name)
    for lost in range(seeds):
        record = made_up(proofs, proof, [0.9] * seeds)
        for group in record.groups.values():
            trials = group.seeds[lost].trials
            trials.update({one: trial(proofs, rms=float("nan")) for one in trials})
        assert [bar.passed for bar in proof.bars(record)].count(False) == 1, lost


def test_page_tells_worst_mean_and_middle_of_the_seeds(proofs):
    hover = proofs.hover.HOVER
    record = made_up(proofs, hover, [0.90, 0.91, 0.93, 0.98])
    lines = proofs.page.write_page(hover, record, picture="hover.png").splitlines()
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
    widths = [{len(line) for line in block.splitlines()} for block in "\n".join(lines).split("\n\n")
              if block.startswith("|")]  # fmt: skip
    assert all(len(width) == 1 for width in widths), "columns are aligned"


def test_results_read_back_are_the_same(proofs, tmp_path):
    record = made_up(proofs, proofs.hover.HOVER, [0.9] * 2)
    path = tmp_path / "new" / "hover.json"
    proofs.results.save_results(path, record)
    assert proofs.record.load_record(path) == record


def test_report_writes_the_page_again_and_exits_by_the_verdict(proofs, command, here):
    tracking = proofs.tracking.TRACKING
    (job, *_) = tracking.jobs(seeds=1, overrides=(), runs=Path("runs"))["tracking"]
    for rms, code, word in ((0.1, 0, "PASS"), (0.2, 1, "FAIL")):
        record = made_up(proofs, tracking, [0.9] * 5, rms=rms, hashes={"tracking": job.identity})
        proofs.results.save_results(Path("tracking.json"), record)
        answer = command("scripts.proofs.__main__", "report", "tracking", "out=.")
        assert answer.code == code
        assert f"{word} mean RMS error, worst seed: {rms} <= 0.15" in answer.out
        assert Path("tracking.md").read_text().startswith(f"# Trajectory tracking: {word}")


def test_report_of_another_configuration_is_refused(proofs, refused, here):
    record = made_up(proofs, proofs.tracking.TRACKING, [0.9] * 5)
    proofs.results.save_results(Path("tracking.json"), record)
    said = refused("scripts.proofs.__main__", "report", "tracking", "out=.")
    assert "anew: python -m scripts.proofs tracking" in said


def test_a_published_model_that_is_not_used_is_no_change(proofs):
    job = proofs.reach.REACH.jobs(seeds=1, overrides=(), runs=Path("runs"))["reach"][0]
    before = json.loads(json.dumps(job.trained()))
    before["config"]["robot"]["menagerie"] = ""
    assert proofs.results.changes(proofs.results.Trained(**before), job) == []
    before["config"]["robot"]["model"] = "menagerie"  # there it says which
    found = proofs.results.changes(proofs.results.Trained(**before), job)
    assert {told.partition(":")[0] for told in found} == {"robot.menagerie", "robot.model"}


def test_what_has_changed_since_is_named(proofs):
    job = proofs.tracking.TRACKING.jobs(seeds=1, overrides=(), runs=Path("runs"))["tracking"][0]
    trained = proofs.results.Trained(**json.loads(json.dumps(job.trained())))
    assert proofs.results.changes(trained, job) == []
    assert proofs.results.changes(trained, None) == ["nobody trains it any more"]
    before = json.loads(json.dumps(job.trained()))
    before["config"]["device"] = "cuda:3"  # another machine reports on it
    del before["config"]["learner"]["batch_size"]  # a field that is newer than the results
    del before["config"]["task"]["actor"][1]["clip"]  # the same, of an entry of a list
    assert proofs.results.changes(proofs.results.Trained(**before), job) == []
    del before["config"]["learner"]["n_step"]  # that is newer, and not what was meant before
    del before["config"]["task"]["reward"]["initial"]["alive"]  # a new reward is always a change
    steps = before["config"]["training"]["total_steps"]
    before["config"]["training"]["total_steps"] = 7
    before["config"]["task"]["was"] = 1
    before["config"]["task"]["critic"][0]["scale"] = 3.0
    before["config"]["robot"]["spec"]["rotors"] = before["config"]["robot"]["spec"]["rotors"][:2]
    found = proofs.results.changes(proofs.results.Trained(**before), job)
    scale = job.config.task.critic[0].scale
    assert sorted(found) == [
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
        (["hover", "seed=3"], "seeds=<number>"),
        (["hover", "jobs=0"], "jobs must be at least 1"),
        (["report", "out=."], "there are no results in hover.json"),
        (["report", "num_envs=3"], "changes nothing in a report"),
        (["hover", "training.total_step=3"], "did you mean 'training.total_steps'?"),
    ],
)
def test_what_proves_nothing_is_refused(refused, here, arguments, said):
    assert said in refused("scripts.proofs.__main__", *arguments)
    assert not list(here.glob("**/*.md"))


def test_help_names_the_proofs_and_their_bars(command):
    answer = command("scripts.proofs.__main__", "--help")
    assert answer.code == 0
    for word in ("worst >= 90 %", "RMS error <= 0.15 m", "worst >= 95 %", "<= 0.15 m/s each"):
        assert word in answer.out
    assert max(map(len, answer.out.splitlines())) <= 100


def test_policies_are_flown_at_starts_that_chose_no_checkpoint(proofs):
    evaluate = importlib.import_module("robot_rl.cli.evaluation")
    assert evaluate.EvaluateOptions(run="x").seed == proofs.flights.TEST_SEED != VALIDATION_SEED


@pytest.mark.slow
def test_flight_that_leaves_the_box_is_lost(proofs):
    (job, *_) = proofs.hover.HOVER.jobs(seeds=1, overrides=(), runs=Path("runs"))["plant A"]
    flights = proofs.flights
    free = flights.Condition(name="free", about="")
    tight = flights.Condition(name="tight", about="", box=0.15)  # starts lie up to 0.2 m off
    calm, boxed = (flights.fly_expert(job.config, one, episodes=16) for one in (free, tight))
    assert calm.success > 0.8
    assert boxed.success < calm.success
    assert boxed.ended == pytest.approx(1 - boxed.success, abs=1 - calm.success)


@pytest.mark.slow
def test_tiny_proof_from_training_to_page(command, here):
    arguments = ("hover", *TINY, "seeds=1", "episodes=4", "out=new/folder")
    answer = command("scripts.proofs.__main__", *arguments)
    assert answer.code == 1, answer.err  # one seed of ten: a bar is missed
    assert "FAIL seeds: 1 >= 10" in answer.out
    record = json.loads(Path("new/folder/hover.json").read_text())
    assert record["bars"][0] == {
        "what": "seeds", "value": 1, "limit": 10, "at_least": True, "unit": "", "passed": False,
    }  # fmt: skip
    seed = record["groups"]["plant A"]["seeds"][0]
    assert set(seed["trials"]) == {"held-out starts", "starts of the paper", "measured plant"}
    assert 0 < seed["learner_share"] < 1
    assert seed["world_steps"] == 1600
    assert list(Path("outputs/proofs").glob("*_s0/replay")) == []
    page_file = Path("new/folder/hover.md")
    page = page_file.read_text()
    assert "![Learning curves over seeds](hover.png)" in page
    assert "Changed in every training: `experiment=smoke" in page
    again = command("scripts.proofs.__main__", *arguments)
    assert "3 of 3 trainings were finished before" in again.out
    page = page_file.read_text()
    assert command("scripts.proofs.__main__", "report", "hover", "out=new/folder").code == 1
    assert page_file.read_text() == page


def test_mistake_in_an_override_is_told_before_anything_is_trained(proofs):
    with pytest.raises(ConfigError, match="did you mean"):
        proofs.hover.HOVER.jobs(seeds=1, overrides=("learner.gama=1",), runs=Path("runs"))
