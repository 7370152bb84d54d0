"""What is written is read back to the last bit; what is not what the spec says is refused."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.edit import merge, parse_numbers
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files import lerobot_meta
from robot_rl.datasets.files.parquet import ParquetTables, encode, read_all
from robot_rl.datasets.foreign.assembly import ImportChoices
from robot_rl.datasets.foreign.catalog import Format, read_any, write_any
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.recorder import EpisodeRecorder, spec_of
from robot_rl.datasets.repair import repair
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter
from tests.architecture import loaded_packages, read_modules
from tests.fakes import LinearWorld, ToyEnv
from tests.robot_rl.datasets.samples import PLAIN, SPEC, episode, same, write


@pytest.mark.slow
@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    widths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    terms=st.integers(0, 2),
    together=st.booleans(),
)
def test_episodes_come_back_as_they_were(tmp_path_factory, lengths, widths, terms, together):
    spec = DatasetSpec(
        groups={f"group_{i}": width for i, width in enumerate(widths)}, action_size=widths[0],
        control_dt=0.01, reward_names=tuple(f"term {k}" for k in range(terms)),
    )  # fmt: skip
    told = [episode(i, steps, spec) for i, steps in enumerate(lengths)]
    folder = tmp_path_factory.mktemp("sets") / "one"
    if together:
        with DatasetWriter.create(folder, spec) as writer:
            assert writer.add_all(told) == len(told)
    else:
        write(folder, *told, spec=spec)
    found = EpisodeDataset(folder)
    assert found.spec == spec
    assert found.lengths == lengths
    assert all(same(one, two) for one, two in zip(told, found, strict=True))
    assert same(found.episode(len(told) - 1), told[-1])


@pytest.mark.parametrize("text", ["1:1", "5:3"])
def test_numbers_of_no_episode_are_refused(text):
    with pytest.raises(DatasetError, match=f"episodes '{text}' names none"):
        parse_numbers(text)


def test_a_lerobot_reader_finds_its_names_and_indices(tmp_path):
    folder = write(tmp_path / "set", episode(1, 4), episode(2, 2))
    info = json.loads((folder / lerobot_meta.INFO).read_text())
    assert (info["codebase_version"], info["fps"], info["total_frames"]) == ("v3.0", 50, 8)
    frames = [
        read_all(folder / info["data_path"].format(chunk_index=0, file_index=i)) for i in (0, 1)
    ]
    assert all(set(one) == set(info["features"]) for one in frames)
    assert not any("/" in name for name in info["features"])
    both = {name: np.concatenate([one[name] for one in frames]) for name in frames[0]}
    assert both["index"].tolist() == list(range(8))
    assert both["episode_index"].tolist() == [0] * 5 + [1] * 3
    assert both["frame_index"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert both["timestamp"].tolist() == pytest.approx([0, 0.02, 0.04, 0.06, 0.08, 0, 0.02, 0.04])
    assert both["next.done"].tolist() == [False] * 3 + [True] * 2 + [False] + [True] * 2
    assert both["complementary_info.acted"].tolist() == [True] * 4 + [False] + [True] * 2 + [False]
    assert (both["action"][4] == both["action"][3]).all()
    assert both["observation.critic"].shape == (8,), "vectors of one number are numbers"
    rows = [
        read_all(path) for path in sorted((folder / "meta/episodes/chunk-000").glob("*.parquet"))
    ]
    assert [int(one["dataset_from_index"][0]) for one in rows] == [0, 5]
    assert [int(one["dataset_to_index"][0]) for one in rows] == [5, 8]
    assert [one["tasks"] for one in rows] == [[["task 1"]], [["task 2"]]]
    tasks = read_all(folder / lerobot_meta.TASKS)
    assert (tasks["task"], tasks["task_index"].tolist()) == (["task 1", "task 2"], [0, 1])


def test_statistics_count_what_can_be_learned_from(tmp_path):
    told = [episode(i, 5 + i) for i in range(4)]
    folder = write(tmp_path / "set", *told)
    found = json.loads((folder / lerobot_meta.STATS).read_text())["action"]
    actions = np.concatenate([one.action[one.valid] for one in told]).astype(float)
    for name, value in {"min": actions.min(0), "max": actions.max(0), "mean": actions.mean(0),
                        "std": actions.std(0), "count": [len(actions)]}.items():  # fmt: skip
        assert found[name] == pytest.approx(list(value), abs=1e-12), name
    with DatasetWriter.create(tmp_path / "other", SPEC) as writer:
        writer.add(*told)
    again = json.loads((tmp_path / "other" / lerobot_meta.STATS).read_text())["action"]
    assert again == found, "added together or one by one"


def test_numbers_of_invalid_steps_need_not_be_finite(tmp_path):
    told = episode(1, 4, valid=np.array([True, False, False, True]))
    told.action[1:3] = np.nan
    told.obs["actor"][2] = np.inf
    found = EpisodeDataset(write(tmp_path / "set", told)).episode(0)
    assert (found.action[1:3] == 0).all()
    assert (found.obs["actor"][2] == 0).all()
    assert (found.action[0] == told.action[0]).all()


def with_nan(name: str, row: int) -> Any:
    told = episode(1)
    (told.obs[name] if name in told.obs else getattr(told, name))[row] = np.nan
    return replace(told, valid=np.ones(5, bool))


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (with_nan("actor", 5), r"episode 1, step 5: 'actor' holds a number that is not finite"),
        (with_nan("action", 2), r"episode 1, step 2: 'action' holds a number that is not finite"),
        (episode(1, action=np.full((5, 2), 1.5, np.float32)), r"step .: the action has 1\.5"),
        (episode(1, action=np.zeros((5, 2))), r"'action' is float64 of shape \(5, 2\); expected f"),
        (episode(1, spec=PLAIN), r"groups \['actor'\]; expected \['actor', 'critic'\]"),
        (episode(1, reward_terms=None), "has no reward terms; expected those named"),
        (episode(1, terminated=np.zeros(5, bool)), "is neither terminated nor truncated"),
        (episode(1, truncated=np.array([0, 1, 0, 0, 0], bool)), "step 1 ends the episode, but 5"),
        (episode(1, stamp_ns=np.array([0, 1, 5, 3, 4, 6])), "step 3: the stamp lies 2 ns before"),
    ],
)
def test_episodes_that_are_not_as_the_spec_says_are_refused(tmp_path, told, sentence):
    with DatasetWriter.create(tmp_path / "set", SPEC) as writer:
        writer.add(episode(0))
        with pytest.raises(DatasetError, match=sentence):
            writer.add(told)
        with pytest.raises(DatasetError):
            writer.add(episode(2), told)
    assert len(EpisodeDataset(tmp_path / "set")) == 1, "all episodes of an addition, or none"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"groups": {}}, "needs an observation group"),
        ({"groups": {"image/front": 3}}, "'image/front' cannot be stored"),
        ({"groups": {"actor": 0}}, "'actor' has the width 0"),
        ({"control_dt": 0.0}, r"the time step is 0\.0 s"),
        *(({"images": {"front": shape}}, "height, width, and 1 or 3 channels")
          for shape in ((1, 64, 3), (48, 64, 2), (48, 64), (0, 2, 3))),
    ],
)  # fmt: skip
def test_specs_that_no_table_can_hold_are_refused(changes, sentence):
    with pytest.raises(DatasetError, match=sentence):
        replace(SPEC, **changes)


def test_one_writer_at_a_time_and_never_over_something_else(tmp_path):
    folder = tmp_path / "set"
    with DatasetWriter.create(folder, SPEC):
        with pytest.raises(DatasetError, match="another process is writing"):
            DatasetWriter.append_to(folder)
        with pytest.raises(DatasetError, match="another process is writing"):
            repair(folder)
        with pytest.raises(DatasetError, match="exists already and is not empty"):
            DatasetWriter.create(folder, SPEC)
    with DatasetWriter.append_to(folder) as writer:
        writer.add(episode(1))
    assert len(EpisodeDataset(folder)) == 1
    with pytest.raises(DatasetError, match="does not exist"):
        EpisodeDataset(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="counted from 0"):
        EpisodeDataset(folder).episode(1)


@pytest.mark.slow
def test_a_robot_computer_that_records_needs_no_torch():
    modules = read_modules(Path(__file__).parents[3], ("robot_rl",))
    for name in ("reader", "writer", "repair"):
        needed = set(loaded_packages(modules, f"robot_rl.datasets.{name}"))
        assert needed == {"numpy", "pyarrow", "av"}  # av only where there are images


def test_reading_holds_one_episode_in_memory(tmp_path):
    spec = DatasetSpec(groups={"actor": 50}, action_size=2, control_dt=0.02)
    with DatasetWriter.create(tmp_path / "set", spec) as writer:
        writer.add(*(episode(i, 1000, spec) for i in range(20)))
    dataset = EpisodeDataset(tmp_path / "set")
    with ParquetTables(tmp_path / "set" / lerobot_meta.data_path(0)) as file:
        assert file.rows == [1001] * 20
    one = sum(value.nbytes for value in dataset.episode(0).obs.values())
    tracemalloc.start()
    steps = sum(told.num_steps for told in dataset)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps == 20_000
    assert peak < 6 * one, "of 20 episodes"


STATES = replace(SPEC, states={"position": 3, "goal.place": 1})


def with_states(seed: int, steps: int = 5, **changes: Any) -> Episode:
    random = np.random.default_rng(seed)
    states = {
        name: random.normal(size=(steps, width)).astype(np.float32)
        for name, width in STATES.states.items()
    }
    return episode(seed, steps, STATES, **{"states": states, **changes})


def test_states_come_back_as_they_were_and_are_neither_merged_with_none_nor_exported(tmp_path):
    told = [with_states(1, 4), with_states(2, 1)]
    folder = write(tmp_path / "set", *told, spec=STATES)
    found = EpisodeDataset(folder)
    assert found.spec == STATES
    assert all(same(one, two) for one, two in zip(told, found, strict=True))
    other = {**told[0].states, "position": told[0].states["position"] + 1}
    assert not same(told[0], replace(told[0], states=other))
    without = write(tmp_path / "two", episode(1))
    for folders in ((folder, without), (without, folder)):
        with pytest.raises(DatasetError, match="states of the simulation"):
            merge(folders, tmp_path / "out")
    write_any(tmp_path / "set.npz", Format.npz, STATES, told)
    spec, episodes, _ = read_any(tmp_path / "set.npz", ImportChoices())
    assert spec == SPEC
    assert same(next(iter(episodes)), replace(told[0], states={}))
    assert "states" not in PLAIN.to_dict(), "as before there were states"
    with pytest.raises(DatasetError, match="has the states of the simulation"):
        write(tmp_path / "three", episode(1), spec=STATES)
    told[1].states["position"][0] = np.nan
    with pytest.raises(DatasetError, match="not finite"):
        write(tmp_path / "four", replace(told[1], valid=np.ones(1, bool)), spec=STATES)


def test_a_recorder_keeps_the_state_that_each_step_began_in():
    env = ToyEnv(LinearWorld(), 2, limit=3)
    recorder = EpisodeRecorder(spec_of(env.spec, {"clock": 1}))
    recorder.begin(env.reset(seed=0), states={"clock": torch.zeros(2, 1)})
    found = []
    for t in range(1, 7):
        step = env.step(torch.zeros(2, 2))
        found += recorder.add(step, states={"clock": torch.full((2, 1), float(t))})
    assert [one.episode.states["clock"][:, 0].tolist() for one in found] == [
        [0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5],
    ]  # fmt: skip
    with pytest.raises(DatasetError, match="were to be recorded"):
        recorder.add(env.step(torch.zeros(2, 2)))


ROWS = 40_000
TABLE = {
    "wide": np.random.default_rng(0).standard_normal((ROWS, 200), np.float32),  # 32 MB
    "row": np.arange(ROWS),
}


@pytest.mark.slow
def test_a_row_group_is_read_in_parts_and_never_held(tmp_path):
    path = tmp_path / "one.parquet"
    path.write_bytes(encode([TABLE]))
    before = most = pa.total_allocated_bytes()
    at = 0
    with ParquetTables(path, buffer=1 << 20) as tables:
        assert tables.rows == [ROWS]
        for part in tables.parts(["row", "wide"]):
            most = max(most, pa.total_allocated_bytes())
            assert (part["row"] == np.arange(at, at + len(part["row"]))).all()
            assert (part["wide"] == TABLE["wide"][at : at + len(part["row"])]).all()
            at += len(part["row"])
    assert at == ROWS
    assert most - before < 16 << 20, "parts of 4 MB, and what is read ahead of them"
