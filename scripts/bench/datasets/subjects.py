"""Small data sets that are to be damaged: ours, exports of ours, and files as others write them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files.lerobot_meta import INFO
from robot_rl.datasets.files.manifest import MANIFEST
from robot_rl.datasets.foreign.assembly import ImportChoices
from robot_rl.datasets.foreign.catalog import Format, read_any, write_any
from robot_rl.datasets.foreign.hdf5 import Hdf5Writer
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter

_SPEC = DatasetSpec(
    groups={"actor": 6, "critic": 3}, action_size=2, control_dt=0.02, reward_names=("near", "far")
)
_PLAIN = replace(_SPEC, groups={"actor": 6}, reward_names=())
_SEEN = replace(_SPEC, images={"front": (32, 48, 3), "wrist": (16, 16, 3)})


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A data set, and what must become of damage to it."""

    name: str
    path: Path
    """Its folder or file."""
    choices: ImportChoices
    """Facts that its files do not hold."""
    told: list[Episode]
    """Contents."""
    manifest: bool
    """True if each change of each file must be noticed, and what is whole can be saved."""
    checksums: bool
    """True if no change may be read as something else."""

    def read(self) -> list[Episode]:
        """All of it, as training does, or `robot-rl data convert`."""
        if self.manifest:
            return list(EpisodeDataset(self.path))
        return list(read_any(self.path, self.choices)[1])


def make_subjects(folder: Path) -> list[Subject]:
    """One of each kind, in a folder."""
    asked = ImportChoices(control_dt=_SPEC.control_dt)
    subjects = [
        _ours(folder / "ours", _SPEC),
        _ours(folder / "ours_with_videos", _SEEN),
    ]
    told = [_episode(i, _SPEC) for i in range(6)]
    endings = {Format.minari: "", Format.robomimic: ".hdf5", Format.npz: ".npz"}
    for kind, ending in endings.items():
        path = folder / f"{kind}_of_ours{ending}"
        write_any(path, kind, _SPEC, told)
        subjects.append(_subject(path, checksums=True))
    lost = _ours(folder / "ours_without_manifest", _SPEC).path
    (lost / MANIFEST).unlink()
    subjects.append(_subject(lost, checksums=True))
    makers: dict[str, Callable[[Path, Sequence[Episode]], object]] = {
        "minari": _minari, "robomimic.hdf5": _robomimic, "arrays.npz": _arrays, "lerobot": _lerobot,
    }  # fmt: skip
    for name, make in makers.items():
        path = folder / f"others_{name}"
        make(path, [_episode(i, _PLAIN) for i in range(6)])
        choices = ImportChoices() if name == "lerobot" else asked
        subjects.append(_subject(path, choices=choices))
    return subjects


def _ours(folder: Path, spec: DatasetSpec) -> Subject:
    """Six episodes in three files."""
    with DatasetWriter.create(folder, spec) as writer:
        for number in range(0, 6, 2):
            writer.add(_episode(number, spec), _episode(number + 1, spec))
    (folder / "meta/.lock").unlink(missing_ok=True)
    return _subject(folder, manifest=True, checksums=True)


def _subject(path: Path, *, choices: ImportChoices | None = None, manifest: bool = False,
             checksums: bool = False) -> Subject:  # fmt: skip
    made = Subject(
        name=path.name.replace("_", " "), path=path, choices=choices or ImportChoices(), told=[],
        manifest=manifest, checksums=checksums,
    )  # fmt: skip
    return replace(made, told=made.read())


def _episode(seed: int, spec: DatasetSpec) -> Episode:
    random, steps = np.random.default_rng(seed), 5 + seed
    last = np.arange(steps) == steps - 1

    def floats(*shape: int) -> np.ndarray:
        return random.uniform(-1, 1, shape).astype(np.float32)

    return Episode(
        obs={name: floats(steps + 1, width) for name, width in spec.groups.items()},
        action=floats(steps, spec.action_size),
        reward=floats(steps),
        reward_terms=floats(steps, 2) if spec.reward_names else None,
        terminated=last & bool(seed % 2), truncated=last & (not seed % 2),
        success=last & bool(seed % 3 == 0), valid=np.ones(steps, bool),
        intervened=random.random(steps) < 0.5, policy_version=random.integers(0, 9, steps),
        stamp_ns=np.arange(steps + 1) * 20_000_000, task=f"task {seed % 3}",
        source=f"chance/{seed}",
        images={name: _pictures(seed, steps + 1, shape) for name, shape in spec.images.items()},
    )  # fmt: skip


def _pictures(seed: int, frames: int, shape: Sequence[int]) -> np.ndarray:
    """Slopes of grey that grow brighter from frame to frame."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    slope = 80 * (rows / shape[0] + columns / shape[1])
    level = 10 * (seed % 6) + 4 * np.arange(frames)[:, None, None]
    return np.repeat((slope + level)[..., None], 3, axis=-1).astype(np.uint8)


def _minari(folder: Path, told: Sequence[Episode]) -> None:
    with Hdf5Writer(folder / "data/main_data.hdf5", checksums=False) as file:
        for number, one in enumerate(told):
            _fill(file, f"episode_{number}", {
                "observations": one.obs["actor"], "actions": one.action, "rewards": one.reward,
                "terminations": one.terminated, "truncations": one.truncated,
            }, {"id": number, "total_steps": one.num_steps})  # fmt: skip
    (folder / "data/metadata.json").write_text(json.dumps({"total_episodes": len(told)}))


def _robomimic(path: Path, told: Sequence[Episode]) -> None:
    with Hdf5Writer(path, checksums=False) as file:
        for number, one in enumerate(told):
            _fill(file, f"data/demo_{number}", {
                "obs/joints": one.obs["actor"][:-1], "next_obs/joints": one.obs["actor"][1:],
                "actions": one.action, "rewards": one.reward,
                "dones": one.terminated.astype(np.int64),
            }, {"num_samples": one.num_steps})  # fmt: skip


def _fill(
    file: Hdf5Writer, group: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, int]
) -> None:
    for name, value in arrays.items():
        file.write(f"{group}/{name}", value)
    file.note(group, about)


def _arrays(path: Path, told: Sequence[Episode]) -> None:
    np.savez(
        path,
        observations=np.concatenate([one.obs["actor"][:-1] for one in told]),
        next_observations=np.concatenate([one.obs["actor"][1:] for one in told]),
        actions=np.concatenate([one.action for one in told]),
        rewards=np.concatenate([one.reward for one in told]),
        terminals=np.concatenate([one.terminated for one in told]),
        timeouts=np.concatenate([one.truncated for one in told]),
    )


def _lerobot(folder: Path, told: Sequence[Episode]) -> None:
    """Ours without what only we know: L frames, each with an action."""
    with DatasetWriter.create(folder, _PLAIN) as writer:
        for number in range(0, len(told), 2):
            writer.add(*told[number : number + 2])
    for name in (MANIFEST, Path("meta/.lock")):
        (folder / name).unlink(missing_ok=True)
    about: dict[str, Any] = json.loads((folder / INFO).read_text())
    ours = ("complementary_info.", "next.t", "next.valid", "next.success")
    about["features"] = {k: v for k, v in about["features"].items() if not k.startswith(ours)}
    (folder / INFO).write_text(json.dumps(about))
