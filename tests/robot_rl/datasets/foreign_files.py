"""Files as others write them, each with a fault if asked for."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from robot_rl.datasets.foreign.assembly import ImportChoices
from robot_rl.datasets.foreign.catalog import Format, read_any
from robot_rl.datasets.writer import write_new
from tests.robot_rl.datasets.samples import PLAIN, episode

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
