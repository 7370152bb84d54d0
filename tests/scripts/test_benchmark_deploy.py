"""`python -m scripts.bench deploy`: verdicts by hand, and everything over real ROS 2 in short."""

import json
from pathlib import Path

import numpy as np
import pytest

from hardware.ros.compat import inspect_environment
from scripts.bench.deployment.episodes import Episode
from scripts.bench.deployment.figures import Figure
from scripts.bench.deployment.journal import Journal
from scripts.bench.deployment.returns import PairedReturns
from tests.robot_rl.cli.deployments import left_behind

needs_ros = pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed")
PATIENT = "patience=40"
"""A test machine does not promise that a policy is on time."""


def test_figure_is_told_beside_its_bar_and_nan_reaches_none():
    assert Figure(what="stop", value=99.9, unit="ms", most=100).line.endswith("bar 100: reached")
    assert Figure(what="stop", value=100.1, unit="ms", most=100).line.endswith("bar 100: missed")
    assert Figure(what="late", value=3.0, unit="us").record()["reached"] is None
    assert Figure(what="stop", value=float("nan"), most=100).reached is False


def paired(simulated, deployed):
    def of(returns):
        return [
            Episode(total_return=one, steps=10, terminated=False, success=True, seconds=1.0)
            for one in returns
        ]

    return PairedReturns(
        what="by hand", control_dt=0.1, steps=10, simulated=of(simulated), deployed=of(deployed)
    )


def test_difference_is_relative_to_the_mean_simulated_return():
    returns = paired(simulated=[-90.0, -110.0], deployed=[-93.0, -111.0])
    np.testing.assert_allclose(returns.differences, [-3.0, -1.0])  # of 100
    figure = returns.figures()[0]
    assert figure.value == pytest.approx(2.0)
    assert figure.reached
    assert "deployed -2.00 %" in figure.note
    assert not paired([100.0, 100.0], [106.0, 105.0]).figures()[0].reached, "better, too"


def test_journal_leaves_out_a_line_that_is_half_written(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    assert journal.read() == []
    journal.write(time=1.5, after="hold")
    with path.open("a") as file:
        file.write('{"time": 2.')
    assert journal.read() == [{"time": 1.5, "after": "hold"}]


@needs_ros
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_time_and_stop_is_measured(command, here, domain):
    answer = command(
        "scripts.bench.__main__", "deploy", "quick=true", PATIENT, f"domain={domain}",
        "json=out.json",
    )  # fmt: skip
    assert "paired returns need a trained policy: bundle=[runs/<run>/bundle]" in answer.out
    record = json.loads(Path("out.json").read_text())["deploy"]
    values = {figure["what"]: figure["value"] for figure in record["figures"]}
    assert len(record["sections"]) == 4
    assert 0 < values["loop: read, p99"] < values["loop: tick, p99"]
    inference, tick = (values[f"policy: {what}, p99"] for what in
                       ("observe, infer, act", "tick with its messages"))  # fmt: skip
    assert 0 < inference <= tick
    assert values["sensor stamp -> command applied, p99"] > 1, "the twin is read a tick later"
    assert values["e-stop service -> damping in the twin, p99"] > 0
    assert np.isfinite(values["policy killed -> safe, beyond the timeout, longest"])
    bars = [figure["most"] for figure in record["figures"] if figure["most"] is not None]
    assert bars == [150, 1.5, 150, 1.5, 2, 2, 2, 3, 100, 20]
    assert left_behind(domain) == []


@needs_ros
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(300)
def test_policy_that_ignores_what_it_sees_gets_the_same_return_deployed(
    command, here, go2_bundle, domain
):
    """Nothing but start, goal, reward and length could make a difference."""
    answer = command(
        "scripts.bench.__main__", "deploy", "returns_only=true", f"bundle=[{go2_bundle}]",
        "episodes=3", "seconds=0.6", PATIENT, f"domain={domain}", "json=out.json",
    )  # fmt: skip
    (returns,) = json.loads(Path("out.json").read_text())["deploy"]["returns"]
    pairs = list(zip(returns["simulated"], returns["deployed"], strict=True))
    assert len(pairs) == 3
    for simulated, deployed in pairs:
        assert deployed["steps"] == simulated["steps"] == 30
        assert deployed["total_return"] == pytest.approx(simulated["total_return"], rel=0.01)
        assert deployed["lost"] == ""
    assert len({one["total_return"] for one in returns["simulated"]}) == 3, "starts differ"
    assert "bar 5: reached" in answer.out
    assert left_behind(domain) == []
