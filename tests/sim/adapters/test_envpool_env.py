"""Worlds of envpool: what their rows mean, their seeds, and what is refused."""

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError, MissingExtraError, SpecMismatchError
from sim.adapters.envpool_env import EnvpoolWorlds
from sim.adapters.gymnasium_config import GymnasiumConfig, WorldEngine
from sim.adapters.gymnasium_make import make_gymnasium_env
from tests.fakes import CPU, copied

WORLDS = 4
INSTALLED = importlib.util.find_spec("envpool") is not None
pooled = pytest.mark.skipif(not INSTALLED, reason="envpool is not installed (extra envpool)")


def made(name: str = "Hopper-v5", **config: Any) -> Any:
    settings = GymnasiumConfig(id=name, engine=WorldEngine.envpool, physics_threads=2, **config)
    return make_gymnasium_env(settings, num_envs=WORLDS, device=CPU, seed=0)


@pytest.mark.skipif(INSTALLED, reason="envpool is installed: nothing is missing")
def test_missing_package_is_named_with_its_extra():
    with pytest.raises(MissingExtraError, match=r"pip install 'robot_rl\[envpool\]'"):
        made()


@pooled
def test_seeds_choose_every_world_anew():
    worlds = EnvpoolWorlds("Hopper-v5", WORLDS)
    one, _ = worlds.reset(seed=1)
    two, _ = worlds.reset(seed=2)
    assert len(np.unique(np.concatenate([one, two])[:, 0])) == 2 * WORLDS
    assert np.array_equal(worlds.reset(seed=1)[0], one)


@pooled
def test_a_seed_for_some_of_the_worlds_is_refused():
    worlds = EnvpoolWorlds("HalfCheetah-v5", WORLDS)
    mask = np.array([True, False, True, False])
    with pytest.raises(SpecMismatchError, match="seed some of its worlds"):
        worlds.reset(seed=3, options={"reset_mask": mask})


@pooled
def test_dict_observations_are_read_as_gymnasiums_are():
    env = made("FetchReach-v4", groups={"actor": ["observation", "desired_goal"]})
    before = copied(env.reset(seed=0)["actor"])
    assert env.spec.groups["actor"].shape == (13,)
    assert env.spec.judges_success
    mask = torch.tensor([True, False, False, False])
    assert torch.equal(env.reset(mask=mask)["actor"][1:], before[1:])


@pooled
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"name": "Hoper-v5"}, "did you mean 'Hopper-v5'"),
        ({"kwargs": {"legs": 2}}, "cannot make 'Hopper-v5': .*legs"),
        ({"kwargs": {"num_threads": 2}}, "env.kwargs has num_threads"),
        ({"processes": True}, "env.processes has no meaning"),
    ],
)
def test_mistakes_are_refused_in_words(config, told):
    with pytest.raises(ConfigError, match=told):
        made(**config)
