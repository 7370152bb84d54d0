"""The report on a policy's flights: it never takes a finished training down with it."""

import subprocess
from pathlib import Path

import torch

from robot_rl.cli.pictures import report_flight
from sim.robots.multirotor_expert import MultirotorExpert
from sim.tasks.flights.hover import HoverConfig
from tests.sim.flight_worlds import flight_env, multirotors

SHORT = HoverConfig(episode_length=0.3, success_window=0.1)


def report(folder: Path, *, video: bool) -> dict[str, str]:
    env = flight_env(SHORT, 2)
    expert = MultirotorExpert(multirotors(env))
    return report_flight(folder, env, lambda obs: expert.act(), seed=3, video=video)


def test_report_writes_the_plot_where_it_says(tmp_path):
    said = report(tmp_path, video=False)
    assert said == {"flight plot": str(tmp_path / "plots" / "flight.png")}
    assert Path(said["flight plot"]).stat().st_size > 10_000


def test_report_says_why_there_is_no_film(tmp_path, monkeypatch):
    def no_gl(command: list[str], **options) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 3, "", "no such library")

    monkeypatch.setattr(subprocess, "run", no_gl)
    said = report(tmp_path, video=True)
    assert said["video"].startswith("none: no picture")
    assert Path(said["flight plot"]).exists()


def test_report_outlives_an_unwritable_folder(tmp_path):
    (tmp_path / "plots").write_text("a file where a folder should be")
    assert report(tmp_path, video=False)["flight plot"].startswith("none: cannot write")


def test_report_outlives_a_policy_that_answers_nonsense(tmp_path):
    env = flight_env(SHORT, 2)
    said = report_flight(
        tmp_path, env, lambda obs: torch.full((2, 4), float("nan")), seed=3, video=False
    )
    assert said["flight plot"].startswith("none: ")
