"""Data sets of others: what goes out comes back to the last bit, and what they mean is kept."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.foreign.assembly import Done, ImportChoices
from robot_rl.datasets.foreign.catalog import Format, read_any, write_any
from robot_rl.datasets.writer import write_new
from tests.matrices import some
from tests.robot_rl.datasets.samples import PLAIN, SPEC, episode, same
from tests.robot_rl.little_space import limit_files, told_by_child

CHOICES = ImportChoices(control_dt=0.1)
TOLD = [episode(i, 3 + i) for i in range(4)]
NAMES = {
    Format.minari: "set",
    Format.robomimic: "set.hdf5",
    Format.npz: "set.npz",
    Format.episodes: "s",
}


def read(path: Path, choices: ImportChoices = CHOICES) -> list[Any]:
    return list(read_any(path, choices)[1])


def hdf5(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value
    return path


def minari(folder: Path, steps: Any = 3, **changes: Any) -> Path:
    values: dict[str, Any] = {
        "observations": np.arange((steps + 1) * 2.0).reshape(steps + 1, 2),
        "actions": np.full((steps, 1), 0.5, np.float32),
        "rewards": np.arange(float(steps)),
        "terminations": np.zeros(steps, bool),
        "truncations": np.arange(steps) == steps - 1,
        **changes,
    }
    arrays = {f"episode_0/{name}": value for name, value in values.items() if value is not None}
    hdf5(folder / "data/main_data.hdf5", **arrays)
    return folder


def robomimic(path: Path, steps: Any = 4, **changes: Any) -> Path:
    frames = np.arange((steps + 1) * 2.0).reshape(steps + 1, 2)
    values: dict[str, Any] = {
        "obs/joints": frames[:-1], "next_obs/joints": frames[1:],
        "obs/camera": np.zeros((steps, 2, 2, 3), np.uint8),
        "actions": np.full((steps, 1), 0.5), "rewards": np.arange(float(steps)),
        "dones": np.arange(steps) == steps - 1, **changes,
    }  # fmt: skip
    return hdf5(path, **{f"data/demo_0/{k}": v for k, v in values.items() if v is not None})


def arrays(path: Path, rows: int = 6, **changes: Any) -> Path:
    """Two episodes: rows 0 to 2 terminate, rows 3 to 5 time out."""
    frames = np.arange(rows * 2.0).reshape(rows, 2)
    after = frames + 2
    after[2] += 100
    values: dict[str, Any] = {
        "observations": frames, "next_observations": after,
        "actions": np.full((rows, 1), 0.5), "rewards": np.arange(float(rows)),
        "terminals": np.arange(rows) == 2, "timeouts": np.arange(rows) == 5, **changes,
    }  # fmt: skip
    np.savez(path, **{name: value for name, value in values.items() if value is not None})
    return path


def lerobot(folder: Path, **info: Any) -> Path:
    """Ours without what only we know: L frames, each with an action."""
    write_new(folder, PLAIN, [episode(1, 4, PLAIN), episode(2, 3, PLAIN)])
    (folder / "meta/manifest.jsonl").unlink()
    path = folder / "meta/info.json"
    told = json.loads(path.read_text())
    ours = ("complementary_info.", "next.t", "next.valid")
    told["features"] = {k: v for k, v in told["features"].items() if not k.startswith(ours)}
    path.write_text(json.dumps({**told, **info}))
    return folder


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("spec", [SPEC, PLAIN, replace(PLAIN, groups={"state": 1})])
def test_what_goes_out_comes_back_to_the_last_bit(tmp_path, kind, spec):
    told = [episode(i, 3 + i, spec) for i in range(4)]
    path = tmp_path / NAMES[kind]
    assert write_any(path, kind, spec, told) == 4
    found, episodes, _ = read_any(path, ImportChoices())
    assert found == spec
    assert all(same(one, two) for one, two in zip(told, episodes, strict=True))
    with pytest.raises(DatasetError, match="exists already"):
        write_any(path, kind, spec, told)


def test_minari_has_a_frame_more_than_actions(tmp_path):
    (one,) = read(minari(tmp_path / "set"))
    assert one.obs["actor"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert one.reward.tolist() == [0, 1, 2]
    assert (one.truncated[-1], one.terminated.any()) == (True, False)


def test_trees_of_observations_become_groups_or_one_side_by_side(tmp_path):
    path = minari(tmp_path / "set", observations=None, **{
        "observations/goal": np.ones((4, 1)), "observations/state/arm": np.zeros((4, 2)),
    })  # fmt: skip
    assert set(read(path)[0].obs) == {"goal", "state.arm"}
    joined = replace(CHOICES, groups={"actor": ("goal", "state/arm")})
    assert read(path, joined)[0].obs["actor"].tolist() == [[1, 0, 0]] * 4
    with pytest.raises(DatasetError, match=r"observation 'gaol' is unknown \(did you mean 'goal'"):
        read(path, replace(CHOICES, groups={"actor": ("gaol",)}))


@pytest.mark.parametrize("done", Done)
def test_robomimic_dones_are_what_was_chosen(tmp_path, done):
    path = robomimic(tmp_path / "set.hdf5", dones=np.array([0, 1, 1, 1]))
    (one,) = read(path, replace(CHOICES, done=done))
    over = done is Done.terminated
    assert one.num_steps == (2 if over else 4), "the first success ends the task"
    assert (bool(one.terminated[-1]), bool(one.truncated[-1])) == (over, not over)
    assert one.obs["actor"][-1].tolist() == ([4, 5] if over else [8, 9])
    _, episodes, source = read_any(path, CHOICES)
    assert list(episodes)
    assert source is not None
    assert source.notes == [
        "'camera' of shape (2, 2, 3) is left out: it is no vector",
        "'dones' was taken for 'terminated'; if it is not, import with done=truncated",
        "2 of 4 steps are left out, with their reward of 5: they lie behind the first end, in 1 "
        "episodes; done=truncated keeps them",
    ]


def test_steps_behind_a_first_done_are_counted_over_all_episodes(tmp_path):
    """Of 120 steps 72 went without a word."""
    path = tmp_path / "set.hdf5"
    rows = {"obs/joints": np.zeros((40, 2)), "actions": np.zeros((40, 1)),
            "rewards": np.full(40, 0.5), "dones": np.arange(40) >= 15}  # fmt: skip
    hdf5(path, **{f"data/demo_{i}/{name}": value for i in range(3) for name, value in rows.items()})
    _, episodes, source = read_any(path, CHOICES)
    assert [one.num_steps for one in episodes] == [16] * 3
    assert source is not None
    told = "72 of 120 steps are left out, with their reward of 36: they lie behind the first end"
    assert [note.startswith(told) for note in source.notes] == [False, True]


def test_without_successors_the_last_step_counts_only_where_nothing_follows(tmp_path):
    path = robomimic(tmp_path / "a.hdf5", **{"next_obs/joints": None})
    assert [one.num_steps for one in read(path)] == [4]
    assert [one.num_steps for one in read(path, replace(CHOICES, done=Done.truncated))] == [3]
    first, second = read(arrays(tmp_path / "a.npz", next_observations=None))
    assert (first.num_steps, bool(first.terminated[-1])) == (3, True)
    assert (second.num_steps, bool(second.truncated[-1])) == (2, True)


def test_the_success_of_a_last_step_without_successor_is_kept_and_its_reward_is_told(tmp_path):
    won = np.arange(6) == 5
    path = arrays(tmp_path / "a.npz", next_observations=None, success=won)
    spec, episodes, source = read_any(path, CHOICES)
    first, second = episodes
    assert (spec.judges_success, bool(first.success.any())) == (True, False), "the first failed"
    assert (second.num_steps, bool(second.success[-1])) == (2, True)
    assert source is not None
    assert len(source.notes) == 1
    assert "the last action has no successor and is left out, with its reward" in source.notes[0]


def test_cuts_that_nothing_marks_are_counted_and_rounding_is_none(tmp_path):
    frames = np.arange(12.0).reshape(6, 2) / 10
    path = arrays(tmp_path / "a.npz", observations=frames, terminals=np.zeros(6),
                  next_observations=(frames + 0.2).astype(np.float32))  # fmt: skip
    _, episodes, source = read_any(path, CHOICES)
    assert [one.num_steps for one in episodes] == [6]
    assert source is not None
    assert source.notes == []
    _, episodes, source = read_any(arrays(tmp_path / "b.npz", terminals=np.zeros(6)), CHOICES)
    assert len(list(episodes)) == 2
    assert source is not None
    assert "where nothing marks an end: 1; each begins an episode" in source.notes[0]


def test_pictures_in_minari_are_left_out_and_rewards_of_several_columns_refused(tmp_path):
    pictures = {"observations/rgb": np.zeros((4, 8, 8, 3), np.uint8)}
    path = minari(tmp_path / "set", observations=None, **{
        "observations/state": np.zeros((4, 2)), **pictures,
    })  # fmt: skip
    _, episodes, source = read_any(path, CHOICES)
    assert [set(one.obs) for one in episodes] == [{"actor"}]
    assert source is not None
    assert source.notes == ["'rgb' of shape (8, 8, 3) is left out: it is no vector"]
    with pytest.raises(DatasetError, match="the reward has 2 numbers a step; expected one"):
        read(minari(tmp_path / "b", rewards=np.zeros((3, 2))))


@pytest.mark.parametrize("kind", [Format.minari, Format.robomimic])
def test_an_export_may_be_given_a_task(tmp_path, kind):
    path = tmp_path / NAMES[kind]
    write_any(path, kind, PLAIN, [replace(episode(0, 3, PLAIN), task="")])
    assert [one.task for one in read(path, ImportChoices(task="lift"))] == ["lift"]


def test_transition_arrays_are_cut_into_episodes(tmp_path):
    first, second = read(arrays(tmp_path / "set.npz"))
    assert first.obs["actor"].tolist() == [[0, 1], [2, 3], [4, 5], [106, 107]]
    assert (bool(first.terminated[-1]), bool(second.truncated[-1])) == (True, True)
    again = read(arrays(tmp_path / "b.npz", timeouts=None, terminals=np.zeros(6)))
    assert [one.num_steps for one in again] == [3, 3], "a row that does not follow begins anew"
    assert all(one.truncated[-1] for one in again)


def test_arrays_with_the_names_of_gymnasium_are_cut_as_well(tmp_path):
    """'truncated' was left out, and all episodes became one."""
    ends = {"terminals": None, "timeouts": None, "next_observations": None}
    named = {"terminated": np.arange(6) == 2, "truncated": np.arange(6) == 5}
    first, second = read(arrays(tmp_path / "a.npz", **ends, **named))
    assert (first.num_steps, second.num_steps) == (3, 2)
    assert (bool(first.terminated[-1]), bool(second.truncated[-1])) == (True, True)


def test_arrays_that_tell_neither_ends_nor_successors_are_refused(tmp_path):
    bare = {"timeouts": None, "next_observations": None, "terminals": np.zeros(6)}
    told = "'terminals' is set in none of 6 rows, and there is neither 'timeouts'"
    with pytest.raises(DatasetError, match=told):
        read(arrays(tmp_path / "a.npz", **bare))
    read(arrays(tmp_path / "b.npz", **{**bare, "timeouts": np.zeros(6)}))  # said, at least
    with pytest.raises(DatasetError, match="has 'terminals' and 'terminated', which are two names"):
        read(arrays(tmp_path / "c.npz", terminated=np.zeros(6)))


def test_actions_of_another_range_are_mapped(tmp_path):
    path = minari(tmp_path / "set", actions=np.array([[-2.0], [0.0], [6.0]]))
    with pytest.raises(
        DatasetError, match=r"episode_0, step 0: the action has 2; expected numbers"
    ):
        read(path)
    (one,) = read(path, replace(CHOICES, action_range=(-2.0, 6.0)))
    assert one.action[:, 0].tolist() == [-1, -0.5, 1]


def test_a_lerobot_data_set_of_others_is_read(tmp_path):
    first, second = read(lerobot(tmp_path / "set"), ImportChoices())
    told = [episode(1, 4, PLAIN), episode(2, 3, PLAIN)]
    assert (first.action == told[0].action).all()
    assert (first.obs["actor"][:-1] == told[0].obs["actor"][:-1]).all()
    assert [first.terminated[-1], second.terminated[-1]] == [True, True], "done says no reason"
    assert first.task == "task 1"
    first, second = read(tmp_path / "set", ImportChoices(done=Done.truncated))
    assert [first.num_steps, second.num_steps] == [4, 3]
    assert first.truncated[-1]


def test_ours_that_lost_its_manifest_on_the_way_is_read_as_ours(tmp_path):
    write_new(tmp_path / "set", SPEC, TOLD)
    (tmp_path / "set/meta/manifest.jsonl").unlink()
    spec, episodes, _ = read_any(tmp_path / "set", ImportChoices(robot=SPEC.robot))
    assert spec == SPEC
    assert all(same(one, two) for one, two in zip(TOLD, episodes, strict=True))


def export_with_little_space(path: Path, kind: Format, size: int) -> None:
    limit_files(size)
    write_any(path, kind, SPEC, (episode(i, 300) for i in range(5)))


@pytest.mark.parametrize(("kind", "size"), [*((kind, 60_000) for kind in NAMES), (Format.npz, 500)])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, kind, size):
    said = told_by_child(partial(export_with_little_space, tmp_path / NAMES[kind], kind, size))
    assert "the file would be larger than the limit" in said
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_was_edited_is_read_when_its_owner_says_so(tmp_path):
    edited, told = tmp_path / "edited.hdf5", tmp_path / "told.hdf5"
    for path in (edited, told):
        write_any(path, Format.robomimic, SPEC, TOLD)
        with h5py.File(path, "a") as file:
            rewards = file["data/demo_1/rewards"]
            assert isinstance(rewards, h5py.Dataset)
            rewards[0] = 7
            if path == told:
                del file["data/demo_1"].attrs["robot_rl_sha256"]
    with pytest.raises(DatasetError, match="demo_1 is not the episode that was exported"):
        read(edited)
    assert read(told)[1].reward[0] == 7


FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no actions": (
        lambda to: minari(to / "a", actions=None),
        r"episode_0 has no 'actions'; it has observations, rewards, terminations, truncations",
    ),
    "too large for float32": (
        lambda to: minari(to / "a", rewards=np.array([0, 0, 1e300])),
        "episode_0, step 2: 'reward' holds a number that is not finite",
    ),
    "whole actions": (
        lambda to: minari(to / "a", actions=np.array([0, 1, 2])),
        "episode_0: the actions are whole numbers; expected continuous",
    ),
    "steps that do not follow": (
        lambda to: robomimic(to / "a.hdf5", **{"next_obs/joints": np.zeros((4, 2))}),
        "demo_0, step 1: 'obs/joints' is not the 'next_obs/joints' of the step before",
    ),
    "rows of another number": (
        lambda to: robomimic(to / "a.hdf5", rewards=np.zeros(3)),
        r"demo_0: 'rewards' has the shape \(3,\); expected 4 rows, as the actions",
    ),
    "no rewards": (
        lambda to: arrays(to / "a.npz", rewards=None),
        "a.npz has no 'rewards'; it has actions, next_observations, observations, terminals",
    ),
    "python objects": (
        lambda to: arrays(to / "a.npz", actions=np.array([None] * 6)),
        "a.npz cannot be read as .npz: it holds Python objects, which would be executed",
    ),
    "an older lerobot": (
        lambda to: lerobot(to / "a", codebase_version="v2.1"),
        r"is a LeRobotDataset v2\.1; expected v3\.x",
    ),
    "another number of frames": (
        lambda to: lerobot(to / "a", total_frames=12),
        "has 9 frames in 1 files; expected 12, as meta/info.json says",
    ),
    "another rate": (
        lambda to: lerobot(to / "a", fps=5),
        r"episode 0, step 1: the frame came 0\.05 s after the one before; expected 0\.2 s \(5 fr",
    ),
    "no time step": (lambda to: minari(to / "a"), "give it with control_dt=SECONDS"),
    "something else": (lambda to: to, "is no data set that is known; expected a folder of ours"),
    "nothing": (lambda to: to / "a", "does not exist; expected a data set"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_others_are_named_with_file_episode_and_step(tmp_path, fault):
    make, sentence = FAULTS[fault]
    path = make(tmp_path)
    with pytest.raises(DatasetError, match=sentence) as refused:
        read(path, ImportChoices() if fault == "no time step" else CHOICES)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


MAKERS = {"minari": minari, "robomimic": robomimic, "npz": arrays, "lerobot": lerobot}
CASES = [*((kind, False) for kind in MAKERS),
         *((kind, True) for kind in (Format.minari, Format.robomimic, Format.npz))]  # fmt: skip


@pytest.mark.parametrize("trials", some([30], [100]))
@pytest.mark.parametrize(("kind", "ours"), CASES)
def test_damage_is_refused_in_a_sentence_and_of_ours_never_read(tmp_path, kind, ours, trials):
    path = tmp_path / NAMES.get(kind, "set")
    if ours:
        write_any(path, kind, SPEC, TOLD)
    else:
        MAKERS[kind](path)
    found = [path] if path.is_file() else sorted(path.rglob("*.*"))
    files = [one for one in found if one.is_file() and one.name != ".lock"]
    if ours:
        files = [one for one in files if one.suffix != ".json"]  # it holds no checksums
    random = np.random.default_rng(0)
    refused: list[str] = []
    for _ in range(trials):
        file = files[random.integers(len(files))]
        whole = file.read_bytes()
        content = bytearray(whole)
        content[random.integers(len(content))] ^= 1 << int(random.integers(8))
        file.write_bytes(bytes(content) if random.random() < 0.6 else content[: len(content) // 2])
        try:
            episodes = read(path)
        except DatasetError as error:
            refused.append(str(error))
        else:  # unused bytes; files of others hold no checksums: what can be read may be wrong
            assert not ours or all(same(*pair) for pair in zip(TOLD, episodes, strict=True))
        file.write_bytes(whole)
    assert len(refused) > 0.3 * trials, "HDF5 files hold much that is not used"
    assert not any("\n" in sentence for sentence in refused)
