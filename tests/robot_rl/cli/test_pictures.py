"""Pictures of a policy: robots with joints are seen in a few worlds of their own."""

import importlib
from pathlib import Path

import torch

from robot_rl.core.env import Obs
from sim.env import SimEnv
from tests.compositions import composed

TINY = ("task=velocity", "task.episode_length=0.2", "task.goal_time=0.1", "device=cpu")


def test_a_walk_is_drawn_without_stepping_all_worlds_of_an_evaluation(tmp_path, monkeypatch):
    parts = importlib.import_module("robot_rl.cli.parts")
    pictures = importlib.import_module("robot_rl.cli.pictures")
    config = composed(TINY).config
    env: SimEnv = parts.make_sim_env(
        config, num_envs=16, device=torch.device("cpu"), seed=1, evaluation=True
    )
    asked: set[int] = set()

    def act(obs: Obs) -> torch.Tensor:
        asked.add(len(obs["actor"]))
        return torch.zeros(len(obs["actor"]), 12)

    said = pictures.draw_policy(tmp_path, config, env, act, seed=1, video=False)
    assert said == {"walk plot": str(tmp_path / "plots" / "walk.png")}
    assert Path(said["walk plot"]).stat().st_size > 10_000
    assert asked == {importlib.import_module("robot_rl.cli.pictures").FILMED}
