"""Data sets of others that are wrong or damaged: a sentence with file, episode and step."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.foreign.assembly import ImportChoices
from robot_rl.datasets.foreign.catalog import Format, write_any
from tests.robot_rl.datasets.foreign_files import (
    NAMES,
    TOLD,
    arrays,
    hdf5,
    lerobot,
    minari,
    read,
    robomimic,
)
from tests.robot_rl.datasets.samples import SPEC, same

NAN = np.array([[0.5], [np.nan], [0.5]])
FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no actions": (
        lambda to: minari(to / "a", actions=None),
        r"episode_0 has no 'actions'; it has observations, rewards, terminations, truncations",
    ),
    "a frame too few": (
        lambda to: minari(to / "a", observations=np.zeros((3, 2))),
        r"episode_0: 'actor' has the shape \(3, 2\); expected 4 rows",
    ),
    "nan": (lambda to: minari(to / "a", actions=NAN), "episode_0, step 1: 'action' holds a number"),
    "too large for float32": (
        lambda to: minari(to / "a", rewards=np.array([0, 0, 1e300])),
        "episode_0, step 2: 'reward' holds a number that is not finite",
    ),
    "whole actions": (
        lambda to: minari(to / "a", actions=np.array([0, 1, 2])),
        "episode_0: the actions are whole numbers; expected continuous",
    ),
    "words": (
        lambda to: minari(to / "a", rewards=np.array([b"a", b"b", b"c"])),
        "the reward is of type .*; expected numbers",
    ),
    "an end in the middle": (
        lambda to: minari(to / "a", terminations=np.array([False, True, False])),
        "episode_0, step 1 ends the episode, but 3 steps were given",
    ),
    "steps that do not follow": (
        lambda to: robomimic(to / "a.hdf5", **{"next_obs/joints": np.zeros((4, 2))}),
        "demo_0, step 1: 'obs/joints' is not the 'next_obs/joints' of the step before",
    ),
    "rows of another number": (
        lambda to: robomimic(to / "a.hdf5", rewards=np.zeros(3)),
        r"demo_0: 'rewards' has the shape \(3,\); expected 4 rows, as the actions",
    ),
    "no demonstration": (lambda to: hdf5(to / "a.hdf5", x=1), "has no 'data/demo_0'; expected a f"),
    "no rewards": (
        lambda to: arrays(to / "a.npz", rewards=None),
        "a.npz has no 'rewards'; it has actions, next_observations, observations, terminals",
    ),
    "uneven arrays": (
        lambda to: arrays(to / "a.npz", actions=np.zeros((5, 1))),
        r"'next_observations' has the shape \(6, 2\); expected 5 rows|'observations' has the shape",
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
    "something else": (lambda to: to, "is no data set that is known; expected a folder of ours"),
    "nothing": (lambda to: to / "a", "does not exist; expected a data set"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_others_are_named_with_file_episode_and_step(tmp_path: Path, fault: str) -> None:
    make, sentence = FAULTS[fault]
    path = make(tmp_path)
    with pytest.raises(DatasetError, match=sentence) as refused:
        read(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_time_step_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="give it with control_dt=SECONDS"):
        read(minari(tmp_path / "set"), ImportChoices())


@pytest.mark.parametrize("trials", [30, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", [Format.minari, Format.robomimic, Format.npz])
def test_damaged_exports_are_refused_or_equal(tmp_path: Path, kind: Format, trials: int) -> None:
    path = tmp_path / NAMES[kind]
    write_any(path, kind, SPEC, TOLD)
    file = path / "data/main_data.hdf5" if kind is Format.minari else path
    whole = file.read_bytes()
    random = np.random.default_rng(0)
    refused: list[str] = []
    for trial in range(trials):
        content = bytearray(whole)
        if trial % 2:
            content = content[: random.integers(len(content))]
        else:
            content[random.integers(len(content))] ^= 1 << int(random.integers(8))
        file.write_bytes(bytes(content))
        try:
            found = read(path)
        except DatasetError as error:
            refused.append(str(error))
        else:
            assert all(same(*pair) for pair in zip(TOLD, found, strict=True)), "unused bytes only"
    assert len(refused) > 0.3 * trials, "HDF5 files hold much that is not used"
    assert not any("\n" in sentence for sentence in refused)


@pytest.mark.parametrize("trials", [30, pytest.param(80, marks=pytest.mark.full)])
@pytest.mark.parametrize("make", [minari, robomimic, arrays, lerobot])
def test_damaged_data_of_others_are_refused_in_a_sentence(
    tmp_path: Path, make: Callable[[Path], Path], trials: int
) -> None:
    path = make(tmp_path / {robomimic: "set.hdf5", arrays: "set.npz"}.get(make, "set"))
    found = [path] if path.is_file() else sorted(path.rglob("*.*"))
    files = [one for one in found if one.is_file() and one.name != ".lock"]
    random = np.random.default_rng(0)
    refused: list[str] = []
    for _ in range(trials):
        file = files[random.integers(len(files))]
        whole = file.read_bytes()
        content = bytearray(whole)
        content[random.integers(len(content))] ^= 1 << int(random.integers(8))
        file.write_bytes(bytes(content) if random.random() < 0.7 else content[: len(content) // 2])
        try:
            read(path)  # their files hold no checksums: what can be read may be wrong
        except DatasetError as error:
            refused.append(str(error))
        file.write_bytes(whole)
    assert len(refused) > trials / 4
    assert not any("\n" in sentence for sentence in refused)
