"""`robot-rl data`: data sets on the command line, and what it says where something is wrong."""

import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from robot_rl.datasets.reader import EpisodeDataset
from tests.robot_rl.datasets.samples import PLAIN, SPEC, episode, same, write

TOLD = [episode(i, 4 + i) for i in range(6)]


@pytest.fixture
def week(tmp_path: Path) -> Path:
    return write(tmp_path / "week", *TOLD)


def digests(folder: Path) -> list[str]:
    return [one.digest() for one in EpisodeDataset(folder)]


def test_info_says_what_is_there(command, week):
    answer = command("data", "info", str(week))
    told = dict(line.split(maxsplit=1) for line in answer.out.splitlines()[1:])
    assert told["robot"] == "arm 1"
    assert told["groups"] == "actor 3, critic 1"
    assert told["rewards"] == "near, effort"
    assert told["episodes"] == "6"
    assert told["steps"].startswith("39 ")
    assert told["lengths"] == "4 to 9 steps"
    assert told["success"] == "2 of 6 episodes"
    assert told["ends"] == "3 terminated, 3 truncated"


def test_info_finds_damage_and_repair_saves_the_rest(command, week):
    file = week / "data/chunk-000/file-003.parquet"
    file.write_bytes(file.read_bytes()[:-7])
    answer = command("data", "info", str(week), exits=1)
    assert f"damaged   the file {file} has" in answer.out
    answer = command("data", "repair", str(week), exits=1)  # an episode is lost
    assert f"lost: the file {file} cannot be read as Parquet" in answer.out
    assert f"5 whole episodes in {week}_repaired" in answer.out
    assert digests(Path(f"{week}_repaired")) == [one.digest() for one in TOLD[:3] + TOLD[4:]]
    answer = command("data", "repair", f"{week}_repaired")
    assert answer.out == f"{week}_repaired is whole: 5 episodes\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["week.hdf5", "week.npz", "week_minari"])
def test_there_and_back_again(command, week, tmp_path, name):
    there, back = tmp_path / name, tmp_path / "back"
    to = ["to=minari"] if name == "week_minari" else []
    command("data", "convert", str(week), str(there), *to)
    answer = command("data", "convert", str(there), str(back))
    assert f"wrote 6 episodes to {back} (episodes): actor 3, critic 1, action 2" in answer.out
    assert answer.out.endswith(", 39 steps\n")
    assert digests(back) == digests(week)
    assert EpisodeDataset(back).spec == SPEC


@pytest.mark.slow
def test_data_of_others_come_in(command, tmp_path):
    path, out = tmp_path / "lift.hdf5", tmp_path / "lift"
    with h5py.File(path, "w") as file:
        for name, value in {
            "obs/joints": np.zeros((4, 2)), "obs/cube": np.ones((4, 1)),
            "obs/camera": np.zeros((4, 2, 2, 3), np.uint8), "actions": np.full((4, 1), 3.0),
            "rewards": np.zeros(4), "dones": np.zeros(4),
        }.items():  # fmt: skip
            file[f"data/demo_0/{name}"] = value
    come = ["data", "convert", str(path), str(out), "control_dt=0.05"]
    answer = command(*come, "action_range=-4,4", "robot=panda", "task=lift it")
    assert "note: 'camera' of shape (2, 2, 3) is left out: it is no vector" in answer.out
    assert "note: the observation groups are cube, joints; learners read 'actor'" in answer.out
    shutil.rmtree(out)
    answer = command(*come, "action_range=-4,4", "robot=panda", "groups={actor:[cube,joints]}")
    dataset = EpisodeDataset(out)
    assert dataset.spec.groups == {"actor": 3}
    assert dataset.spec.robot is not None
    assert dataset.spec.robot["name"] == "panda"
    (one,) = dataset
    assert one.action.tolist() == [[0.75]] * 3
    assert one.obs["actor"].tolist() == [[1, 0, 0]] * 4


@pytest.mark.slow
def test_merged_and_split_again_nothing_is_lost_or_changed(command, week, tmp_path):
    other, both = write(tmp_path / "other", episode(7)), tmp_path / "both"
    command("data", "merge", str(week), str(other), f"out={both}")
    assert digests(both) == digests(week) + digests(other)
    parts = tmp_path / "parts"
    command("data", "split", str(both), f"out={parts}", "shares=train:0.7,val:0.3")
    found = [digests(parts / name) for name in ("train", "val")]
    assert [len(one) for one in found] == [5, 2]
    assert sorted(found[0] + found[1]) == sorted(digests(both))
    command("data", "split", str(both), f"out={tmp_path / 'tasks'}", "by_task=true")
    assert EpisodeDataset(tmp_path / "tasks" / "task_1").tasks == ["task 1"] * 3


def test_copies_are_counted_and_not_divided(command, week, tmp_path):
    double, parts = tmp_path / "double", tmp_path / "parts"
    answer = command("data", "merge", str(week), str(week), f"out={double}")
    assert "note: 6 of them are copies of others" in answer.out
    command("data", "split", str(double), f"out={parts}", "shares=train:0.5,val:0.5")
    train, val = (digests(parts / name) for name in ("train", "val"))
    assert [len(train), len(val)] == [6, 6]
    assert not set(train) & set(val)


