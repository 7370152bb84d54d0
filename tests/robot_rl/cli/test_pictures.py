"""Pictures of a policy: they never take a finished training down with them."""

import subprocess
from pathlib import Path
from threading import Event

import pytest
import torch

from robot_rl.cli.components import make_sim_env
from robot_rl.cli.pictures import FILMED, draw_policy, report_flight
from robot_rl.core.env import Obs
from sim.env import SimEnv
from sim.robots.multirotor_expert import MultirotorExpert
from sim.tasks.flights.hover import HoverConfig
from tests.compositions import composed
from tests.sim.flying import flight_env, simulation_of

pytestmark = pytest.mark.slow

SHORT = HoverConfig(episode_length=0.3, success_window=0.1)


def report(folder: Path, *, video: bool) -> dict[str, str]:
    env = flight_env(SHORT, 2)
    expert = MultirotorExpert(simulation_of(env))
    return report_flight(folder, env, lambda obs: expert.act(), seed=3, video=video)


def test_report_writes_the_plot_where_it_says_and_says_why_there_is_no_film(tmp_path, monkeypatch):
    def no_gl(command: list[str], **options) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 3, "", "no such library")

    monkeypatch.setattr(subprocess, "run", no_gl)
    said = report(tmp_path, video=True)
    assert said["video"].startswith("none: no picture")
    assert said["flight plot"] == str(tmp_path / "plots" / "flight.png")
    assert Path(said["flight plot"]).stat().st_size > 10_000


def test_report_outlives_an_unwritable_folder_and_a_policy_that_answers_nonsense(tmp_path):
    (tmp_path / "plots").write_text("a file where a folder should be")
    assert report(tmp_path, video=False)["flight plot"].startswith("none: cannot write")
    env = flight_env(SHORT, 2)
    said = report_flight(
        tmp_path, env, lambda obs: torch.full((2, 4), float("nan")), seed=3, video=False
    )
    assert said["flight plot"].startswith("none: ")


@pytest.mark.parametrize("video", [True, False])
def test_what_has_time_is_done_once_while_the_video_is_drawn(tmp_path, monkeypatch, video):
    begun, done = Event(), Event()

    def drawing(command: list[str], **options) -> subprocess.CompletedProcess[str]:
        begun.set()
        assert done.wait(60)  # the video is not there before the other things
        return subprocess.CompletedProcess(command, 3, "", "no such library")

    def others() -> None:
        assert not done.is_set()
        assert not video or begun.wait(60)
        done.set()

    monkeypatch.setattr(subprocess, "run", drawing)
    env = flight_env(SHORT, 2)
    expert = MultirotorExpert(simulation_of(env))
    said = report_flight(
        tmp_path, env, lambda obs: expert.act(), seed=3, video=video, meanwhile=others
    )
    assert done.is_set()
    assert list(said) == ["flight plot", *(["video"] if video else [])]


TINY = ("task=velocity", "task.episode_length=0.2", "task.goal_time=0.1", "device=cpu")


def test_a_walk_is_drawn_without_stepping_all_worlds_of_an_evaluation(tmp_path, monkeypatch):
    config = composed(TINY).config
    env: SimEnv = make_sim_env(
        config, num_envs=16, device=torch.device("cpu"), seed=1, evaluation=True
    )
    asked: set[int] = set()

    def act(obs: Obs) -> torch.Tensor:
        asked.add(len(obs["actor"]))
        return torch.zeros(len(obs["actor"]), 12)

    said = draw_policy(tmp_path, config, env, act, seed=1, video=False)
    assert said == {"walk plot": str(tmp_path / "plots" / "walk.png")}
    assert Path(said["walk plot"]).stat().st_size > 10_000
    assert asked == {FILMED}
