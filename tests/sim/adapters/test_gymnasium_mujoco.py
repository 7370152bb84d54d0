"""Gymnasium's MuJoCo worlds on our engine: the same numbers as Gymnasium's own."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from sim.adapters.gymnasium_config import GymnasiumConfig, WorldEngine
from sim.adapters.gymnasium_env import GymnasiumEnv
from sim.adapters.gymnasium_make import make_gymnasium_env
from sim.adapters.gymnasium_mujoco import WORLDS, MujocoWorldsEnv
from tests.fakes import CPU
from tests.matrices import some

COUNT, STEPS = 3, 200
ROOT = Path(__file__).parents[3]


def worlds(name: str = "Hopper-v5", count: int = COUNT, **config: Any) -> MujocoWorldsEnv:
    env = made(id=name, count=count, physics_threads=1, **config)
    assert isinstance(env, MujocoWorldsEnv)
    return env


def made(*, count: int = COUNT, **config: Any) -> BatchEnv:
    return make_gymnasium_env(GymnasiumConfig(**config), num_envs=count, device=CPU, seed=0)


class Twins:
    """Gymnasium's own environments, put where our worlds begin."""

    def __init__(self, env: MujocoWorldsEnv, name: str, limit: int) -> None:
        self.env = env
        self.envs = [gymnasium.make(name, max_episode_steps=limit) for _ in range(COUNT)]
        for i in range(COUNT):
            self.begin(i)

    def begin(self, i: int) -> None:
        self.envs[i].reset(seed=0)
        engine, bare = self.env.engine, self.envs[i].unwrapped
        bare.set_state(engine.qpos[i].numpy(), engine.qvel[i].numpy())  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
@pytest.mark.parametrize("name", some(("Hopper-v5",), [n for n in WORLDS if n != "Hopper-v5"]))
def test_every_step_is_that_of_gymnasiums_environment(name):
    limit = 70
    env = worlds(name, kwargs={"max_episode_steps": limit})
    twins = Twins(env, name, limit)
    generator, ended = torch.Generator().manual_seed(1), 0
    high = torch.from_numpy(twins.envs[0].action_space.high)  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(STEPS):
        action = 2 * torch.rand(COUNT, env.spec.action_size, generator=generator) - 1
        step = env.step(action)
        for i, twin in enumerate(twins.envs):
            seen, reward, terminated, truncated, info = twin.step((action[i] * high).numpy())
            # The physics are the same code on the same numbers, bit for bit; what is left is
            # Gymnasium's double precision rounded to our single, and the order of short sums.
            torch.testing.assert_close(step.next_obs["actor"][i], single(seen), rtol=0, atol=0)
            torch.testing.assert_close(step.reward[i], single(reward), rtol=1e-5, atol=1e-5)
            assert (bool(step.terminated[i]), bool(step.truncated[i])) == (
                terminated, truncated and not terminated
            )  # fmt: skip
            assert sorted(step.metrics) == sorted(info)
            for key, value in info.items():
                torch.testing.assert_close(
                    step.metrics[key][i], single(value), rtol=1e-5, atol=1e-5
                )
            if terminated or truncated:
                ended += 1
                twins.begin(i)
    assert ended >= 2 * COUNT


def single(value: Any) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float32)


@pytest.mark.parametrize(
    "name", some(["HalfCheetah-v5"], [n for n in WORLDS if n != "HalfCheetah-v5"])
)
def test_starts_have_gymnasiums_spread(name):
    env = worlds(name, count=4000)
    twin = gymnasium.make(name)
    theirs = torch.stack([single(twin.reset(seed=i)[0]) for i in range(400)])
    ours = env.reset(seed=1)["actor"]
    # 400 samples: the spread is known to a twenty-eighth, the mean to a twentieth of a spread.
    torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0.15, atol=0)
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 0.25 * theirs.std(0)).all()
    kinds = (ours.abs().amax(0) / ours.std(0)).split(
        [env.engine.qpos.shape[1] - WORLDS[name].hidden, env.engine.qvel.shape[1]]
    )
    assert (kinds[1] > 3).all() == WORLDS[name].normal_velocity  # uniform ones end at sqrt(3)


def test_spec_is_that_of_the_wrapped_environment():
    for name in WORLDS:
        ours, theirs = worlds(name).spec, made(id=name, engine=WorldEngine.gymnasium).spec
        assert (ours.groups, ours.action_size) == (theirs.groups, theirs.action_size)
        assert ours.control_dt == pytest.approx(theirs.control_dt)
        assert not ours.judges_success
        assert ours.resumable
        assert not theirs.resumable
        assert WORLDS[name].episode_steps == gymnasium.spec(name).max_episode_steps


