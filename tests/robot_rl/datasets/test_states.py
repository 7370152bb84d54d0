"""States of the simulation in a data set: kept to the last bit, and only where they belong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.edit import merge
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.foreign.assembly import ImportChoices
from robot_rl.datasets.foreign.catalog import Format, read_any, write_any
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.recorder import EpisodeRecorder, spec_of
from robot_rl.datasets.repair import repair
from tests.fakes import LinearWorld, ToyEnv
from tests.robot_rl.datasets.samples import PLAIN, SPEC, episode, same, write

STATES = replace(SPEC, states={"position": 3, "goal.place": 1})


def with_states(seed: int, steps: int = 5, **changes: Any) -> Episode:
    random = np.random.default_rng(seed)
    states = {
        name: random.normal(size=(steps, width)).astype(np.float32)
        for name, width in STATES.states.items()
    }
    return episode(seed, steps, STATES, **{"states": states, **changes})


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    told = [with_states(1, 4), with_states(2, 1)]
    folder = write(tmp_path / "set", *told, spec=STATES)
    found = EpisodeDataset(folder)
    assert found.spec == STATES
    for one, two in zip(told, found, strict=True):
        assert same(one, two)
        assert {n: part.shape for n, part in two.states.items()} == {
            n: part.shape for n, part in one.states.items()
        }
    repair(folder)
    assert same(told[0], EpisodeDataset(folder).episode(0))


def test_another_state_is_another_episode() -> None:
    one = with_states(1)
    two = replace(one, states={**one.states, "position": one.states["position"] + 1})
    assert not same(one, two)


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({}, "has the states of the simulation"),
        ({"position": np.zeros((5, 2), np.float32)}, "has the states of the simulation"),
        ({"position": np.zeros((6, 3), np.float32), "goal.place": np.zeros((5, 1), np.float32)},
         "expected float32 of shape"),
        ({"position": np.full((5, 3), np.nan, np.float32),
          "goal.place": np.zeros((5, 1), np.float32)}, "not finite"),
    ],
)  # fmt: skip
def test_states_that_the_spec_does_not_describe_are_refused(
    tmp_path: Path, states: dict[str, Any], words: str
) -> None:
    with pytest.raises(DatasetError, match=words):
        write(tmp_path / "set", with_states(1, states=states), spec=STATES)


def test_sets_with_and_without_states_are_not_merged(tmp_path: Path) -> None:
    one = write(tmp_path / "one", with_states(1), spec=STATES)
    two = write(tmp_path / "two", episode(1))
    for folders in ((one, two), (two, one)):
        with pytest.raises(DatasetError, match="states of the simulation"):
            merge(folders, tmp_path / "out")


def test_a_set_without_states_says_what_it_always_said() -> None:
    assert "states" not in PLAIN.to_dict()


def test_other_formats_leave_states_out(tmp_path: Path) -> None:
    write_any(tmp_path / "set.npz", Format.npz, STATES, [with_states(1)])
    spec, episodes, _ = read_any(tmp_path / "set.npz", ImportChoices())
    assert spec == SPEC
    assert same(next(iter(episodes)), replace(with_states(1), states={}))


def test_a_recorder_keeps_the_state_that_each_step_began_in() -> None:
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
