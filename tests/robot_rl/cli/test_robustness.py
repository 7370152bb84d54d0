"""`robot-rl evaluate robustness=true`: every axis of every kind of robot, and what cannot be."""

import json
import re
from pathlib import Path

import pytest

from configs.catalog import CONFIGS
from configs.compose import compose
from configs.schema import RunConfig
from robot_rl.cli.build import evaluation_conditions
from robot_rl.cli.robustness_axes import read_axes
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.training.reporting.metrics import read_metrics
from tests.matrices import some
from tests.robot_rl.cli.tiny_run import TINY, only_run

ALWAYS = {"hover": "crazyflie", "velocity": "go2", "reach": "panda"}
FURTHER = {"tracking": "x500", "velocity_rough": "g1", "lift": "panda"}


@pytest.mark.parametrize(("task", "robot"), some(ALWAYS.items(), FURTHER.items()))
def test_every_axis_changes_what_the_task_and_the_robot_have(task, robot):
    chosen = [f"task={task}", f"robot={robot}"]
    axes = read_axes(compose(chosen).config.robot.spec)
    assert next(iter(axes)) == "as trained"
    assert len(axes) >= 8
    plain = compose(chosen).config
    for name, changes in axes.items():
        assert (compose([*chosen, *changes]).config == plain) == (not changes), name


def asked(*conditions: str, **more: int) -> RunConfig:
    named = ",".join(f'"{name}"' for name in conditions)
    words = [f"training.{name}={value}" for name, value in more.items()]
    return compose(["task=hover", f"training.evaluation_conditions=[{named}]", *words]).config


def test_conditions_share_the_episodes_and_as_trained_is_always_among_them():
    found, told = evaluation_conditions(asked("delay 20", "all of", "delay 20 ms"))
    assert list(found) == ["as trained", "delay 20 ms", "all of these, delay to 15 ms"]
    counts = [one.training.evaluation_episodes for one in found.values()]
    assert counts == [86, 85, 85]
    assert found["delay 20 ms"].task.randomization.action_delay == [0.02, 0.02]
    assert found["as trained"].task == asked().task
    assert told == (
        "evaluates under 3 conditions, 85 episodes each: as trained, delay 20 ms, "
        "all of these, delay to 15 ms",
    )
    assert evaluation_conditions(asked()) == ({"as trained": asked()}, ())


def test_every_condition_is_one_that_training_does_not_draw():
    found, told = evaluation_conditions(asked("every"))
    assert list(found) == list(read_axes(asked().robot.spec))
    assert len(told) == 1
    config = asked("every")
    config.task.randomization.mass = 0.25
    found, told = evaluation_conditions(config)
    assert "mass within 25 %" not in found
    assert told[1] == "left out of the conditions: mass within 25 % (training draws that)"


def test_conditions_that_do_not_exist_or_are_not_clear_are_refused():
    for config, said in (
        (asked("delay 21 ms"), "did you mean 'delay 20 ms'"),
        (asked("inertia"), "'inertia' begins 3 names: 'inertia within 30 %', 'inertia of"),
        (asked("every", "mass"), "'every' is unknown"),
        (asked("delay 20", evaluation_episodes=1), "=1 are too few for 2 conditions"),
        (
            compose(["env=gymnasium", "env.id=Pendulum-v1",
                     "training.evaluation_conditions=[every]"]).config,
            "this env has none",
        ),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(said)):
            evaluation_conditions(config)


@pytest.mark.slow
def test_a_run_under_conditions_tells_them_keeps_them_and_goes_on_with_them(
    command, train_only, here
):
    words = [
        *TINY, "training.evaluation_episodes=9", "training.evaluation_conditions=[delay 20,all of]",
    ]  # fmt: skip
    told = command("train", *words).out
    assert "evaluates under 3 conditions, 3 episodes each: as trained, delay 20 ms, all" in told
    assert re.search(r"changed: \w+ \d.*%, \w+ \d.*%\n", told)
    assert "of 3 validation starts, the worst condition: " in told
    run = only_run()
    last = read_metrics(run / "metrics.jsonl")[-1]
    assert last["eval/worst_success"] == min(
        value for name, value in last.items() if re.fullmatch(r"eval/(\w+/)?success", name)
    )
    assert "eval/delay_20_ms/success" in last
    told = command("train", "resume=latest", "training.evaluation_conditions=[delay 20]", exits=2)
    assert "scores of checkpoints under others do not compare" in told.err
    told = train_only("resume=latest", "training.total_steps=2400").out
    assert "evaluates under 3 conditions" in told
    assert "eval/delay_20_ms/success" in read_metrics(run / "metrics.jsonl")[-1]


