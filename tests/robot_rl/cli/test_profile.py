"""`robot-rl train profile=true`: the table adds up, the trace opens, and the run is the same."""

import json
import re

import pytest
import torch

from robot_rl.training.reporting.metrics import read_metrics
from tests.robot_rl.cli.demonstrations import write_demonstrations
from tests.robot_rl.cli.tiny_run import TINY, assert_equal_ends, interrupt, only_run

pytestmark = pytest.mark.slow

ROW = re.compile(r"^ {2}( {0,2}\w[\w ]*?(?: \*)?) +(\d+\.\d)%(?: +([\d,]+) +(\d+\.\d+))?$", re.M)
OF_COLLECT = {"  act", "  env step", "  store"}


def table_of(said: str) -> dict[str, tuple[float, int, float]]:
    """By part: share of the wall time [%], calls, ms per call."""
    rows = ROW.findall(said)
    return {name: (float(share), int(n or 0), float(ms or 0)) for name, share, n, ms in rows}


def ranges_of(run) -> set[str]:
    events = json.loads((run / "profile" / "trace.json").read_bytes())["traceEvents"]
    return {event["name"] for event in events if event.get("cat") == "user_annotation"}


def test_parts_add_up_to_the_wall_time(train_only, here):
    answer = train_only(*TINY, "profile=true", "training.overlap=false")
    table, run = table_of(answer.out), only_run()
    assert table.keys() == OF_COLLECT | {
        "collect", "sample", "update", "finite checks", "evaluate", "checkpoints", "host syncs",
        "other",
    }  # fmt: skip
    rounding = 0.06 * len(table)
    whole = sum(share for name, (share, *_) in table.items() if name not in OF_COLLECT)
    assert whole == pytest.approx(100, abs=rounding)
    assert sum(table[part][0] for part in OF_COLLECT) == pytest.approx(
        table["collect"][0], abs=rounding
    )
    assert table["other"][0] < 50, "what is named is most of the time"
    told = re.search(r"profile of (\d+\.\d) s of training, without (\d+\.\d) s", answer.out)
    assert told is not None
    trained = read_metrics(run / "metrics.jsonl")[-1]["seconds"]  # before the last checkpoint
    assert sum(map(float, told.groups())) == pytest.approx(trained, rel=0.5)

    traced = re.search(r"trace of (\d+) iterations: (\S+) \(", answer.out)
    assert traced is not None
    assert traced[2] == str(run / "profile" / "trace.json")
    # 1600 / 16 steps; an evaluation after 50 cuts it off, after the first 10 and 10 of warm-up.
    assert int(traced[1]) == 29
    assert ranges_of(run) >= {"collect", "act", "env step", "store", "sample", "update"}
    assert "evaluate" not in ranges_of(run)
    counts = re.search(r"ATen operators per call: (.*)", answer.out)
    assert counts is not None
    operators = dict(text.rsplit(" ", 1) for text in counts[1].split(", "))
    assert float(operators["env step"]) > 50
    assert 0 < float(operators["update"]) < 5000
    assert "profile of" in (run / "log.txt").read_text()
    assert "item" not in vars(torch.Tensor), "nothing stays wrapped"


def test_a_stopped_run_shows_its_profile_and_so_does_its_resume(
    train_only, finished_run, here, at_collect
):
    at_collect(700, interrupt)  # in the trace
    answer = train_only(*TINY, "profile=true", exits=130)
    assert table_of(answer.out)["update"][1] > 0
    assert re.search(r"trace of \d+ iterations", answer.out)
    assert "update" in ranges_of(only_run())
    answer = train_only(f"resume={only_run()}", "profile=true")
    assert table_of(answer.out)["  env step *"][1] > 0
    assert_equal_ends(only_run(), finished_run)


def test_envs_in_a_thread_are_beside_the_sum(train_only, finished_run, here):
    answer = train_only(*TINY, "profile=true")
    table = table_of(answer.out)
    beside = table.pop("  env step *")[0]
    assert {"  act", "  store", "  wait", "collect", "update"} < table.keys()
    whole = sum(share for name, (share, *_) in table.items() if not name.startswith(" "))
    assert whole == pytest.approx(100, abs=0.06 * len(table))
    total = re.search(r"\* in a thread beside the others: .* add up to (\d+)%", answer.out)
    assert total is not None
    assert float(total[1]) == pytest.approx(100 + beside, abs=1)
    assert ranges_of(only_run()) >= {"act", "env step", "store", "wait", "update"}
    assert_equal_ends(only_run(), finished_run)


def test_cloning_is_profiled_too(train_only, here):
    data = write_demonstrations(here / "set")
    answer = train_only(
        "learner=bc", "learner.actor.hidden=[16]", "task.episode_length=0.2",
        "task.success_window=0.1", "logging.tensorboard=false", "training.evaluation_episodes=4",
        "training.evaluation_interval=50", "training.total_steps=100", "learner.batch_size=16",
        f"training.demonstrations.data={data}", "profile=true",
    )  # fmt: skip
    table = table_of(answer.out)
    assert table["update"][1] == table["sample"][1] == 100 - 39, answer
    assert (table["collect"][1], table["evaluate"][1]) == (0, 2)
    assert ranges_of(only_run()) >= {"sample", "update"}
