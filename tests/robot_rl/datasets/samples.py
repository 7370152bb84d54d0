"""Made-up episodes, and comparisons to the last bit."""

from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter

SPEC = DatasetSpec(
    groups={"actor": 3, "critic": 1}, action_size=2, control_dt=0.02,
    reward_names=("near", "effort"),
    robot={"name": "arm", "version": 1, "joints": ["a", "b"], "rotors": [], "feet": [],
           "command": "joint"},
)  # fmt: skip
PLAIN = DatasetSpec(groups={"actor": 4}, action_size=1, control_dt=0.05)


def episode(seed: int, steps: int = 5, spec: DatasetSpec = SPEC, **changes: Any) -> Episode:
    """An episode whose numbers are all different; an odd seed terminates, an even one truncates."""
    random = np.random.default_rng(seed)

    def floats(*shape: int) -> np.ndarray:
        return random.uniform(-1, 1, shape).astype(np.float32)

    def flags() -> np.ndarray:
        return random.random(steps) < 0.5

    last = np.arange(steps) == steps - 1
    values: dict[str, Any] = {
        "obs": {name: floats(steps + 1, width) for name, width in spec.groups.items()},
        "action": floats(steps, spec.action_size),
        "reward": floats(steps),
        "reward_terms": floats(steps, len(spec.reward_names)) if spec.reward_names else None,
        "terminated": last & bool(seed % 2),
        "truncated": last & bool(seed % 2 == 0),
        "success": last & bool(seed % 3 == 0),
        "valid": flags() | last,
        "intervened": flags(),
        "policy_version": random.integers(0, 9, steps),
        "stamp_ns": np.cumsum(random.integers(0, 10**9, steps + 1)),
        "task": f"task {seed % 3}",
    }
    return Episode(**{**values, **changes})


def write(folder: Path, *episodes: Episode, spec: DatasetSpec = SPEC) -> Path:
    """A data set with these episodes, each added alone."""
    with DatasetWriter.create(folder, spec) as writer:
        for one in episodes:
            writer.add(one)
    return folder


def same(one: Episode, two: Episode) -> bool:
    """Equal to the last bit, types and shapes included."""
    return one.digest() == two.digest()
