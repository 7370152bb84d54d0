"""Spaces of foreign tasks as groups and actions, and global random streams of their own."""

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from robot_rl.core.errors import ConfigError, ShapeError
from sim.adapters.torch_envs.config import put_settings
from sim.adapters.torch_envs.env import ActionRange, RandomStreams, TorchLayout
from tests.fakes import CPU


def box(*shape: int, low: Any = -math.inf, high: Any = math.inf, dtype: str = "float32") -> Any:
    """A box as mjlab has it: plain numbers for bounds, a word for the type."""
    return SimpleNamespace(shape=shape, low=low, high=high, dtype=dtype)


def spaces(**parts):
    return SimpleNamespace(spaces=parts)


def test_usual_names_become_actor_and_critic_and_an_image_is_refused_unless_left_out():
    for name in ("actor", "policy"):
        layout = TorchLayout(
            spaces(**{name: box(3), "critic": box(5), "camera": box(3, 8, 9), "map": box(4, 5, 6)}),
            {},
        )
        assert layout.sizes == {"actor": 3, "critic": 5}
        assert layout.images == {"image/camera": (8, 9, 3)}
    assert TorchLayout(spaces(policy=box(3)), {}).sizes == {"actor": 3}
    with pytest.raises(ConfigError, match=r"no observation group called actor or policy.*teacher"):
        TorchLayout(spaces(teacher=box(3)), {})
    seen = spaces(actor=box(2), camera=box(3, 8, 8))
    with pytest.raises(ConfigError, match="'camera' is an image"):
        TorchLayout(seen, {"actor": ["actor", "camera"]})


def test_pictures_with_channels_first_or_last_in_bytes_or_shares_are_bytes():
    bytes_of = torch.arange(2 * 3 * 4 * 3, dtype=torch.uint8).reshape(2, 3, 4, 3)
    shares = (bytes_of / 255).permute(0, 3, 1, 2)  # as mjlab has them
    layout = TorchLayout(
        spaces(
            policy=spaces(speed=box(2), rgb=box(3, 4, 3)), camera=box(3, 3, 4), near=box(1, 5, 6)
        ),
        {},
    )
    assert layout.sizes == {"actor": 2}
    obs = {"policy": {"rgb": bytes_of}, "camera": shares, "near": torch.ones(2, 1, 5, 6)}
    assert torch.equal(layout.read_pictures(obs, "image/policy/rgb"), bytes_of[:, None])
    assert torch.equal(layout.read_pictures(obs, "image/camera"), bytes_of[:, None])
    assert layout.read_pictures(obs, "image/near").shape == (2, 1, 5, 6, 1)
    broken = {
        **obs,
        "camera": torch.stack([1.5 * shares[0], torch.full_like(shares[1], torch.nan)]),
    }
    assert layout.read_pictures(broken, "image/camera")[1].max() == 0, "looked at once"
    assert layout.sums(broken)["image/camera"].isfinite().tolist() == [[True], [False]]
    fresh = TorchLayout(spaces(policy=box(2), camera=box(3, 3, 4)), {})
    with pytest.raises(ShapeError, match=r"go from -0.5 to -0.222; expected bytes, or numbers"):
        fresh.read_pictures({"camera": shares - 0.5}, "image/camera")
    with pytest.raises(
        ShapeError, match=r"have the shape \(3, 4, 3\); expected those of its space"
    ):
        layout.read_pictures({**obs, "camera": bytes_of}, "image/camera")
    with pytest.raises(ConfigError, match=r"of shape \(4, 5, 6\); expected one picture"):
        TorchLayout(spaces(policy=box(2), map=box(4, 5, 6)), {"image/map": ["map"]})
    whole = {"policy": spaces(speed=box(2), touch=box(8, dtype="uint8"), map=box(4, 5, 6, 2))}
    assert TorchLayout(spaces(**whole), {}).sizes == {"actor": 250}, "no picture, no loss"
    hidden = spaces(policy=box(2), critic=spaces(v=box(3), rgb=box(8, 8, 3)))
    assert TorchLayout(hidden, {}).images == {}, "policies see all cameras that there are"
    assert TorchLayout(hidden, {}).sizes == {"actor": 2, "critic": 3}
    alone = TorchLayout(spaces(policy=box(8, 8, 3)), {})  # Isaac Lab's direct tasks that see
    assert (alone.sizes, alone.images) == ({}, {"image/policy": (8, 8, 3)})


