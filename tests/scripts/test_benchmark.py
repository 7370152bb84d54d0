"""`python -m scripts.bench`: ratios worked out by hand, and that everything runs at tiny sizes."""

import importlib
import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from robot_rl.core.errors import ConfigError
from scripts.bench import timing

BENCH = "scripts.bench.__main__"


def interleaved(order):
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


def test_contenders_take_turns_after_a_turn_that_does_not_count():
    order = []
    section = interleaved(order)
    assert order == ["a", "b"] * 4
    assert (section.median("a"), section.median("b")) == (2, 4)
    assert section.rows[1].samples == [4, 4, 9]
    assert [row.ratio for row in section.rows] == [1, 3]  # the median of 4/1, 4/2 and 9/3
    assert section.record()["rows"][1]["median"] == 4
    assert section.lines()[3].split() == ["b", "4", "4", "9", "3.00", "median", "4"]
    bar = importlib.import_module("scripts.bench.simulation").Bar
    assert bar(ours="b", other="a", least=3).verdict(section) == "b / a: 3.00, bar 3: reached"
    assert bar(ours="a", other="b", least=0.5).verdict(section).endswith("missed")
    assert bar(ours="b", other="a", least=None).verdict(section) == "b / a: 3.00"


def test_speed_of_a_machine_that_takes_one_second_a_step(monkeypatch):
    learning = importlib.import_module("scripts.bench.learning")
    clock = count()
    monkeypatch.setattr(learning.time, "perf_counter", lambda: next(clock))
    assert learning.milliseconds(lambda: next(clock), 3)() == pytest.approx(4000 / 3)


def test_work_of_an_update_is_counted_by_hand():
    # Width 2, observation 17, action 6; products of one row. A critic: 23*2 + 2*2 + 2 = 52 forward,
    # three times; 52 for the weights; twice 4 + 2 for the layers; 12 for the action: 232.
    # The actor: 17*2 + 2*2 + 2*12 = 62, twice forward, once for the weights; 4 + 24 for the layers.
    updates = importlib.import_module("scripts.bench.updates")
    size = updates.Size(batch=1, width=2)
    assert updates.flops_per_update(updates.own_config(size), size) == 2 * (2 * 232 + 3 * 62 + 28)
    # RLPD: targets of two, batch and gradients of ten (52 + 52 + 6), and in one of 20 updates the
    # actor's step, for which all ten are evaluated (52 + 6 + 12).
    cases = importlib.import_module("scripts.bench.update_cases")
    case = replace(cases.CASES[0], size=size)
    work = updates.flops_per_update(cases.case_config(case).learner, size)
    critic_step, actor_step = 62 + 2 * 52 + 10 * 110, 2 * 62 + 28 + 10 * 70
    assert work == pytest.approx(2 * (critic_step + actor_step / 20))


@pytest.mark.slow
@pytest.mark.full
def test_everything_is_measured_at_tiny_sizes(command, here):
    answer = command(BENCH, "quick=true", "rounds=1", "num_envs=[16]", "json=new/out.json")
    for said in (
        "l2f", "hover, 16 worlds, one thread", "learning, ", "ours, compiled", "SBX",
        "SAC, observation 17, action 6, networks 16-16, batch 256, one thread",
        "Stable-Baselines3", "replay sample, 20,000 rows of 180 bytes, batch 8,192",
        "replay sample, 20,000 rows, observation 82, batch 1,024", "5 steps, PyTorch operations",
        "velocity with robot=go2, 8 worlds, 2 threads", "ours / AsyncVectorEnv: ",
        "tasks under random actions, 4 worlds, 1 thread",
        "rlpd, observation 17, action 6, actor 16-16, 10 critics 16-16, one step of the actor in ",
        "td3, observation 17", "fast_sac, observation 48", "ours, compiled / ours, PyTorch: ",
    ):  # fmt: skip
        assert said in answer.out  # figures of a peer, or that it is absent
    record = json.loads(Path("new/out.json").read_text())
    assert record["physics"]["physics"] > 0
    assert record["machine"]["threads"] == 1
    rows = record["env"][0]["rows"]
    assert rows[0]["ratio"] == 1
    assert all(row["median"] > 0 for row in rows)
    robots, tasks, sim = (
        [row["name"] for row in section["rows"]] for section in (*record["tasks"], record["sim"][2])
    )
    assert robots == ["panda", "ur5e", "ur5e_2f85", "allegro", "go2", "go1", "g1"]
    assert {*tasks} >= {"hover", "reach", "velocity"}
    assert sim[:3] == ["ours", "SyncVectorEnv", "AsyncVectorEnv"]


@pytest.mark.slow
def test_named_learners_are_measured_alone_and_compiled(command, here):
    asked = ("cases=[rlpd,td3,fast_sac]", "quick=true", "rounds=1", "json=out.json")
    answer = command(BENCH, "learner", *asked)
    assert "collecting" not in answer.out
    measured = json.loads(Path("out.json").read_text())["learner"]["updates"]
    assert [one["title"].partition(",")[0] for one in measured] == ["rlpd", "td3", "fast_sac"]
    for one in measured:
        notes = {row["name"]: row["note"] for row in one["rows"]}
        assert notes["ours, compiled"].startswith("compiled (")
        assert "learner.compile=false" in notes["ours, PyTorch"]


