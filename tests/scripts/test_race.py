"""`scripts.races`: statistics by hand, verdicts from made-up results, a tiny race end to end."""

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.scripts.test_train_ppo import TINY

SB3, OURS, BF16 = "Stable-Baselines3", "sac_sb3", "sac_sb3 in bf16"
TRACKS = ("HalfCheetah-v5", "Hopper-v5")


@pytest.fixture
def races(monkeypatch):
    names = ("gymnasium", "measurement", "on_policy", "page", "plan", "record", "thousands")
    modules = {name: importlib.import_module(f"scripts.races.{name}") for name in names}
    return SimpleNamespace(
        **modules, results=importlib.import_module("scripts.proofs.pages.results")
    )


def made_up_seed(races, *, values, seed=0, seconds=100.0):
    count = len(values)
    return races.record.RaceSeed(
        seed=seed, commit="0123456789ab", seconds=seconds, collect_share=0.2, learn_share=None,
        steps=[1000 * (i + 1) for i in range(count)],
        times=[seconds * (i + 1) / count for i in range(count)], values=list(values),
    )  # fmt: skip


def made_up(races, levels, *, seconds=None, hashes=None, race=None):
    """Results whose seeds stay at these values on every track, by entrant."""
    race = race or races.gymnasium.GYMNASIUM
    tracks = {}
    for track in race.tracks:
        for name, values in levels.items():
            seeds = [
                made_up_seed(
                    races, values=[value] * 3, seed=i, seconds=(seconds or {}).get(name, 100.0)
                )
                for i, value in enumerate(values)
            ]
            tracks.setdefault(track.name, {})[name] = races.record.EntrantResult(
                command="robot-rl train",
                config_sha256=(hashes or {}).get((track.name, name), "0" * 64),
                seeds=seeds,
            )
    origin = {
        "date": "2026-01-31T14:05+00:00", "git": "0123456789ab", "python": "3.11",
        "packages": {"torch": "2.13.0"}, "processor": "a processor", "processors": 2,
        "load_average": 0.1, "jobs": 2,
    }  # fmt: skip
    return races.record.RaceRecord(
        name=race.name, command="python -m scripts.races", overrides=[], origin=origin,
        tracks=tracks,
    )  # fmt: skip


def test_area_is_the_mean_over_steps_with_straight_lines_between(races):
    seed = made_up_seed(races, values=[0.0, 1.0, 3.0])
    assert seed.area == (0.5 + 2.0) / 2
    assert made_up_seed(races, values=[7.0]).area == 7.0


def test_race_of_one_track_keeps_the_others(races, tmp_path):
    race, path = races.gymnasium.GYMNASIUM, tmp_path / "gymnasium.json"
    old = made_up(races, {SB3: [1.0], OURS: [1.0], BF16: [1.0]})
    fresh = made_up(races, {SB3: [2.0], OURS: [2.0], BF16: [2.0]})
    only = replace(fresh, tracks={TRACKS[1]: fresh.tracks[TRACKS[1]]})
    assert races.measurement.with_other_tracks(race, only, path) is only
    races.results.save_results(path, old)
    joined = races.measurement.with_other_tracks(race, only, path)
    assert [*joined.tracks] == [*TRACKS]
    assert joined.tracks[TRACKS[0]] == old.tracks[TRACKS[0]]
    assert joined.tracks[TRACKS[1]] == fresh.tracks[TRACKS[1]]
    changed = replace(only, overrides=["training.total_steps=10"])
    assert races.measurement.with_other_tracks(race, changed, path) is changed


def test_goal_is_reached_where_it_is_first_seen(races):
    hover, velocity = races.on_policy.ON_POLICY.tracks
    seed = made_up_seed(races, values=[0.5, 0.96, 0.1, 0.99], seconds=400.0)
    assert races.measurement.first_reached(hover, seed) == (2000, 200.0)
    assert races.measurement.first_reached(velocity, seed) == (3000, 300.0)  # smaller is better
    never = made_up_seed(races, values=[0.5, 0.94])
    assert races.measurement.first_reached(hover, never) is None


def test_falls_count_with_one_metre_per_second(races):
    track = races.on_policy.ON_POLICY.track("velocity")
    record = {"eval/mean_velocity_error": 0.1, "eval/terminated": 0.25}
    assert track.value(record) == pytest.approx(0.25 + 0.75 * 0.1)
    assert track.value({"eval/mean_velocity_error": math.nan, "eval/terminated": 1.0}) == 1.0
    assert math.isnan(track.value({"step": 3.0}))


