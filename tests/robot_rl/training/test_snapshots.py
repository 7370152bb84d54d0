"""States that episodes begin in: clusters by hand, even draws, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robot_rl.core.env import ResetStateSource
from robot_rl.core.errors import CheckpointError, ConfigError, SpecMismatchError
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.config import SnapshotConfig, SnapshotValue
from robot_rl.training.snapshots import Snapshots, clusters_of, open_snapshots, snapshot_resets
from tests.fakes import LinearWorld, ToyEnv
from tests.robot_rl.datasets.samples import episode, write

WIDTHS = {"position": 2, "goal.place": 1}
SPEC = DatasetSpec(groups={"actor": 4}, action_size=1, control_dt=0.05, states=WIDTHS)


class Worlds(ToyEnv):
    """Worlds that begin anywhere."""

    source: ResetStateSource | None = None
    state_widths = WIDTHS

    def world_states(self) -> dict[str, Tensor]:
        return {name: torch.zeros(self.spec.num_envs, w) for name, w in WIDTHS.items()}

    def set_reset_states(self, source: ResetStateSource) -> None:
        self.source = source


def worlds() -> Worlds:
    return Worlds(LinearWorld(), 2)


def told(seed: int, rewards: list[float], **changes: Any) -> Any:
    """An episode whose states tell their step: position (seed, t), goal seed."""
    steps = len(rewards)
    place = np.array([[seed, t] for t in range(steps)], np.float32)
    states = {"position": place, "goal.place": np.full((steps, 1), seed, np.float32)}
    valid = np.ones(steps, bool)
    return episode(
        seed, steps, SPEC, reward=np.array(rewards, np.float32), states=states,
        **{"valid": valid, **changes},
    )  # fmt: skip


def opened(folder: Path, **settings: Any) -> Snapshots:
    return open_snapshots(SnapshotConfig(data=str(folder), **settings), WIDTHS, worlds().spec)


def drawn(snapshots: Snapshots, count: int = 4000) -> list[tuple[int, int]]:
    """(episode, step) of drawn states, whose parts belong together."""
    states = snapshots.draw(count, torch.Generator().manual_seed(0))
    assert torch.equal(states["position"][:, :1], states["goal.place"])
    return [(int(a), int(b)) for a, b in states["position"].tolist()]


def test_values_on_a_line_are_divided_where_they_are_apart():
    values = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 9.0, 9.2, 9.1])
    assert clusters_of(values, 3).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert clusters_of(np.array([2.0, 1.0, 2.0]), 4).tolist() == [1, 0, 1]
    assert clusters_of(np.zeros(5), 4).tolist() == [0] * 5


def test_a_rare_cluster_is_begun_in_as_often_as_the_others(tmp_path):
    """Rewards 0 ... 0 1 0: steps 0 to 18 still get 1, step 19 no more."""
    folder = write(tmp_path / "set", told(1, [0.0] * 18 + [1.0, 0.0]), spec=SPEC)
    found = drawn(opened(folder, clusters=2))
    late = sum(step == 19 for _, step in found) / len(found)
    assert late == pytest.approx(0.5, abs=0.03)


def test_with_a_discount_states_are_divided_by_the_time_until_they_are_paid(tmp_path):
    """Rewards 0 0 0 0 1 1 ... 1 1: discounted by 0.5 and going on, they are worth 1/8 to 2."""
    rewards = [0.0] * 4 + [1.0] * 16
    folder = write(tmp_path / "set", told(2, rewards), spec=SPEC)
    found = drawn(opened(folder, clusters=5, discount=0.5))
    shares = [sum(step == t for _, step in found) / len(found) for t in range(4)]
    assert shares == pytest.approx([0.2] * 4, abs=0.03)
    whole = drawn(opened(folder, clusters=5))
    assert sum(step < 4 for _, step in whole) / len(whole) < 0.3


def test_with_a_discount_nothing_comes_after_an_end_of_the_task(tmp_path):
    """Rewards 0 1, ended: worth 0.5 and 1, and not 1 and 2 as if the last went on."""
    going, ended = told(2, [0.0, 1.0]), told(1, [0.0, 1.0])
    assert ended.terminated[-1]
    assert not going.terminated.any()
    folder = write(tmp_path / "set", going, ended, spec=SPEC)
    found = drawn(opened(folder, clusters=3, discount=0.5))
    assert sum(one == (1, 0) for one in found) / len(found) == pytest.approx(1 / 3, abs=0.03)


def test_an_environment_begins_in_the_valid_states_that_are_named(tmp_path):
    valid = np.array([True, False, True])
    folder = write(tmp_path / "set", told(1, [1.0, 7.0, 0.0], valid=valid), spec=SPEC)
    config = SnapshotConfig(
        data=str(folder), steps=1000, episode_steps=7, value=SnapshotValue.reward_so_far
    )
    env = worlds()
    found = snapshot_resets(config, env.spec, env)
    assert env.source is found
    assert (found.until, found.episode_steps) == (1000, 7)
    assert "2 states" in found.sentence
    assert sum(step == 0 for _, step in drawn(found)) / 4000 == pytest.approx(0.5, abs=0.03)


def test_a_run_goes_on_with_the_states_that_it_began_in(tmp_path):
    one = opened(write(tmp_path / "one", told(1, [0.0, 1.0]), spec=SPEC))
    two = opened(write(tmp_path / "two", told(2, [0.0, 1.0]), spec=SPEC))
    one.load_state_dict(one.state_dict())
    for state in (two.state_dict(), {}):
        with pytest.raises(CheckpointError, match="not those that the run began in"):
            one.load_state_dict(state)


def test_what_cannot_be_begun_in_is_refused(tmp_path):
    bare = replace(SPEC, states={})
    write(tmp_path / "bare", episode(0, spec=bare), spec=bare)
    with pytest.raises(ConfigError, match="holds no states of the simulation"):
        opened(tmp_path / "bare")
    other = replace(SPEC, states={"position": 3})
    three = {"position": np.zeros((5, 3), np.float32)}
    write(tmp_path / "other", episode(0, spec=other, states=three), spec=other)
    with pytest.raises(SpecMismatchError, match="of the same task and robot"):
        opened(tmp_path / "other")
    named = SnapshotConfig(data=str(tmp_path / "bare"))
    with pytest.raises(ConfigError, match="cannot begin episodes in given states"):
        snapshot_resets(named, worlds().spec, None)
    with pytest.raises(ConfigError, match=r"snapshots\.clusters must be at least 1"):
        SnapshotConfig(clusters=0)
    for discount in (0.0, 1.1, float("nan")):
        with pytest.raises(ConfigError, match=r"snapshots\.discount must lie in \(0, 1\]"):
            SnapshotConfig(discount=discount)
    with pytest.raises(ConfigError, match=r"snapshots\.value=reward_so_far.*snapshots\.discount=1"):
        SnapshotConfig(discount=0.9, value=SnapshotValue.reward_so_far)
