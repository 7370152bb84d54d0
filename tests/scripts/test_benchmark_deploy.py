"""`python -m scripts.bench deploy`: verdicts by hand, and everything over real ROS 2 in short."""

import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from hardware.ros.compat import inspect_environment

needs_ros = pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed")
PATIENT = "40"
"""A test machine does not promise that a policy is on time."""


@pytest.fixture
def part(monkeypatch):
    return lambda name: importlib.import_module(f"scripts.bench.deployment.{name}")


def left_behind(domain: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f".{domain}." in name]


def test_figure_is_told_beside_its_bar(part):
    figure = part("figures").Figure
    assert figure(what="stop", value=99.9, unit="ms", most=100).line.endswith("bar 100: reached")
    assert figure(what="stop", value=100.1, unit="ms", most=100).line.endswith("bar 100: missed")
    only_told = figure(what="late", value=3.0, unit="us")
    assert "bar" not in only_told.line
    assert only_told.record()["reached"] is None


def test_nan_reaches_no_bar(part):
    assert part("figures").Figure(what="stop", value=float("nan"), most=100).reached is False


def paired(part, simulated, deployed):
    episode = part("episodes").Episode

    def of(returns):
        return [
            episode(total_return=one, steps=10, terminated=False, success=True, seconds=1.0)
            for one in returns
        ]

    return part("returns").PairedReturns(
        what="by hand", control_dt=0.1, steps=10, simulated=of(simulated), deployed=of(deployed)
    )


def test_difference_is_relative_to_the_mean_simulated_return(part):
    returns = paired(part, simulated=[-90.0, -110.0], deployed=[-93.0, -111.0])
    np.testing.assert_allclose(returns.differences, [-3.0, -1.0])  # of 100
    figure = returns.figures()[0]
    assert figure.value == pytest.approx(2.0)
    assert figure.reached
    assert "deployed -2.00 %" in figure.note
    assert not paired(part, [100.0, 100.0], [106.0, 105.0]).figures()[0].reached, "better, too"


def test_journal_leaves_out_a_line_that_is_half_written(part, tmp_path):
    path = tmp_path / "journal"
    journal = part("journal").Journal(path)
    assert journal.read() == []
    journal.write(time=1.5, after="hold")
    with path.open("a") as file:
        file.write('{"time": 2.')
    assert journal.read() == [{"time": 1.5, "after": "hold"}]
    assert journal.find(lambda entry: entry["time"] > 2, seconds=0) is None


@pytest.mark.slow
def test_bundle_with_exact_sensors_is_the_same_policy(part, go2_bundle, tmp_path):
    plan, bundle = importlib.import_module("robot_rl.cli.deployment.plan"), tmp_path / "exact"
    part("returns").write_exact_bundle(go2_bundle, bundle)
    before, after = (
        plan.Deployment(plan.DeployOptions(bundle=str(path))) for path in (go2_bundle, bundle)
    )
    assert any(sensor.noise for sensor in before.robot.sensors.values())
    assert not any(sensor.noise for sensor in after.robot.sensors.values())
    assert after.runner.spec.to_dict() == before.runner.spec.to_dict()
    same = [(path / "policy.onnx").read_bytes() for path in (go2_bundle, bundle)]
    assert same[0] == same[1]


@needs_ros
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_time_and_stop_is_measured(command, here, domain):
    answer = command(
        "scripts.bench.__main__", "deploy", "--quick", "--patience", PATIENT,
        "--domain", str(domain), "--json", "out.json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "paired returns need a trained policy: --bundle runs/<run>/bundle" in answer.out
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
@pytest.mark.timeout(300)
def test_policy_that_ignores_what_it_sees_gets_the_same_return_deployed(
    command, here, go2_bundle, domain
):
    """Nothing but start, goal, reward and length could make a difference."""
    answer = command(
        "scripts.bench.__main__", "deploy", "--returns-only", "--bundle", str(go2_bundle),
        "--episodes", "3", "--seconds", "0.6", "--patience", PATIENT, "--domain", str(domain),
        "--json", "out.json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["deploy", "--bundle", "nowhere"], "nowhere/provenance.json does not say"),
        (["deploy", "--returns-only"], "but whose? --bundle runs/<run>/bundle"),
        (["deploy", "--bundle", "x", "--episodes", "1"], "--episodes must be at least 2"),
        (["deploy", "--bundle", "x", "--seconds", "-1"], "--seconds at least 0"),
        (["deploy", "--bundle", "x", "--seconds", "inf"], "finite, got 50 and inf"),
        (["deploy", "--domain", "233"], "domain must lie in 0 to 232"),
        (["deploy", "--patience", "0.5"], "patience must be >= 1, got 0.5"),
        (["env", "--bundle", "x"], "--bundle is for the part deploy, got the part env"),
    ],
)
def test_what_measures_nothing_is_refused_in_a_sentence(refused, here, arguments, told):
    assert told in refused("scripts.bench.__main__", *arguments)