def test_ratio_is_the_middle_of_all_seeds_in_units_of_the_yardstick(races):
    ours, theirs = [1.0, 8.0, 9.0, 10.0, 99.0], [4.0, 9.0, 10.0, 11.0, 50.0]
    record = made_up(races, {SB3: theirs, OURS: ours})
    ratio, low, high = races.measurement.ratio_of_areas(record, TRACKS, OURS, SB3)
    assert ratio == pytest.approx(0.9)  # of ten the middle six: twice 8, 9, 10 over 10
    assert low < 0.9 < high
    same, low, high = races.measurement.ratio_of_areas(record, TRACKS[:1], SB3, SB3)
    assert same == pytest.approx(1.0)
    assert low < 1.0 < high


def test_interval_of_a_bar_stands_beside_its_value_and_decides_nothing(races):
    bar = importlib.import_module("scripts.proofs.pages.results").Bar
    told = bar(what="area", value=0.99, limit=0.9, interval=(0.69, 1.58))
    assert told.passed
    row = importlib.import_module("scripts.proofs.pages.tables").bars_table([told]).splitlines()[-1]
    assert "| 0.99 (0.69 to 1.58) | **PASS**" in row


def test_interval_of_one_seed_is_none(races):
    record = made_up(races, {SB3: [2.0], OURS: [1.0]})
    ratio, low, high = races.measurement.ratio_of_areas(record, TRACKS, OURS, SB3)
    assert ratio == 0.5
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, []),
        ({"ours": 0.89}, ["HalfCheetah-v5, area", "Hopper-v5, area", "both, sac_sb3, area"]),
        ({"bf16": 0.89}, ["both, sac_sb3 in bf16, area"]),
        ({"seconds": 61.0}, ["HalfCheetah-v5, wall", "Hopper-v5, wall"]),
        ({"seeds": 4}, ["seeds"]),
        ({"ours": math.nan}, ["HalfCheetah-v5, area", "Hopper-v5, area", "both, sac_sb3, area"]),
    ],
)
def test_gymnasium_is_judged_by_area_and_wall_time(races, change, failed):
    count = change.get("seeds", 5)
    levels = {SB3: 1.0, OURS: change.get("ours", 0.91), BF16: change.get("bf16", 0.91)}
    record = made_up(
        races, {name: [level] * count for name, level in levels.items()},
        seconds={BF16: change.get("seconds", 59.0)},
    )  # fmt: skip
    bars = races.gymnasium.GYMNASIUM.bars(record)
    missed = [bar.what for bar in bars if not bar.passed]
    assert len(missed) == len(failed)
    assert all(what.startswith(start) for what, start in zip(missed, failed, strict=True))
    page = races.page.write_page(races.gymnasium.GYMNASIUM, record)
    assert page.startswith(f"# Gymnasium beside Stable-Baselines3: {'FAIL' if failed else 'PASS'}")


def test_page_without_a_goal_that_was_seen_says_so(races):
    race = races.on_policy.ON_POLICY
    page = races.page.write_page(race, made_up(races, {"SAC": [0.97], "PPO": [0.5]}, race=race))
    rows = [line for line in page.splitlines() if line.startswith(("| SAC", "| PPO"))]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    hover = {row[0]: row[4:6] for row in cells[:2]}
    assert hover == {"SAC": ["1.00k", "0:33"], "PPO": ["not reached", "not reached"]}
    assert page.startswith("# SAC beside PPO\n"), "a race without bars has no verdict"


def test_seeds_take_turns(races):
    jobs = races.gymnasium.GYMNASIUM.jobs(seeds=2, tracks=(), overrides=(), runs=Path("runs"))
    order = [(job.seed, job.script) for job in races.plan.in_turns([*jobs.values()])]
    assert [seed for seed, _ in order] == [0] * 6 + [1] * 6
    assert [script for _, script in order[:3]] == ["train_sb3", "train", "train"]


def test_everything_that_is_raced_can_be_composed(races):
    for race in (races.gymnasium.GYMNASIUM, races.on_policy.ON_POLICY, races.thousands.THOUSANDS):
        jobs = race.jobs(seeds=1, tracks=(), overrides=(), runs=Path("runs"))
        hashes = {job.identity for (job,) in jobs.values()}
        assert len(hashes) == len(jobs)


