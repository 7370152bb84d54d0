"""Spaces of foreign tasks as groups and actions, and global random streams of their own."""

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from robot_rl.core.errors import ConfigError
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
        layout = TorchLayout(spaces(**{name: box(3), "critic": box(5), "camera": box(3, 8, 8)}), {})
        assert layout.sizes == {"actor": 3, "critic": 5}
    assert TorchLayout(spaces(policy=box(3)), {}).sizes == {"actor": 3}
    with pytest.raises(ConfigError, match=r"no observation group called actor or policy.*teacher"):
        TorchLayout(spaces(teacher=box(3)), {})
    seen = spaces(actor=box(2), camera=box(3, 8, 8))
    with pytest.raises(ConfigError, match="'camera' is an image"):
        TorchLayout(seen, {"actor": ["actor", "camera"]})


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
        with pytest.raises(ConfigError, match=r"one for each|finite numbers|below its high"):
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
