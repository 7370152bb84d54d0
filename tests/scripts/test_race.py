"""`scripts.races`: statistics by hand, verdicts from made-up results, a tiny race end to end."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.proofs.pages.results import save_results
from scripts.races.gymnasium import GYMNASIUM
from scripts.races.measurement import (
    first_reached,
    measured_before,
    ratio_of_areas,
    with_other_tracks,
)
from scripts.races.on_policy import ON_POLICY
from scripts.races.page import write_page
from scripts.races.record import EntrantResult, RaceRecord, RaceSeed, load_race
from scripts.races.thousands import THOUSANDS
from tests.scripts.made_up_proofs import ORIGIN
from tests.scripts.test_baselines import PPO_TINY

RACES = "scripts.races.__main__"
SB3, OURS, BF16 = "Stable-Baselines3", "sac_sb3", "sac_sb3 in bf16"
TRACKS = ("HalfCheetah-v5", "Hopper-v5")


def made_up_seed(*, values, seed=0, seconds=100.0):
    count = len(values)
    return RaceSeed(
        seed=seed, commit="0123456789ab", seconds=seconds, collect_share=0.2, learn_share=None,
        steps=[1000 * (i + 1) for i in range(count)],
        times=[seconds * (i + 1) / count for i in range(count)], values=list(values),
    )  # fmt: skip


def made_up(levels, *, seconds=None, race=None):
    """Results whose seeds stay at these values on every track, by entrant."""
    race = race or GYMNASIUM
    tracks = {}
    for track in race.tracks:
        for name, values in levels.items():
            seeds = [
                made_up_seed(values=[value] * 3, seed=i, seconds=(seconds or {}).get(name, 100.0))
                for i, value in enumerate(values)
            ]
            tracks.setdefault(track.name, {})[name] = EntrantResult(
                command="robot-rl train", config_sha256="0" * 64, seeds=seeds
            )
    return RaceRecord(
        name=race.name, command="python -m scripts.races", overrides=[], origin=ORIGIN,
        tracks=tracks,
    )  # fmt: skip


def test_area_is_the_mean_over_steps_with_straight_lines_between():
    seed = made_up_seed(values=[0.0, 1.0, 3.0])
    assert seed.area == (0.5 + 2.0) / 2
    assert made_up_seed(values=[7.0]).area == 7.0


def test_race_of_one_track_keeps_the_others(tmp_path):
    race, path = GYMNASIUM, tmp_path / "gymnasium.json"
    old = made_up({SB3: [1.0], OURS: [1.0], BF16: [1.0]})
    fresh = made_up({SB3: [2.0], OURS: [2.0], BF16: [2.0]})
    only = replace(fresh, tracks={TRACKS[1]: fresh.tracks[TRACKS[1]]})
    assert with_other_tracks(race, only, path) is only
    save_results(path, old)
    joined = with_other_tracks(race, only, path)
    assert [*joined.tracks] == [*TRACKS]
    assert joined.tracks[TRACKS[0]] == old.tracks[TRACKS[0]]
    assert joined.tracks[TRACKS[1]] == fresh.tracks[TRACKS[1]]
    changed = replace(only, overrides=["training.total_steps=10"])
    assert with_other_tracks(race, changed, path) is changed


def test_goal_is_reached_where_it_is_first_seen():
    hover, velocity = ON_POLICY.tracks
    seed = made_up_seed(values=[0.5, 0.96, 0.1, 0.99], seconds=400.0)
    assert first_reached(hover, seed) == (2000, 200.0)
    assert first_reached(velocity, seed) == (3000, 300.0)  # smaller is better
    never = made_up_seed(values=[0.5, 0.94])
    assert first_reached(hover, never) is None


def test_falls_count_with_one_metre_per_second():
    track = ON_POLICY.track("velocity")
    record = {"eval/mean_velocity_error": 0.1, "eval/terminated": 0.25}
    assert track.value(record) == pytest.approx(0.25 + 0.75 * 0.1)
    assert track.value({"eval/mean_velocity_error": math.nan, "eval/terminated": 1.0}) == 1.0
    assert math.isnan(track.value({"step": 3.0}))


def test_ratio_is_the_middle_of_all_seeds_in_units_of_the_yardstick():
    ours, theirs = [1.0, 8.0, 9.0, 10.0, 99.0], [4.0, 9.0, 10.0, 11.0, 50.0]
    record = made_up({SB3: theirs, OURS: ours})
    ratio, low, high = ratio_of_areas(record, TRACKS, OURS, SB3)
    assert ratio == pytest.approx(0.9)  # of ten the middle six: twice 8, 9, 10 over 10
    assert low < 0.9 < high
    same, low, high = ratio_of_areas(record, TRACKS[:1], SB3, SB3)
    assert same == pytest.approx(1.0)
    assert low < 1.0 < high


def test_a_ratio_of_one_seed_has_no_interval():
    ratio, low, high = ratio_of_areas(made_up({SB3: [2.0], OURS: [1.0]}), TRACKS, OURS, SB3)
    assert ratio == 0.5
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, []),
        ({"seconds": 61.0}, ["HalfCheetah-v5, wall", "Hopper-v5, wall"]),
        ({"seeds": 4}, ["seeds"]),
    ],
)
def test_gymnasium_is_judged_by_wall_time_and_tells_the_areas(change, failed):
    count = change.get("seeds", 5)
    levels = {SB3: 1.0, OURS: 0.91, BF16: 0.8}
    record = made_up(
        {name: [level] * count for name, level in levels.items()},
        seconds={BF16: change.get("seconds", 59.0)},
    )  # fmt: skip
    bars = GYMNASIUM.bars(record)
    missed = [bar.what for bar in bars if not bar.passed]
    assert len(missed) == len(failed)
    assert all(what.startswith(start) for what, start in zip(missed, failed, strict=True))
    page = write_page(GYMNASIUM, record)
    assert page.startswith(f"# Gymnasium beside Stable-Baselines3: {'FAIL' if failed else 'PASS'}")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| both")]
    told = [[cell.strip() for cell in row] for row in rows]
    assert [row[:2] for row in told] == [["both", "sac_sb3"], ["both", "sac_sb3 in bf16"]]
    assert [row[2].split()[0] for row in told] == ["0.91", "0.80"]


def test_page_without_a_goal_that_was_seen_says_so():
    race = ON_POLICY
    page = write_page(race, made_up({"SAC": [0.97], "PPO": [0.5]}, race=race))
    rows = [line for line in page.splitlines() if line.startswith(("| SAC", "| PPO"))]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    hover = {row[0]: row[4:6] for row in cells[:2]}
    assert hover == {"SAC": ["1.00k", "0:33"], "PPO": ["not reached", "not reached"]}
    assert page.startswith("# SAC beside PPO\n"), "a race without bars has no verdict"


@pytest.mark.slow
@pytest.mark.parametrize("race", [GYMNASIUM, ON_POLICY, THOUSANDS], ids=lambda race: race.name)
def test_everything_that_is_raced_can_be_composed(race):
    jobs = race.jobs(seeds=1, tracks=(), overrides=(), runs=Path("runs"))
    assert len({job.identity for (job,) in jobs.values()}) == len(jobs)


@pytest.mark.slow
def test_results_read_back_are_the_same_and_of_another_configuration_refused(command, here):
    record = made_up({SB3: [1.0], OURS: [1.0], BF16: [0.5]})
    save_results(Path("gymnasium.json"), record)
    assert load_race(Path("gymnasium.json")) == record
    said = command(RACES, "report", "out=.", exits=1).out
    assert "there are no results in on_policy.json" in said
    assert "'Stable-Baselines3' on 'HalfCheetah-v5' that has changed since" in said
    assert "anew: python -m scripts.races gymnasium" in said


@pytest.mark.slow
def test_seeds_that_are_in_the_results_are_not_trained_again(tmp_path):
    race, path = GYMNASIUM, tmp_path / "gymnasium.json"
    jobs = race.jobs(seeds=3, tracks=(), overrides=(), runs=tmp_path)
    assert measured_before(path, jobs) == {}
    record = made_up({SB3: [1.0, 1.0], OURS: [0.9, 0.8]})
    for (track, entrant), seeds in jobs.items():
        if (track, entrant) in ((TRACKS[0], SB3), (TRACKS[1], OURS)):
            before = record.tracks[track][entrant]
            record.tracks[track][entrant] = replace(before, **seeds[0].trained())
    save_results(path, record)
    found = measured_before(path, jobs)
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
        (["report", "num_envs=3"], "changes nothing in a report"),
        (["report", "on_policy/hover"], "a report is about the whole race"),
        (["on_policy", "seed=3"], "seed cannot be changed in a race"),
        (["on_policy", "thousands/typo"], "no track 'typo'"),
        (["on_policy", "training.total_step=3"], "did you mean 'training.total_steps'?"),
    ],
)
def test_what_decides_nothing_is_refused(refused, here, arguments, said):
    assert said in refused(RACES, *arguments)
    assert not list(here.glob("**/*.md"))


@pytest.mark.slow
def test_tiny_race_from_training_to_page(command, here):
    tiny = [one for one in PPO_TINY if not one.startswith(("steps_per_env", "hidden"))]
    arguments = (
        "on_policy/hover", *tiny, "training.random_steps=160", "training.replay_capacity=800",
        "learner.batch_size=16", "seeds=1", "runs=runs",
    )  # fmt: skip
    command(RACES, *arguments)
    record = json.loads(Path("runs/tables/on_policy.json").read_text())
    assert list(record["tracks"]) == ["hover"]
    (sac,) = record["tracks"]["hover"]["SAC"]["seeds"]
    (ppo,) = record["tracks"]["hover"]["PPO"]["seeds"]
    assert sac["steps"] == [800, 1600]
    assert 0 < sac["learn_share"] < 1
    assert ppo["learn_share"] is None
    assert ppo["times"][-1] <= ppo["seconds"]
    assert Path("runs/tables/on_policy.png").is_file()
    again = command(RACES, *arguments)
    assert "2 trainings were measured before: runs/tables/on_policy.json" in again.out