def test_data_of_another_meaning_are_not_merged(command, refused, tmp_path):
    near, far, old = (tmp_path / name for name in ("near", "far", "old"))
    for folder, high in ((near, 0.3), (far, 1.0)):
        meaning = {"action": {"kind": "joint", "high": [high, high]}, "terms": {}}
        write(folder, episode(len(folder.name)), spec=replace(SPEC, meaning=meaning))
    write(old, episode(9))
    told = refused("data", "merge", str(old), str(near), str(far), f"out={tmp_path / 'x'}")
    assert f"{near} and {far} do not go together" in told
    assert "meaning: action.high[0] is 0.3 there, and 1.0 here" in told
    command("data", "merge", str(old), str(near), f"out={tmp_path / 'both'}")
    assert not EpisodeDataset(tmp_path / "both").spec.meaning, "nobody knows it of the old ones"
    command("data", "split", str(near), f"out={tmp_path / 'parts'}", "shares=all:1.0")
    assert EpisodeDataset(tmp_path / "parts/all").spec.meaning["action"]["high"] == [0.3, 0.3]


def test_relabelling_changes_what_was_asked_for_and_nothing_else(command, week, tmp_path):
    out = tmp_path / "told"
    command(
        "data", "relabel", str(week), f"out={out}", "episodes=0:2,4", "task=anew",
        "success=true", "weights=near:2", "weights=effort:-1",
    )  # fmt: skip
    for number, (old, new) in enumerate(zip(TOLD, EpisodeDataset(out), strict=True)):
        if number not in (0, 1, 4):
            assert same(old, new)
            continue
        assert (new.task, bool(new.success[-1])) == ("anew", True)
        assert old.reward_terms is not None
        assert new.reward == pytest.approx(old.reward_terms @ np.array([2, -1]), abs=1e-6)
        assert (new.action == old.action).all()


def test_success_of_some_episodes_alone_is_not_judged(command, refused, week, tmp_path):
    """The others became failures, which nobody had said."""
    unjudged = write(tmp_path / "new", *TOLD, spec=replace(SPEC, judges_success=False))
    some, every = tmp_path / "some", tmp_path / "every"
    told = refused("data", "relabel", str(unjudged), f"out={some}", "episodes=0:2", "success=true")
    assert "success=true was asked for of 2 of 6 episodes" in told
    assert "the 4 others would count as failures" in told
    command("data", "relabel", str(unjudged), f"out={every}", "success=false")
    command("data", "relabel", str(every), f"out={some}", "episodes=0:2", "success=true")
    assert [bool(one.success[-1]) for one in EpisodeDataset(some)] == [True] * 2 + [False] * 4


@pytest.mark.slow
def test_plot_draws_a_picture(command, week, tmp_path):
    out = tmp_path / "deep" / "week.png"
    answer = command("data", "plot", str(week), "episodes=0:2", f"out={out}")
    assert answer.out == f"drew {out}\n"
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("info nowhere", "nowhere does not exist; expected the folder of a data set of episodes"),
        ("convert week x control_dt=0.1", "week is ours, which says everything"),
        ("convert week other", "other exists already and is not empty; choose a new folder"),
        (
            "convert week.npz x groups=actor",
            "groups must be a dictionary such as {a:1,b:2}, got 'actor'",
        ),
        (
            "convert week.npz x action_range=1,1",
            "action_range=1,1 was asked for; expected LOW,HIGH",
        ),
        ("merge week other out=x", "week and other do not go together: observation groups"),
        ("split week out=x", "split takes shares=train:0.9,val:0.1 or by_task=true"),
        ("split week out=x shares=a:0.99,b:0.01", "the part 'b' would get none of the 6"),
        ("split week out=x shares=../a:0.5,b:0.5", "the part '../a' names a folder: expected lett"),
        ("split week out=x shares=a/b:0.5,a:0.5", "the part 'a/b' names a folder"),
        ("split week out=x shares=a:0.5,b:nan", "do not add up to 1"),
        ("split week out=x shares=a:0.5,b:0.5 seed=-1", "seed must be at least 0, got -1"),
        ("relabel week out=x", "relabel takes task, success, valid or weights; got none"),
        ("relabel week out=x weights=nera:1", "reward term 'nera' is unknown (did you mean"),
        ("relabel week out=x task=t episodes=9", "episode 9 of week was asked for; it has 6"),
        ("plot week episodes=all", "episodes 'all' were asked for; expected such as 0:10,15"),
        ("merge week out=x", "data merge takes 2 paths, got week"),
        ("relabel week out=x success=yes", "success must be true or false, got 'yes'"),
    ],
)
def test_mistakes_are_one_sentence(refused, week, monkeypatch, words, sentence):
    monkeypatch.chdir(week.parent)
    write(Path("other"), episode(1, spec=PLAIN), spec=PLAIN)
    np.savez("week.npz", observations=np.zeros((1, 1)))
    assert sentence in refused("data", *words.split())
    assert not Path("x").exists()