def test_parts_of_a_group_are_joined_in_the_order_asked_in_memory_of_their_own():
    layout = TorchLayout(
        spaces(policy=box(2, 3), extra=spaces(a=box(1), b=box(2))),
        {"actor": ["extra/b", "policy", "extra/a"]},
    )
    obs = {
        "policy": torch.arange(6.0).reshape(1, 2, 3),
        "extra": {"a": torch.tensor([[7]]), "b": torch.tensor([[8.0, 9.0]])},
    }
    assert layout.read(obs, "actor").tolist() == [[8, 9, 0, 1, 2, 3, 4, 5, 7]]
    assert layout.column_names("actor")[1:3] == ["extra/b[1]", "policy[0]"]
    layout, held = TorchLayout(spaces(actor=box(2)), {}), torch.zeros(3, 2)
    read = layout.read({"actor": held}, "actor")
    held += 1
    assert not read.any()


@pytest.mark.parametrize(
    ("space", "low", "high", "expected"),
    [
        (box(2), [], [], [-1.0, 0.25]),
        (box(2), [-2.0], [2.0, 6.0], [-2.0, 3.0]),
        (Box(-math.inf, math.inf, (2,)), [], [], [-1.0, 0.25]),
        (box(2, low=(0.0, -3.0), high=5.0), [], [], [0.0, 2.0]),
        (Box(torch.tensor([0.0, -3]).numpy(), 5.0), [], [], [0.0, 2.0]),
        (box(2, low=0.0), [], [], [0.0, 0.625]),
    ],
)
def test_unbounded_actions_mean_themselves_and_bounds_of_the_space_or_the_config_are_kept(
    space, low, high, expected
):
    action = torch.tensor([[-1.0, 0.25]])
    assert ActionRange(space, low, high, CPU).to_native(action).tolist() == [expected]
    for wrong in ([1.0, 2.0, 3.0], [math.inf], [9.0]):
        with pytest.raises(ConfigError, match=r"one for each|finite numbers|within the|below its"):
            ActionRange(space, wrong, [6.0], CPU)


def test_settings_reach_nested_objects_and_dicts_and_keep_their_types():
    cfg = SimpleNamespace(
        sim=SimpleNamespace(dt=0.01, gravity=(0.0, -9.81)),
        terms={"fell": SimpleNamespace(angle=1)},
        light=SimpleNamespace(on=True), name="x", seconds=5,
    )  # fmt: skip
    put_settings(
        cfg,
        {"sim": {"dt": 1, "gravity": [0.0, 0.0]}, "terms": {"fell": {"angle": 2}}, "light": None},
    )
    assert cfg.sim.dt == 1.0
    assert isinstance(cfg.sim.dt, float)
    assert cfg.sim.gravity == (0.0, 0.0)
    assert cfg.terms["fell"].angle == 2
    assert cfg.light is None
    put_settings(cfg, {"seconds": 1.5})  # a whole number where another one is allowed
    assert cfg.seconds == 1.5
    for wrong, told in (
        ({"sim": {"td": 1}}, r"field of env\.settings\.sim 'td'.*did you mean 'dt'"),
        ({"name": 3}, r"env\.settings\.name is 3; expected str"),
        ({"sim": 3}, "expected fields of a SimpleNamespace"),
        ({"terms": {"fall": None}}, "did you mean 'fell'"),
    ):
        with pytest.raises(ConfigError, match=told):
            put_settings(cfg, wrong)


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def seed_all(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def test_what_is_drawn_inside_neither_changes_nor_depends_on_what_is_drawn_outside():
    streams = RandomStreams(torch.device("cpu"))
    with streams.entered():
        seed_all(3)
        expected = [drawn(), drawn()]
        seed_all(3)
    seed_all(7)
    outside = [drawn(), drawn()]
    seed_all(7)
    got = []
    for expectation in outside:
        with streams.entered():
            got.append(drawn())
        assert drawn() == expectation
    assert got == expected