def test_world_that_the_engine_gives_up_is_an_invalid_row_and_begins_anew():
    env = worlds("HalfCheetah-v5")
    env.engine.qvel[1] = 1e12  # MuJoCo calls this bad, and would go on from the reference pose
    step = env.step(torch.zeros(COUNT, 6))
    assert step.valid.tolist() == [True, False, True]
    assert step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any()
    assert step.obs["actor"].isfinite().all()
    env.check()
    assert env.step(torch.zeros(COUNT, 6)).valid.all()


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, MujocoWorldsEnv),
        ({"kwargs": {"max_episode_steps": 5}, "metrics": ["x_velocity"]}, MujocoWorldsEnv),
        ({"engine": WorldEngine.gymnasium}, GymnasiumEnv),
        ({"kwargs": {"frame_skip": 2}}, GymnasiumEnv),
        ({"action_low": [-0.5]}, GymnasiumEnv),
        ({"id": "Reacher-v5"}, GymnasiumEnv),
    ],
)
def test_automatic_choice_takes_our_engine_where_it_knows_everything(config, kind):
    assert type(made(**{"id": "Hopper-v5", **config})) is kind


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": "Ant-v5"}, r"'Ant-v5' is unknown.*known: HalfCheetah-v5, Hopper-v5, Inverted"),
        ({"kwargs": {"frame_skip": 2}}, r"with env.kwargs.frame_skip, which it does not"),
        ({"success": ["x_position"]}, "with env.success"),
        ({"metrics": ["x_velocty"]}, "did you mean 'x_velocity'"),
        ({"kwargs": {"max_episode_steps": 0}}, "must be at least 1"),
        ({"kwargs": {"max_episode_steps": "abc"}}, "must be a whole number of steps, got 'abc'"),
        ({"kwargs": {"max_episode_steps": 500.7}}, "must be a whole number of steps, got 500.7"),
    ],
)
def test_what_our_engine_cannot_do_is_refused_in_words(config, told):
    with pytest.raises(ConfigError, match=told):
        made(**{"id": "Hopper-v5", "engine": WorldEngine.batch, **config})


@pytest.mark.slow
def test_a_foreign_environment_is_trained_evaluated_filmed_and_exported_without_it(tmp_path):
    """MetaWorld pins such a MuJoCo too."""
    run = """
import json, sys
sys.modules["mujoco.batch"] = None  # cannot be imported
from robot_rl.cli.main import main
for words in json.loads(sys.argv[1]):
    main(words)
    print("next command", flush=True)
"""
    sizes = [
        "training.total_steps=60",
        "training.random_steps=20",
        "training.evaluation_episodes=1",
    ]
    commands = [
        ["train", "env=gymnasium", "env.id=Pendulum-v1", "num_envs=1", *sizes],
        ["export", "run=latest"],
        ["evaluate", "run=latest", "episodes=1"],
    ]
    line = [sys.executable, "-c", run, json.dumps(commands)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=tmp_path)
    trained, exported, evaluated, rest = done.stdout.split("next command\n")
    assert "episode.mp4" in trained
    assert "verified against PyTorch" in exported
    assert "episode.mp4" in evaluated
    assert not rest


@pytest.mark.slow
def test_foreign_environments_need_no_engine_of_ours():
    """Fetch and others pin a MuJoCo that has no `mujoco.batch`, which our engine is made of."""
    run = """
import sys
sys.modules["mujoco.batch"] = None  # cannot be imported
import torch
from configs.compose import compose
from configs.schema import make_env
from robot_rl.core.errors import MissingExtraError
for arguments in ([], ["env.engine=batch"], ["task=reach"]):
    hopper = ["env=gymnasium", "env.id=Hopper-v5"]
    config = compose(arguments if "task=reach" in arguments else [*hopper, *arguments]).config
    try:
        env = make_env(config, num_envs=2, device=torch.device("cpu"), seed=0, evaluation=False)
        print(type(env).__name__, float(env.step(torch.zeros(2, 3)).reward[0]) > 0)
    except MissingExtraError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines() == [
        "GymnasiumEnv True",
        *(
            f"{what} needs the package 'mujoco>=4.0', which is not installed; "
            f"there is mujoco {version('mujoco')}; install it with: pip install 'robot_rl[sim]'"
            for what in ("env.engine=batch", "robot 'panda'")
        ),
    ]