@pytest.mark.slow
def test_captured_steps_are_measured_beside_those_that_are_not(command, here):
    command(BENCH, "warp", "quick=true", "rounds=1", "json=out.json")
    (section,) = json.loads(Path("out.json").read_text())["warp"]
    assert [row["name"] for row in section["rows"]] == [
        "Warp, captured", "Warp, kernel by kernel", "MuJoCo in C", "Warp, the whole task"
    ]  # fmt: skip
    assert all(row["median"] > 0 for row in section["rows"])


@pytest.mark.slow
def test_costs_of_one_are_told_at_every_size(command, here):
    answer = command(BENCH, "growth", "quick=true", "json=out.json")
    costs = {
        one["name"]: one["costs"] for one in json.loads(Path("out.json").read_text())["growth"]
    }
    held = costs["memory of a replay, bytes a row"]
    assert held["2000"] == held["20000"] == 4 * 45 + 16 / 100  # numbers of a row, stamps of a step
    for name in (
        "filling it, us a row",
        "a step of hover, us an env",
        "a learning curve, ms a line",
    ):
        assert all(cost > 0 for cost in costs[name].values())
    sizes = [one for name, one in costs.items() if "the process" in name or "hover, KiB" in name]
    unseen = sum(next(iter(one.values())) <= 0 for one in sizes)
    assert answer.out.count("largest / smallest") + unseen == len(costs)


@pytest.mark.slow
def test_a_reward_that_is_no_number_is_found_in_a_long_play(command, here, monkeypatch):
    asked = (BENCH, "soak", "quick=true", "tasks=[hover]", "found=found.json")
    for _ in range(2):  # what was found before is not played again
        answer = command(*asked)
        lines = [line for line in answer.out.splitlines() if line.startswith("task=")]
        assert [line.partition(":")[0] for line in lines] == ["task=hover", "task=hover robot=x500"]
        assert all(line.endswith(" 0 not finite") for line in lines)
    assert json.loads(Path("found.json").read_text())["task=hover"]["world_steps"] == 1024
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["enf"], "did you mean 'env'"),
        (["env", "--rounds", "2"], "write rounds=2"),
        (["env", "rounds=0"], "rounds must be > 0, got 0"),
        (["soak", "world_steps=0"], "world_steps must be > 0, got 0"),
        (["env", "num_envs=[4,0]"], "num_envs must be counts of 1 or more"),
        (["env", "bundle=[x]"], "bundle= is for the parts deploy and endure, got the part env"),
        (["env", "cases=[td3]"], "cases= is for the part learner, got the part env"),
        (["learner", "cases=[td4]"], "sac, rlpd, td3, fast_sac"),
        (["soak", "tasks=[hoover]"], "did you mean 'hover'"),
        (["deploy", "bundle=[nowhere]"], "bundle 'nowhere' is not a folder"),
        (["deploy", "returns_only=true"], "but whose? bundle=[runs/<run>/bundle]"),
        (["deploy", "bundle=[x]", "seconds=inf"], "finite, got 50 and inf"),
        (["deploy", "domain=233"], "domain must lie in 0 to 232"),
    ],
)
def test_what_measures_nothing_is_refused_in_a_sentence(refused, here, arguments, told):
    assert told in refused(BENCH, *arguments)


@pytest.mark.slow
@pytest.mark.full
def test_no_operation_holds_the_data_set_that_it_goes_through(tmp_path):
    streaming = importlib.import_module("scripts.bench.datasets.streaming")
    formats = ("robomimic", "npz")
    nothing, *done = streaming.measure_streaming(
        0.12, tmp_path, print, file_megabytes=4, formats=formats
    )
    assert [one["name"] for one in done] == [
        "write half of it", "merge", "info", "iterate",
        *(f"convert {way} {kind}" for kind in formats for way in ("to", "from")),
        "info of what came back",
    ]  # fmt: skip
    for one in done:  # 120 MB pass through, in files of 4 MB
        assert one["peak"] - nothing["peak"] < 100 << 20, one
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"1e\+07 GB and what is made of it need 2.* take giga"):
        streaming.measure_streaming(1e7, tmp_path, print)


@pytest.mark.slow
def test_damaged_files_are_refused_repaired_or_not_needed(tmp_path, monkeypatch):
    corruptions, size = importlib.import_module("scripts.bench.datasets.corruptions"), 100
    tally = corruptions.damage_many(size, tmp_path)
    assert tally.faults == []
    what = {outcome: sum(n for (_, one), n in tally.outcomes.items() if one == outcome)
            for outcome in ("refused", "not needed", "unnoticeable", "repaired")}  # fmt: skip
    assert what["refused"] + what["not needed"] + what["unnoticeable"] == size
    assert what["refused"] > 0.7 * size
    assert what["repaired"] == 0.04 * size
    assert what["unnoticeable"] < 0.03 * size, "bits in files of others that hold no checksums"
    # A reader that compares nothing must be blamed.
    checks = importlib.import_module("robot_rl.datasets.reader")
    monkeypatch.setattr(checks, "check_file", lambda *_: None)
    tally = corruptions.damage_many(40, tmp_path / "believed")
    assert any("as if nothing had happened" in one for one in tally.faults)


@pytest.mark.slow
def test_an_arm_that_is_led_at_full_stick_stays_within_its_limits(command, here):
    answer = command(BENCH, "led", "quick=true", "seed=5", "json=out.json")
    assert "largest speed" in answer.out
    led = json.loads(Path("out.json").read_text())["led"]
    assert 0.3 < led["speed"]["of_limit"] < 1.0
    assert led["beyond"]["rad"] < 0.0
