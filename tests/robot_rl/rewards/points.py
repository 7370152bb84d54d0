"""Episodes of a point that wanders over the plane; success is to be near the middle."""

from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter

SPEC = DatasetSpec(
    groups={"actor": 2, "critic": 1}, action_size=1, control_dt=0.1, reward_names=("near", "half"),
)  # fmt: skip
RADIUS = 0.5


def wandering(seed: int, steps: int = 30, *, goal: tuple[float, float] = (0.0, 0.0)) -> Episode:
    """A point that comes from afar to a goal and stays; `goal=(0, 0)` succeeds."""
    random = np.random.default_rng(seed)
    start = random.uniform(1.0, 2.0, 2) * random.choice([-1, 1], 2)
    way = np.clip(np.linspace(0.0, 2.0, steps + 1), 0, 1)[:, None]
    place = (1 - way) * start + way * np.array(goal) + random.normal(0, 0.05, (steps + 1, 2))
    return of_places(place.astype(np.float32))


def of_places(place: np.ndarray, **changes: Any) -> Episode:
    """The episode in which a point is at these places, (T + 1, 2)."""
    steps = len(place) - 1
    distance = np.linalg.norm(place[1:], axis=1)
    near, half = distance < RADIUS, distance < 2 * RADIUS
    last = np.arange(steps) == steps - 1
    values: dict[str, Any] = {
        "obs": {"actor": place.astype(np.float32), "critic": place[:, :1].astype(np.float32)},
        "action": np.zeros((steps, 1), np.float32),
        "reward": near.astype(np.float32),
        "reward_terms": np.stack([near, half], 1).astype(np.float32),
        "terminated": np.zeros(steps, bool), "truncated": last, "success": last & near[-1],
        "valid": np.ones(steps, bool), "intervened": np.zeros(steps, bool),
        "policy_version": np.zeros(steps, np.int64), "stamp_ns": np.zeros(steps + 1, np.int64),
        "task": "point",
    }  # fmt: skip
    return Episode(**{**values, **changes})


def point_set(
    folder: Path, *, successes: int = 20, failures: int = 20, first: int = 0,
    spec: DatasetSpec = SPEC,
) -> Path:  # fmt: skip
    """A data set with some of both; failures stop beside the goal."""
    with DatasetWriter.create(folder, spec) as writer:
        for seed in range(first, first + successes):
            writer.add(wandering(seed))
        for seed in range(first + successes, first + successes + failures):
            writer.add(wandering(seed, goal=(1.0, -0.8)))
    return folder
