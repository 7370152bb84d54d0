"""`python -m scripts.bench`: ratios worked out by hand, and that everything runs at tiny sizes."""

import importlib
import json
from itertools import count
from pathlib import Path

import pytest


@pytest.fixture
def timing(monkeypatch):
    return importlib.import_module("scripts.bench.timing")


def interleaved(timing, order):
    """Contenders a: 1, 2, 3 and b: 4, 4, 9 after a warm-up of 100 each; notes who was measured."""
    values = {"a": iter([100.0, 1.0, 2.0, 3.0]), "b": iter([100.0, 4.0, 4.0, 9.0])}

    def contender(name):
        def measure():
            order.append(name)
            return next(values[name])

        return measure

    contenders = {name: contender(name) for name in values}
    notes = {"b": lambda median: f"median {median:g}"}
    return timing.interleave("both", "ms", contenders, rounds=3, notes=notes)


def test_contenders_take_turns_after_a_turn_that_does_not_count(timing):
    order = []
    section = interleaved(timing, order)
    assert order == ["a", "b"] * 4
    assert (section.median("a"), section.median("b")) == (2, 4)
    assert section.rows[1].samples == [4, 4, 9]
    assert [row.ratio for row in section.rows] == [1, 3]  # the median of 4/1, 4/2 and 9/3
    assert section.record()["rows"][1]["median"] == 4


def test_bar_compares_the_rounds_of_two_contenders(timing):
    simulation = importlib.import_module("scripts.bench.simulation")
    section = interleaved(timing, [])  # b / a: 4, 2, 3
    bar = simulation.Bar(ours="b", other="a", least=3)
    assert bar.verdict(section) == "b / a: 3.00, bar 3: reached"
    assert simulation.Bar(ours="a", other="b", least=0.5).verdict(section).endswith("missed")


def test_table_is_aligned_and_ends_with_notes(timing):
    title, head, a, b = interleaved(timing, []).lines()
    assert title == "both"
    assert head.split() == ["ms", "lowest", "highest", "ratio"]
    assert a.split() == ["a", "2", "1", "3", "1.00"]
    assert b.split() == ["b", "4", "4", "9", "3.00", "median", "4"]
    assert len(head) == len(a) == b.index("  median")


@pytest.mark.parametrize(("load", "busy"), [(0.1, False), (1.5, True)])
def test_busy_machine_is_warned_of(timing, load, busy):
    machine = {
        "processor": "a processor", "processors": 2, "threads": 1, "python": "3.11",
        "packages": {"torch": "2.13.0"}, "load_average": load,
    }  # fmt: skip
    lines = timing.machine_lines(machine)
    assert lines[0].startswith("a processor, 2 processors, 1 thread; python 3.11, torch 2.13.0;")
    assert any("busy" in line for line in lines) == busy


def test_speed_of_a_machine_that_takes_one_second_a_step(timing, monkeypatch):
    learning = importlib.import_module("scripts.bench.learning")
    clock = count()
    monkeypatch.setattr(learning.time, "perf_counter", lambda: next(clock))
    assert learning.milliseconds(lambda: next(clock), 3)() == pytest.approx(4000 / 3)


@pytest.fixture
def updates(timing):
    return importlib.import_module("scripts.bench.updates")


def test_work_of_an_update_is_counted_by_hand(updates):
    # Width 2, observation 17, action 6; products of one row. A critic: 23*2 + 2*2 + 2 = 52 forward,
    # three times; 52 for the weights; twice 4 + 2 for the layers; 12 for the action: 232.
    # The actor: 17*2 + 2*2 + 2*12 = 62, twice forward, once for the weights; 4 + 24 for the layers.
    work = updates.flops_per_update(updates.Size(batch=1, width=2))
    assert work == 2 * (2 * 232 + 3 * 62 + 28)


def test_a_python_without_peers_is_told_as_such(updates, tmp_path):
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    size = updates.Size(batch=8, width=16, updates=1)
    section, lines = updates.measure_updates(size, rounds=1, python=str(bare))
    assert [row.name for row in section.rows] == ["ours, fp32", "ours, bf16"]
    assert all("floor" in row.note for row in section.rows)
    assert [line.split()[0] for line in lines[1:]] == ["SBX", "Stable-Baselines3"]
    assert all("is absent" in line for line in lines[1:])