def test_every_file_of_axes_is_of_a_kind_or_a_robot():
    names = {path.stem for path in (CONFIGS / "robustness").glob("*.yaml")}
    robots = {path.stem for path in (CONFIGS / "robot").glob("*.yaml")}
    assert names - robots == {"multirotor", "legs", "arm"}


@pytest.mark.slow
def test_axes_of_a_policy_that_ships_are_played_told_drawn_and_kept(command, here):
    words = ["zoo:crazyflie-hover", "robustness=true", "episodes=8", "task.episode_length=2.5"]
    lines = command("evaluate", *words).out.splitlines()
    axes = read_axes(compose(["robot=crazyflie"]).config.robot.spec)
    assert [line[:59].strip() for line in lines[1 : 1 + len(axes)]] == [a[:59] for a in axes]
    written = dict(line.split() for line in lines[1 + len(axes) :])
    assert Path(written["plot"]).stat().st_size > 10_000
    content = json.loads(Path(written["result"]).read_text())
    assert {one["name"]: one["changes"] for one in content["axes"]} == axes
    assert content["overrides"] == ["task.episode_length=2.5"]
    for one in content["axes"]:
        assert 0 <= one["interval"][0] <= one["success"] <= one["interval"][1] <= 1


def test_a_change_that_a_task_does_not_have_is_left_out_in_words(command, here, tmp_path):
    folder = tmp_path / "configs" / "robustness"
    folder.mkdir(parents=True)
    axes = "as trained: []\nodd: [task.wrong=1]\nlight: [task.randomization.mass=0.3]\n"
    (folder / "multirotor.yaml").write_text(axes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robot_rl.cli.robustness_axes.config_file", lambda group, name: found(name))

        def found(name):
            path = folder / f"{name}.yaml"
            return (path, None) if path.is_file() else None

        words = ["zoo:crazyflie-hover", "robustness=true", "episodes=4"]
        told = command("evaluate", *words, "task.episode_length=2.5").out
        assert "odd: not for this task" in told
        assert "\nlight " in told
        (folder / "multirotor.yaml").write_text("as trained: 3\n")
        told = command("evaluate", *words, exits=2).err
        assert "expected a name and a list of changes" in told


@pytest.mark.slow
def test_a_policy_between_plants_meets_each_of_them_and_is_not_asked_twice(
    command, here, monkeypatch
):
    def some_axes(robot: RobotSpec) -> dict[str, list[str]]:
        asked = ("as trained", "thrust", "plant measured", "inertia of")
        return {name: words for name, words in read_axes(robot).items() if name.startswith(asked)}

    monkeypatch.setattr("robot_rl.cli.robustness.read_axes", some_axes)
    words = ["zoo:crazyflie-hover-robust", "robustness=true", "episodes=4", "video=false"]
    told = command("evaluate", *words, "task.episode_length=2.1").out
    assert "thrust within 15 %: as trained, which draws that" in told
    content = json.loads(next(Path().rglob("robustness.json")).read_text())
    rows = [one["metrics"] for one in content["axes"]]
    assert len(rows) == 3
    assert rows[0] != rows[1] != rows[2] != rows[0]


@pytest.mark.slow
def test_an_agent_flies_in_the_place_of_a_policy_and_the_result_says_so(command, here):
    words = ["video=false", "episodes=8"]
    told = command("evaluate", "zoo:crazyflie-hover", "agent=geometric", *words, "out=one").out
    assert told.startswith("geometric\n")
    found = json.loads(Path("one/result.json").read_text())
    assert found["agent"] == "geometric"
    assert found["success"]["rate"] == 1.0  # of 200 such flights none was lost
    assert found["bundle_action_difference"] is None
    told = command("evaluate", "zoo:crazyflie-hover", "agent=best", *words, exits=2).err
    assert "agent 'best' is unknown; known: geometric, random, scripted, zero" in told
    told = command("evaluate", "zoo:go2-velocity", "agent=geometric", *words, exits=2).err
    assert "agent=geometric flies multirotors, got the robot 'go2'" in told
