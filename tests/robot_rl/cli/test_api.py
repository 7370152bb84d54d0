"""robot_rl from Python: train, go on, evaluate, film, export, and loops of one's own."""

import re
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import robot_rl
from policies.networks.queued import QueuedPolicy
from robot_rl.cli.api import Policy
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import clean_environ

REPOSITORY = Path(__file__).resolve().parents[3]
SMALL = (
    "training.random_steps=160", "training.evaluation_interval=1600",
    "training.evaluation_episodes=4", "training.replay_capacity=3200", "learner.batch_size=16",
    "learner.actor.hidden=[8]", "learner.critic.hidden=[8]", "video=false",
)  # fmt: skip


class PointOnALine(gymnasium.Env):
    """A point that is pushed along a line; draws itself, by an odd number of pixels."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,))
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x, self._steps = self.np_random.uniform(-1, 1), 0
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._x, self._steps = self._x + 0.1 * float(action[0]), self._steps + 1
        return self._seen(), -abs(self._x), False, self._steps == 20, {}

    def render(self):
        picture = np.zeros((33, 65, 3), np.uint8)
        picture[:, int(np.clip(32 + 16 * self._x, 0, 64))] = 255
        return picture

    def _seen(self) -> Any:
        return np.array([self._x, self._steps / 20], np.float32)


def test_the_types_of_the_package_are_told_for_each_of_its_names():
    told = (REPOSITORY / "robot_rl" / "__init__.pyi").read_text()
    places = re.findall(r"^from ([\w.]+) import (\w+) as \2$", told, re.MULTILINE)
    named = {name: getattr(robot_rl, name) for name in dir(robot_rl) if name != "__version__"}
    assert {name for _, name in places} == set(named)
    for place, name in places:
        assert getattr(import_module(place), name) is named[name]


def test_the_package_itself_loads_nothing_and_names_what_it_has():
    code = (
        "import sys, robot_rl; assert 'train' in dir(robot_rl) and 'torch' not in sys.modules\n"
        "robot_rl.load_bundle, robot_rl.load_policy; assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=clean_environ())
    with pytest.raises(AttributeError, match="no attribute 'trai'; it has train, load_run"):
        attrgetter("trai")(robot_rl)


@pytest.mark.slow
def test_an_environment_of_ones_own_is_trained_evaluated_filmed_and_used(tmp_path, refused):
    env = PointOnALine()
    run = robot_rl.train(
        *SMALL, env=PointOnALine, total_steps=800, num_envs=4, runs=tmp_path, quiet=True
    )
    assert run.status.step == 800
    assert "finished" in repr(run)
    assert run.metrics[-1]["step"] == 800
    report = run.evaluate(episodes=6)
    assert (report.episodes, report.success) == (6, None)
    assert -100 < report.mean_return < 0
    assert "6 episodes" in str(report)
    act = run.policy()
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(act(observation))
    film = run.film(tmp_path / "films" / "point.mp4")
    assert film.stat().st_size > 1000
    assert run.resume(total_steps=960).status.step == 960
    assert robot_rl.load_run(run.path).status.step == 960
    exported = robot_rl.load_policy(run.export())
    for _ in range(3):
        assert exported(observation) == pytest.approx(act(observation), abs=1e-5)
        assert env.action_space.contains(exported(observation))
        observation, *_ = env.step(exported(observation))
    folder = run.path / "bundle"
    for line in (
        f"deploy bundle={folder}", f"urdf bundle={folder}", f"record bundle={folder} out=bag"
    ):  # fmt: skip
        assert "of a Gymnasium environment, not of a robot" in refused(*line.split())
    assert "C is written for policies of robots" in refused(
        "export", f"run={run.path}", "target=c99"
    )
    with pytest.raises(ConfigError, match=r"ends in \.mp4"):
        run.film("film.gif")


README_LINES = re.search(
    r"```python\n(import gymnasium\n.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL
)  # fmt: skip


@pytest.mark.slow
def test_ten_lines_of_the_readme_train_film_export_and_run_a_gymnasium_environment(tmp_path, here):
    assert README_LINES is not None
    lines = [line for line in README_LINES[1].splitlines() if line.strip()]
    assert len(lines) <= 10
    small = "total_steps=400, num_envs=4, quiet=True"
    code = README_LINES[1].replace("total_steps=20_000", small)
    assert small in code
    known: dict[str, Any] = {}
    exec(code, known)
    assert (here / "pendulum.mp4").stat().st_size > 1000
    assert known["env"].action_space.contains(known["policy"](known["obs"]))


@pytest.mark.slow
def test_policies_that_are_no_function_of_one_array_are_refused_by_export(tmp_path):
    class Two(PointOnALine):
        def __init__(self, render_mode=None):
            super().__init__(render_mode)
            self.observation_space = gymnasium.spaces.Dict({"a": self.observation_space})

        def _seen(self) -> Any:
            return {"a": super()._seen()}

    run = robot_rl.train(*SMALL, env=Two, total_steps=320, num_envs=4, runs=tmp_path, quiet=True)
    with pytest.raises(ConfigError, match="reads Dict as actor; what is exported answers one"):
        run.export()


@pytest.mark.slow
def test_a_task_of_ours_is_trained_exported_and_its_bundle_runs(tmp_path):
    run = robot_rl.train(
        "task=hover", *SMALL, num_envs=16, total_steps=1600, seed=3, runs=tmp_path, quiet=True
    )
    report = run.evaluate("task.evaluation_start.attitude_deg=30", episodes=8)
    assert report.success is not None
    assert report.interval[0] <= report.success <= report.interval[1]
    runner = robot_rl.load_bundle(run.export(tmp_path / "bundle"))
    assert runner.spec.robot.name == "crazyflie"
    env = robot_rl.make_env("task=hover", num_envs=1, seed=1)
    obs = env.reset(seed=1)
    act = run.policy()
    assert act(obs).shape == (1, 4)
    assert act({name: group.numpy() for name, group in obs.items()}) == pytest.approx(act(obs))
    env.step(act(obs))  # tensors for tensors
    assert run.config.seed == 3


def test_an_environment_that_was_made_is_copied_and_one_that_is_none_is_refused():
    env = PointOnALine()
    made = robot_rl.make_env(env=env, num_envs=3)
    assert made.spec.num_envs == 3
    step = made.step(torch.zeros(3, 1))
    assert len(set(step.obs["actor"][:, 0].tolist())) == 3, "worlds of their own"
    assert not hasattr(env, "_x")
    named = robot_rl.make_env(env=gymnasium.make("HalfCheetah-v5"), num_envs=2)
    assert named.spec.groups["actor"].shape == (17,)
    short = gymnasium.make("HalfCheetah-v5", max_episode_steps=7)
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("HalfCheetah-v5"), lambda r: 5.0)
    limited, paid = robot_rl.make_env(env=short), robot_rl.make_env(env=wrapped)
    steps = [limited.step(torch.zeros(1, 6)) for _ in range(7)]
    assert [bool(step.truncated) for step in steps] == [False] * 6 + [True]
    assert float(paid.step(torch.zeros(1, 6)).reward) == 5.0
    with pytest.raises(ConfigError, match="env is a int; expected an id"):
        robot_rl.make_env(env=3)
    with pytest.raises(ConfigError, match="nearest: HalfCheetah-v5"):
        robot_rl.make_env(env="HalfCheeta-v5")


def test_words_of_the_command_line_count_and_arguments_win_over_them():
    words = ("task=hover", "num_envs=3", "seed=5", "device=cpu")
    env = robot_rl.make_env(*words)
    assert env.spec.num_envs == 3
    again, other = (
        robot_rl.make_env("task=hover", num_envs=3, seed=5),
        robot_rl.make_env(*words[:2]),
    )
    still = torch.zeros(3, 4)
    obs = env.step(still).obs["actor"]
    assert torch.equal(obs, again.step(still).obs["actor"])
    assert not torch.equal(obs, other.step(still).obs["actor"]), "the default seed is 0"
    assert robot_rl.make_env(*words, num_envs=2).spec.num_envs == 2
    seeded = [
        robot_rl.make_learner(env, *words, **given).policy().state_dict()
        for words, given in ((("seed=5",), {}), ((), {"seed": 5}), ((), {}))
    ]
    first, second, default = ({k: v.clone() for k, v in one.items()} for one in seeded)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], default[name]) for name in first)


def test_a_loop_of_ones_own_learns_with_the_parts_alone():
    env = robot_rl.make_env("task=hover", num_envs=8)
    learner = robot_rl.make_learner(env, "learner=sac", *SMALL[4:-1])
    replay = robot_rl.make_replay(env, learner, capacity=1000)
    obs = env.reset(seed=0)
    for _ in range(20):
        seen = {name: group.clone() for name, group in obs.items()}
        step = env.step(learner.act(seen, explore=True))
        replay.add(seen, step)
        learner.observe(step)
        obs = step.obs
    metrics, _ = learner.update(replay.sample(learner.samples_per_update))
    assert len(replay) == 160
    assert all(np.isfinite(float(value)) for value in metrics.values())


def test_policy_that_plans_ahead_begins_anew_where_it_is_told():
    class Counting(torch.nn.Module):
        """Plans three actions; every plan is one more than the last."""

        plans = 0.0

        def forward(self, obs):
            self.plans += 1.0
            return torch.full((len(obs["actor"]), 3, 1), self.plans)

    module = QueuedPolicy(Counting(), chunk_length=3, replan_interval=3)
    act = Policy(lambda obs: module(obs).numpy(), module)
    obs = {"actor": torch.zeros(1, 2)}
    assert [act(obs).item() for _ in range(4)] == [1.0, 1.0, 1.0, 2.0]
    act.begin()
    assert [act(obs).item() for _ in range(2)] == [3.0, 3.0]