@pytest.mark.slow
@pytest.mark.full
def test_everything_is_measured_at_tiny_sizes(command, here):
    options = ("--quick", "--rounds", "1", "--num-envs", "16", "--json", "new/out.json")
    answer = command("scripts.bench.__main__", *options)
    assert answer.code == 0, answer.err
    assert "l2f" in answer.out  # its figures, or that it is absent
    assert "hover, 16 worlds, one thread" in answer.out
    assert "learning, " in answer.out
    assert "SAC, observation 17, action 6, networks 16-16, batch 256, one thread" in answer.out
    assert "ours, bf16" in answer.out
    assert "SBX" in answer.out  # its figures, or that it is absent
    assert "Stable-Baselines3" in answer.out
    assert "bf16 units of this processor: " in answer.out
    assert "replay sample, 20,000 rows of 180 bytes, batch 8,192" in answer.out
    assert "stable-baselines3" in answer.out  # its figures, or that it is absent
    assert "reach with the Panda, 8 worlds, 2 threads" in answer.out
    assert "ours / AsyncVectorEnv: " in answer.out
    assert "tasks under random actions, 4 worlds, 1 thread" in answer.out
    record = json.loads(Path("new/out.json").read_text())
    assert record["physics"]["physics"] > 0
    rows = record["env"][0]["rows"]
    assert rows[0]["ratio"] == 1
    names = [row["name"] for row in record["sim"][1]["rows"]]
    assert [row["name"] for row in record["tasks"][0]["rows"]] == [
        "panda",
        "ur5e",
        "go2",
        "go1",
        "g1",
    ]
    assert {row["name"] for row in record["tasks"][1]["rows"]} >= {"hover", "reach", "velocity"}
    assert names[:3] == ["ours", "SyncVectorEnv", "AsyncVectorEnv"]
    assert all(row["median"] > 0 for row in rows)
    assert record["machine"]["threads"] == 1


def test_sizes_that_measure_nothing_are_refused(refused):
    assert "--rounds, --threads and --num-envs" in refused(
        "scripts.bench.__main__", "env", "--rounds", "0"
    )


@pytest.mark.slow
def test_captured_steps_are_measured_beside_those_that_are_not(command, here):
    answer = command(
        "scripts.bench.__main__", "warp", "--quick", "--rounds", "1", "--json", "out.json"
    )
    assert answer.code == 0, answer.err
    (section,) = json.loads(Path("out.json").read_text())["warp"]
    assert [row["name"] for row in section["rows"]] == [
        "Warp, captured", "Warp, kernel by kernel", "MuJoCo in C", "Warp, the whole task"
    ]  # fmt: skip
    assert all(row["median"] > 0 for row in section["rows"])


@pytest.mark.slow
def test_tasks_are_played_long_once_and_what_is_no_number_is_named(command, here):
    asked = (
        "scripts.bench.__main__",
        "soak",
        "--quick",
        "--tasks",
        "hover",
        "--found",
        "found.json",
    )
    for _ in range(2):
        answer = command(*asked)
        assert answer.code == 0, answer.err
        lines = [line for line in answer.out.splitlines() if line.startswith("task=")]
        assert [line.partition(":")[0] for line in lines] == ["task=hover", "task=hover robot=x500"]
        assert all(line.endswith(" 0 not finite") for line in lines)
    found = json.loads(Path("found.json").read_text())
    assert found["task=hover"]["world_steps"] == 1024
    refused = command("scripts.bench.__main__", "soak", "--tasks", "hoover")
    assert refused.code == 2
    assert "did you mean 'hover'" in refused.err


def test_a_reward_that_is_no_number_is_found_in_a_long_play(timing, monkeypatch):
    soak = importlib.import_module("scripts.bench.soak")
    made = soak.task_env(["task=hover"], 256)
    step = made.step

    def broken(action):
        taken = step(action)
        taken.reward[7] = float("nan")
        return taken

    monkeypatch.setattr(made, "step", broken)
    monkeypatch.setattr(soak, "task_env", lambda *_: made)
    found = soak.soak(["task=hover"], 512)
    assert found["not_finite"] >= 2
    assert found["first"] == "step 0, reward"