def test_results_read_back_are_the_same(races, tmp_path):
    record = made_up(races, {SB3: [1.0], OURS: [1.0], BF16: [0.5]})
    races.results.save_results(tmp_path / "new" / "race.json", record)
    assert races.record.load_race(tmp_path / "new" / "race.json") == record


def test_report_of_another_configuration_is_refused(races, refused, here):
    record = made_up(races, {SB3: [1.0], OURS: [1.0], BF16: [0.5]})
    races.results.save_results(Path("gymnasium.json"), record)
    said = refused("scripts.races.__main__", "report", "gymnasium", "out=.")
    assert "'Stable-Baselines3' on 'HalfCheetah-v5' that has changed since" in said
    assert "anew: python -m scripts.races gymnasium" in said


def test_seeds_that_are_in_the_results_are_not_trained_again(races, tmp_path):
    race, path = races.gymnasium.GYMNASIUM, tmp_path / "gymnasium.json"
    jobs = race.jobs(seeds=3, tracks=(), overrides=(), runs=tmp_path)
    assert races.measurement.measured_before(path, jobs) == {}
    record = made_up(races, {SB3: [1.0, 1.0], OURS: [0.9, 0.8]})
    for (track, entrant), seeds in jobs.items():
        if (track, entrant) in ((TRACKS[0], SB3), (TRACKS[1], OURS)):
            before = record.tracks[track][entrant]
            record.tracks[track][entrant] = replace(before, **seeds[0].trained())
    races.results.save_results(path, record)
    found = races.measurement.measured_before(path, jobs)
    told = {(job.label, seed.values[0]) for job, seed in found.items()}
    assert told == {
        ("HalfCheetah-v5, Stable-Baselines3, seed 0", 1.0),
        ("HalfCheetah-v5, Stable-Baselines3, seed 1", 1.0),
        ("Hopper-v5, sac_sb3, seed 0", 0.9),
        ("Hopper-v5, sac_sb3, seed 1", 0.8),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gymnasiun"], "race 'gymnasiun' is unknown (did you mean 'gymnasium'?)"),
        (["gymnasium/Ant-v5"], "no track 'Ant-v5'; known: HalfCheetah-v5, Hopper-v5"),
        (["on_policy", "jobs=0"], "jobs must be at least 1"),
        (["report", "out=."], "there are no results in gymnasium.json"),
        (["report", "num_envs=3"], "changes nothing in a report"),
        (["on_policy", "training.total_step=3"], "did you mean 'training.total_steps'?"),
    ],
)
def test_what_decides_nothing_is_refused(refused, here, arguments, said):
    assert said in refused("scripts.races.__main__", *arguments)
    assert not list(here.glob("**/*.md"))


def test_help_names_the_races_and_their_bars(command):
    answer = command("scripts.races.__main__", "--help")
    assert answer.code == 0
    for word in ("gymnasium", "on_policy", "thousands", ">= 0.9", "<= 0.6"):
        assert word in answer.out
    assert max(map(len, answer.out.splitlines())) <= 100


@pytest.mark.slow
def test_tiny_race_from_training_to_page(command, here):
    tiny = [one for one in TINY if not one.startswith(("steps_per_env", "hidden"))]
    arguments = (
        "on_policy/hover", *tiny, "training.random_steps=160", "training.replay_capacity=800",
        "learner.batch_size=16", "seeds=1", "runs=runs",
    )  # fmt: skip
    answer = command("scripts.races.__main__", *arguments)
    assert answer.code == 0, answer.err
    record = json.loads(Path("runs/tables/on_policy.json").read_text())
    assert list(record["tracks"]) == ["hover"]
    (sac,) = record["tracks"]["hover"]["SAC"]["seeds"]
    (ppo,) = record["tracks"]["hover"]["PPO"]["seeds"]
    assert sac["steps"] == [800, 1600]
    assert 0 < sac["learn_share"] < 1
    assert ppo["learn_share"] is None
    assert ppo["times"][-1] <= ppo["seconds"]
    assert Path("runs/tables/on_policy.png").is_file()
    again = command("scripts.races.__main__", *arguments)
    assert "2 trainings were measured before: runs/tables/on_policy.json" in again.out
    Path("runs/tables/on_policy.json").unlink()
    again = command("scripts.races.__main__", *arguments)
    assert "2 of 2 trainings were finished before" in again.out
