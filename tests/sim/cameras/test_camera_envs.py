"""Envs with cameras: true successors, stacks from step to step, and what cameras cost without."""

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.env_selection import EnvSelection
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from tests.fakes import copied
from tests.sim.pixels import SIDE, STEPS, pixel_envs

pytestmark = pytest.mark.slow


def test_a_stale_camera_makes_steps_invalid_and_ends_no_episode():
    env = pixel_envs(4, dropout=0.9, dropout_frames=3, stale_after=2)
    env.reset(seed=0)
    found = torch.zeros(4, dtype=torch.bool)
    for _ in range(8):
        step = env.step(torch.zeros(4, 1))
        found |= ~step.valid
        assert not step.ended.any()
    assert found.all()


def test_an_evaluation_counts_the_steps_of_a_stale_camera_and_gives_no_env_up():
    """Their rewards and times were left out, and a stale last step counted as a diverged env."""

    def still(obs: Obs) -> Tensor:
        return torch.zeros(4, 1)

    void: list[bool] = []
    plain = evaluate(pixel_envs(4), still, seed=0)
    silent = pixel_envs(4, dropout=0.9, dropout_frames=3, stale_after=2)
    found = evaluate(silent, still, seed=0, on_step=lambda s: void.append(not s.valid.any()))
    assert void[STEPS - 1], "the last step of all is stale"
    assert not found.gave_up.any()
    assert torch.equal(found.lost, plain.lost)
    assert torch.equal(found.returns, plain.returns)
    assert torch.equal(found.seconds, plain.seconds)


def pictures_of(env: SimEnv) -> Tensor:
    """Pictures of the camera of an env's worlds now, (N, H, W, C), by a renderer of its own."""
    other = pixel_envs(env.spec.num_envs, seed=7)
    other.reset(seed=7)
    state, mine = other.state_dict(), env.state_dict()
    other.load_state_dict({**state, "simulation": mine["simulation"]})
    cameras = other._cameras
    assert cameras is not None
    cameras.begin(EnvSelection(torch.ones(env.spec.num_envs, dtype=torch.bool)))
    return cameras.obs[SIDE][:, -1].clone()


def test_the_newest_frame_of_a_successor_shows_the_state_that_the_step_led_to():
    env = pixel_envs(3, steps=100, decimation=16)
    env.reset(seed=0)
    moved = []
    for _ in range(6):
        before = pictures_of(env)
        step = copied(env.step(torch.ones(3, 1)))
        now = pictures_of(env)
        assert torch.equal(step.next_obs[SIDE][:, -1], now)
        assert torch.equal(step.obs[SIDE], step.next_obs[SIDE])
        assert torch.equal(step.next_obs[SIDE][:, -2], before)
        moved.append(bool((now != before).any()))
    assert any(moved)


def test_obs_of_a_step_is_what_the_next_step_s_stack_goes_on_from():
    env = pixel_envs(3, steps=6, decimation=16)
    obs = env.reset(seed=0)[SIDE].clone()
    for _ in range(13):
        step = copied(env.step(torch.ones(3, 1)))
        assert torch.equal(step.next_obs[SIDE][:, :-1], obs[:, 1:])
        if step.ended.any():
            first = step.obs[SIDE][step.ended]
            assert torch.equal(first, first[:, :1].expand_as(first))
            assert not torch.equal(first[:, -1], step.next_obs[SIDE][step.ended][:, -1])
        obs = step.obs[SIDE]


def test_without_cameras_an_env_has_no_image_and_the_same_physics():
    plain, seeing = pixel_envs(3, cameras=()), pixel_envs(3)
    assert SIDE not in plain.spec.groups
    assert seeing.spec.groups[SIDE].shape == (3, 16, 16, 3)
    one, two = plain.reset(seed=0), seeing.reset(seed=0)
    assert SIDE not in one
    for _ in range(15):
        assert torch.equal(one["critic"], two["critic"])
        one, two = plain.step(torch.ones(3, 1)).obs, seeing.step(torch.ones(3, 1)).obs
