"""Worlds of real mjlab: `make adapters` runs these, in an environment that holds it."""

import importlib.util
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError, MissingExtraError
from sim.adapters.torch_envs.config import MjlabConfig
from sim.adapters.torch_envs.mjlab import make_mjlab_env
from tests.contracts.batch_env import BatchEnvContract, EnvCase
from tests.fakes import CPU

GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
WORLDS = 4
INSTALLED = importlib.util.find_spec("mjlab") is not None
real = pytest.mark.skipif(not INSTALLED, reason="mjlab is not installed: make adapters has it")


def made(task: str = GO1, num_envs: int = WORLDS, seed: int = 0, **config: Any) -> Any:
    evaluation = config.pop("evaluation", True)
    return make_mjlab_env(
        MjlabConfig(id=task, **config), num_envs=num_envs, device=CPU, seed=seed,
        evaluation=evaluation,
    )  # fmt: skip


def lasting(steps: int, **settings: Any) -> dict[str, Any]:
    """Settings of episodes of Go1 of so many steps of 0.02 s."""
    return {"episode_length_s": 0.02 * steps, **settings}


def limited(task: str, steps: int, dt: float, **settings: Any) -> Any:
    settings = {"episode_length_s": dt * (steps - 0.5), **settings}  # rounded up to steps
    return lambda num_envs, seed, device: made(
        task, num_envs, seed, settings=settings, action_low=[-4.0], action_high=[4.0]
    )


@pytest.mark.skipif(INSTALLED, reason="mjlab is installed: nothing is missing")
def test_missing_package_is_named_with_its_extra_and_where_it_goes():
    with pytest.raises(MissingExtraError, match=r"pip install 'robot_rl\[mjlab\]'"):
        made()


@real
class TestContract(BatchEnvContract):
    cases = (
        EnvCase(
            "cartpole", limited("Mjlab-Cartpole-Balance", 12, 0.05), 12, terminates=False,
            resumable=False,
        ),
        EnvCase(
            "Go1",
            limited(
                GO1, 12, 0.02,
                # Half of the tilt that ends an episode is reached at random by some.
                terminations={"fell_over": {"params": {"limit_angle": 0.6}}},
                # The one term that remembers earlier episodes: mjlab 1.6 resets no peak heights.
                rewards={"foot_swing_height": {"weight": 0.0}},
            ),
            12, resumable=False,
        ),
        EnvCase(
            "camera",
            limited(
                "Mjlab-Lift-Cube-Yam-Rgb", 12, 0.02, terminations={"ee_ground_collision": None}
            ),
            12, terminates=False, resumable=False,
        ),
    )  # fmt: skip


@real
def test_a_learner_sees_what_the_camera_of_a_task_sees():
    env = made("Mjlab-Lift-Cube-Yam-Rgb", 2)
    assert env.spec.groups["image/camera"].shape == (1, 32, 32, 3)
    step = env.step(torch.zeros(2, env.spec.action_size))
    assert step.obs["image/camera"].dtype == torch.uint8
    assert step.obs["image/camera"].float().std() > 10, "not one colour"


@real
def test_last_observation_is_what_a_longer_episode_would_have_seen_and_not_the_reset_one():
    short, long = made(settings=lasting(10)), made(settings=lasting(1000))
    short.reset(seed=3)
    long.reset(seed=3)
    action = torch.full((WORLDS, 12), 0.3)
    for _ in range(9):
        assert not bool(short.step(action).ended.any())
        long.step(action)
    got, expected = short.step(action), long.step(action)
    assert bool(got.truncated.all())
    assert not bool(expected.ended.any())
    for name in ("actor", "critic"):
        assert torch.equal(got.next_obs[name], expected.next_obs[name])
    assert torch.equal(got.reward, expected.reward)
    assert not torch.equal(got.obs["actor"], got.next_obs["actor"])
    assert bool(got.valid.all())
    # Joint positions (after 3 + 3 + 3 columns) of a world that begins anew are near the default
    # pose; after ten steps of an action they are not.
    joints = slice(9, 21)
    assert got.obs["actor"][:, joints].abs().max() < got.next_obs["actor"][:, joints].abs().max()


@real
def test_the_rows_of_worlds_that_go_on_are_those_of_the_step_not_of_the_others_reset():
    env = made(settings=lasting(1000))
    env.reset(seed=0)
    bare = env._worlds.env
    bare.episode_length_buf[0] = 999
    step = env.step(torch.zeros(WORLDS, 12))
    assert step.ended.tolist() == [True, False, False, False]
    assert torch.equal(step.obs["actor"][1:], step.next_obs["actor"][1:])
    # mjlab's own reset of one world drew the others' noise anew: that is not what they saw.
    assert not torch.equal(bare.obs_buf["actor"][1:], step.obs["actor"][1:])


@real
def test_a_world_that_blows_up_is_invalid_and_named():
    env = made()
    env._worlds.env.sim.data.qvel[1] = float("nan")
    step = env.step(torch.zeros(WORLDS, 12))
    assert step.valid.tolist() == [True, False, True, True]
    with pytest.raises(ArithmeticError, match=r"actor\[\d+\].*1 env\(s\) \(1\)"):
        env.check()


@real
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"task": "Mjlab-Velocity-Flat-Unitree-Go2"}, "did you mean 'Mjlab-Velocity-Flat"),
        ({"task": "nowhere:Task"}, "names the module 'nowhere'"),
        ({"settings": {"sim": {"mujoco": {"timestep": "fast"}}}}, "expected float"),
        ({"settings": {"terminations": {"fell": None}}}, "did you mean 'fell_over'"),
        ({"groups": {"actor": ["policy"]}}, "known: actor, critic"),
        ({"success": ["fallen"]}, "did you mean 'fell_over'"),
    ],
)  # fmt: skip
def test_mistake_is_one_sentence(config, told):
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        made(**config)
