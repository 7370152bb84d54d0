"""The race beside UniLab, as far as it goes without UniLab: settings, judging, times, refusals."""

import json
import math
import sys

import numpy as np
import pytest
import torch

from configs.compose import compose
from scripts.baselines.unilab_side import ENTRANTS, errors, overrides, put_meshes
from scripts.races.unilab_curves import (
    EntrantCurve,
    Point,
    first_reached,
    learning_time,
    read_curves,
)
from scripts.races.unilab_page import write_report

RACE = "scripts.races.beside_unilab"


def moment(*, speed=(0.0, 0.0), yaw=0.0, roll=0.0, height=0.3, turn=0.0):
    """One row of UniLab's physics: time, positions and velocities."""
    half_yaw, half_roll = yaw / 2, roll / 2
    attitude = (
        math.cos(half_yaw) * math.cos(half_roll), math.cos(half_yaw) * math.sin(half_roll),
        math.sin(half_yaw) * math.sin(half_roll), math.sin(half_yaw) * math.cos(half_roll),
    )  # fmt: skip
    joints = [0.0] * 12
    return torch.tensor([
        [7.0, 1.0, 2.0, height, *attitude, *joints, *speed, 0.0, 0.0, 0.0, turn, *joints]
    ])  # fmt: skip


def test_the_error_is_told_in_the_heading_frame():
    """A robot that looks along y and moves along it goes forward; 0.3 and 0.4 off are 0.5."""
    goal = torch.tensor([[0.6, 0.1, 0.2]])
    error, turn_error, fallen = errors(
        moment(speed=(0.3, 0.3), yaw=math.pi / 2, turn=0.5), goal
    )  # forward 0.3, left -0.3
    assert error.item() == pytest.approx(0.5, abs=1e-6)
    assert turn_error.item() == pytest.approx(0.3, abs=1e-6)
    assert not fallen.item()


@pytest.mark.parametrize(
    ("state", "fallen"),
    [({"height": 0.13}, True), ({"roll": 1.05}, True), ({"roll": 0.95, "yaw": 2.0}, False)],
)
def test_low_and_tilted_robots_have_fallen(state, fallen):
    assert errors(moment(**state), torch.zeros(1, 3))[2].item() is fallen


def test_unilab_is_asked_for_the_goals_of_our_task(tmp_path):
    task = compose(["task=velocity", "robot=go2"]).config.task
    ours = {
        "lin_vel_x": task.forward, "lin_vel_y": task.lateral, "ang_vel_z": task.turn,
    }  # fmt: skip
    for entrant in ENTRANTS.values():
        told = overrides(entrant, tmp_path)
        for name, (low, high) in ours.items():
            assert f"env.commands.twist.ranges.{name}=[{low},{high}]" in told
        time = task.goal_time
        assert f"env.commands.twist.resampling_time_range=[{time},{time}]" in told
        assert f"env.commands.twist.rel_standing_envs={task.standing}" in told
        assert f"env.max_episode_seconds={task.episode_length}" in told


def test_meshes_are_put_where_they_are_missing_alone(tmp_path):
    (tmp_path / "go2.xml").write_text('<mesh file="a_0.obj"/><mesh file="b.obj"/>')
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/b.obj").write_text("a real one")
    put_meshes(tmp_path)
    assert (tmp_path / "assets/a_0.obj").read_text().count("\nf ") == 4
    assert (tmp_path / "assets/b.obj").read_text() == "a real one"


def test_time_of_learning_leaves_evaluations_out():
    """Ten seconds, 90 % of them learning; then twenty of an evaluation with 5 % of learning."""
    names = ("time/collect_fraction", "time/learn_fraction")
    records = [
        {"step": 100, "seconds": 10.0, **dict(zip(names, (0.3, 0.6), strict=True))},
        {"step": 100, "seconds": 30.0, **dict(zip(names, (0.0, 0.05), strict=True))},
    ]
    wall, processor = learning_time(records, [(10.0, 5.0), (30.0, 15.0)])
    assert np.allclose(wall, [9.0, 10.0])
    assert np.allclose(processor, [4.5, 5.0])


def point(steps, error):
    return Point(
        steps=steps, seconds=steps / 2, cpu_seconds=steps / 4, error=error, fallen=0.0
    )  # fmt: skip


def test_the_first_point_within_the_goal_counts():
    points = [point(10, 0.5), point(20, 0.15), point(30, 0.2)]
    assert first_reached(points, 0.15) is points[1]
    assert first_reached(points, 0.1) is None


def test_a_curve_of_unilab_is_read_from_its_folder(tmp_path):
    """Checkpoint 2 of PPO, saved 60 s after the learning began, has three rollouts of 24 x 4."""
    folder = tmp_path / "ppo"
    folder.mkdir()
    settings = {"num_envs": 4, "num_steps_per_env": 24, "seed": 1}
    document = {
        "run": {"start_time_utc": "2026-01-01", "effective_seed": 1, "hardware": {"chip": "c"}},
        "config": {"algo": settings, "env": {"scene": {}}, "training": {"log_dir": "secret"}},
    }
    files = {
        "run_config.json": document,
        "command.json": ["unilab", "env.scene.model_file=secret", "training.log_dir=secret"],
        "versions.json": {"python": "3", "packages": {"unilab": "1"}},
        "evaluations.jsonl": {"file": "model_2.pt", "error": 0.3, "fallen": 0.1},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content) + "\n")
    (folder / "model_2.pt").touch()
    saved = (folder / "model_2.pt").stat().st_mtime
    (folder / f"events.out.tfevents.{int(saved) - 60}.host.1.0").touch()
    lines = [{"time": saved + t, "cpu": 30 + t / 2, "load": 1.0} for t in (-80, 20)]
    (folder / "times.jsonl").write_text("\n".join(map(json.dumps, lines)))
    curve = read_curves(tmp_path)["ppo"]
    (found,) = curve.points
    assert (found.steps, found.error, found.fallen) == (288, 0.3, 0.1)
    assert found.seconds == pytest.approx(60, abs=1.01)
    assert found.cpu_seconds == pytest.approx(found.seconds / 2, abs=0.01)
    assert "secret" not in " ".join(curve.command)


def test_report_tells_who_reached_what(tmp_path):
    origin = {
        "started": "2026-01-01T00:00", "seed": 0, "python": "3", "packages": {"a": "1"},
        "device": "cpu", "load_average": 1.0, "config_sha256": "f" * 64,
    }  # fmt: skip
    curves = {
        "ours": EntrantCurve(
            command=["robot-rl", "train"], origin=origin, points=[point(100, 0.3), point(240, 0.1)]
        )
    }
    write_report(curves, tmp_path)
    page = (tmp_path / "unilab.md").read_text()
    assert page.count("240, 2.0 min, 1.0 min") == 3
    assert json.loads((tmp_path / "unilab.json").read_text())["ours"]["points"][0]["error"] == 0.3
    assert (tmp_path / "unilab.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "apo"], "ppo"),
        (["train", "ppo"], "python="),
        (["train", "ppo", "python=absent"], "does not start"),
        (["train", "ppo", f"python={sys.executable}"], "pip install 'unilab[mujoco]"),
        (["evaluate", "ppo"], "train ppo first"),
        (["report"], "nobody was evaluated"),
        (["train", "ours", "minutes=0"], "minutes must be above 0"),
        (["walk"], "not understood"),
    ],
)
def test_what_cannot_be_raced_is_refused_in_a_sentence(refused, here, words, told):
    assert told in refused(RACE, *words)
