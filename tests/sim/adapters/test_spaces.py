"""Observations that are tuples, and grey pictures without channels, as groups of ours."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from robot_rl.core.errors import ConfigError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.gymnasium_env import GymnasiumEnv
from sim.adapters.spaces import GroupLayout

BOX = Box(-1.0, 1.0, (2,), np.float32)
GREY = Box(0, 255, (20, 24), np.uint8)


class Seen(gymnasium.Env):
    """Shows its step in every part of an observation; ends after three."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)
    observation_space = Tuple((BOX, Dict({"camera": GREY, "rest": BOX})))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._seen(), {}

    def step(self, action):
        self._step += 1
        return self._seen(), 0.0, False, self._step == 3, {}

    def _seen(self):
        part = np.full(2, 0.1 * self._step, np.float32)
        return part, {"camera": np.full((20, 24), self._step, np.uint8), "rest": -part}


def worlds(groups=None, stack=2):
    made = SyncVectorEnv([Seen, Seen], autoreset_mode=AutoresetMode.SAME_STEP)
    config = GymnasiumConfig(id="seen", groups=groups or {}, stack=stack)
    return GymnasiumEnv(made, config, device=torch.device("cpu"), seed=0)


def test_parts_of_a_tuple_go_by_their_number_and_grey_pictures_get_a_channel():
    env = worlds()
    assert env.spec.groups["actor"].shape == (4,)
    assert env.spec.groups["image/1/camera"].shape == (2, 20, 24, 1)
    for number in (1, 2, 3):
        step = env.step(torch.zeros(2, 1))
        seen = torch.tensor([0.1, 0.1, -0.1, -0.1]) * number
        assert torch.allclose(step.next_obs["actor"], seen.expand(2, 4))  # the last one too
        assert (step.next_obs["image/1/camera"][:, -1] == number).all()
    assert step.truncated.all()
    assert (step.obs["actor"] == 0).all()


def test_parts_of_a_tuple_are_chosen_by_config():
    env = worlds({"actor": ["1/rest"], "image/eye": ["1/camera"]}, stack=1)
    assert env.spec.groups["actor"].shape == (2,)
    assert env.spec.groups["image/eye"].shape == (1, 20, 24, 1)
    with pytest.raises(ConfigError, match=r"part of env.groups.actor '2' is unknown"):
        worlds({"actor": ["2"]})


def test_bytes_in_rows_may_be_a_vector_where_that_is_asked_for():
    layout = GroupLayout(GREY, {"actor": [""]}, takes_images=True)
    assert layout.sizes == {"actor": 480}


def test_part_without_bounds_is_refused_in_words():
    with pytest.raises(ConfigError, match=r"'1' is Discrete\(3\); expected a Box"):
        GroupLayout(Tuple((BOX, Discrete(3))), {})
