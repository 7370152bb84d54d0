"""Pushes: when, how hard, and the same again after a restore."""

from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.randomization import PushConfig, Pushes

WORLDS = 500


def pushes(**changes: Any) -> Pushes:
    config = PushConfig(**{"speed": 0.5, "turn": 0.2, "interval": [0.5, 1.0], **changes})
    return Pushes(config, num_worlds=WORLDS, control_dt=0.1, seed=3)


def test_every_world_is_pushed_within_its_interval_and_never_harder_than_said() -> None:
    kicks, counts = pushes(), torch.zeros(WORLDS)
    for _ in range(100):  # 10 s
        velocity = torch.zeros(WORLDS, 6, dtype=torch.float64)
        kicks.push(velocity)
        counts += velocity.any(-1)
        assert velocity[:, :2].norm(dim=-1).max() <= 0.5
        assert not velocity[:, 2].any()  # nobody is lifted
        assert velocity[:, 3:].abs().max() <= 0.2
    assert counts.min() >= 9  # at most a second, and up to a step, between two
    assert counts.max() <= 20


def test_pushes_add_to_the_velocity_and_go_everywhere() -> None:
    kicks, seen = pushes(), []
    for _ in range(12):
        velocity = torch.ones(WORLDS, 6, dtype=torch.float64)
        kicks.push(velocity)
        seen.append((velocity - 1)[(velocity != 1).any(-1)])
    directions = torch.cat(seen)[:, :2]
    for sign_x in (-1, 1):
        for sign_y in (-1, 1):
            signs = torch.tensor([sign_x, sign_y])
            quarter = (directions.sign() == signs).all(-1).float().mean()
            assert 0.2 < quarter < 0.3


def test_a_restored_stream_pushes_the_same() -> None:
    kicks, twin = pushes(), pushes()
    zeros = torch.zeros(WORLDS, 6, dtype=torch.float64)
    for _ in range(7):
        kicks.push(zeros.clone())
    twin.load_state_dict(kicks.state_dict())
    for _ in range(7):
        first, second = zeros.clone(), zeros.clone()
        kicks.push(first)
        twin.push(second)
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": -1.0}, "must be >= 0, got -1.0"),
        ({"interval": [0.0, 1.0]}, r"got \[0.0, 1.0\]"),
        ({"interval": [2.0, 1.0]}, r"got \[2.0, 1.0\]"),
    ],
)
def test_impossible_pushes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PushConfig(**changes)


def test_pushes_are_as_hard_as_the_part_that_the_curriculum_gives() -> None:
    whole, part = pushes(), pushes()
    part.level = torch.tensor(0.25)
    for _ in range(12):
        hard, soft = (torch.zeros(WORLDS, 6, dtype=torch.float64) for _ in range(2))
        whole.push(hard)
        part.push(soft)
        assert torch.equal(soft, 0.25 * hard)
    part.level.fill_(1.0)  # live
    hard, soft = (torch.zeros(WORLDS, 6, dtype=torch.float64) for _ in range(2))
    whole.push(hard)
    part.push(soft)
    assert hard.any()
    assert torch.equal(soft, hard)
