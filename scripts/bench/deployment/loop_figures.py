"""The loop's lateness, what a tick and the policy cost, and how old what is answered is."""

import multiprocessing
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.cli.deployment.operator import DeploymentError
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from scripts.bench.deployment.figures import Figure, counted, p99
from scripts.bench.deployment.journal import Journal
from scripts.bench.deployment.monitors import TimedPolicy, TimedRobot
from scripts.bench.deployment.rehearsal import Rehearsal, options_for
from scripts.bench.timing import Measurement, Section

LATENESS_US, LATENESS_RATIO, WORK_MS, ANSWER_TICKS = 150.0, 1.5, 2.0, 3.0
"""Bars of a deployment."""
_START_SECONDS = 120.0
_BARE, _LOOP = "bare clock_nanosleep loop", "the robot's loop"


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Duration of the measurement."""

    count: int = 10
    """Pairs of windows, of a bare loop and of the robot's."""
    seconds: float = 2.0
    """Of one window."""

    @property
    def patience(self) -> float:
        """Factor with which the robot bears that nobody ticks for two windows and a second.

        A sample counts as late after 20 ms times this.
        """
        return (2 * self.seconds + 1) / 0.02

    @property
    def timeout(self) -> float:
        """After which nothing comes any more [s]."""
        return _START_SECONDS + 4 * self.count * self.seconds


def measure_loop(
    folder: Path, bundle: Path, windows: Windows, *, domain: int
) -> tuple[list[Section], list[Figure]]:
    """Run the robot process alone, then the whole deployment.

    Args:
        folder: For files that are needed meanwhile.
        bundle: A policy.
        windows: How long.
        domain: ROS_DOMAIN_ID.
    """
    options = options_for(bundle, domain=domain, patience=windows.patience)
    alone = _alone(options, folder / "alone", windows)
    together, policy = _together(options, folder, windows)
    period = Deployment(options).period
    sections: list[Section] = []
    figures: list[Figure] = []
    for name, told in (("alone", alone), ("with bridge and policy", together)):
        tables = _lateness(f"loop at {1 / period:g} Hz, robot process {name}", told)
        sections += tables
        figures += _lateness_figures(name, tables)
    return sections, [*figures, *_work_figures(together["samples"], policy, period)]


def _alone(options: DeployOptions, path: Path, windows: Windows) -> dict[str, Any]:
    target = TimedRobot(journal=path, windows=windows.count, seconds=windows.seconds, alone=True)
    process = multiprocessing.get_context("spawn").Process(
        target=target, args=(Deployment(options).parts(),), daemon=True
    )
    process.start()

    def check() -> None:
        if process.exitcode is not None and not Journal(path).read():
            raise DeploymentError(f"the robot process ended with exit code {process.exitcode}")

    try:
        return Journal(path).first("the loop's windows", windows.timeout, check)
    finally:
        process.terminate()
        process.join()


def _together(
    options: DeployOptions, folder: Path, windows: Windows
) -> tuple[dict[str, Any], dict[str, Any]]:
    robot, policy = folder / "robot", folder / "policy"
    targets = {
        "robot": TimedRobot(journal=robot, windows=windows.count, seconds=windows.seconds),
        "policy": TimedPolicy(journal=policy),
    }
    with Rehearsal(options, targets) as rehearsal:
        rehearsal.bring_to_policy()

        def check() -> None:
            if not Journal(robot).read():
                rehearsal.check()

        told = Journal(robot).first("the loop's windows", windows.timeout, check)
    if told["ended"] != "policy":
        raise DeploymentError(
            f"the policy lost the robot while it was measured: it is in '{told['ended']}'"
        )
    ticks = Journal(policy).read()
    if not ticks or not ticks[0]["ticks"] or not told["samples"]["answer"]:
        raise DeploymentError("the policy commanded nothing while the loop was measured")
    return told, ticks[0]


def _lateness(title: str, told: dict[str, Any]) -> list[Section]:
    """Medians and 99th percentiles of the windows; ratios are of neighbours."""
    sections: list[Section] = []
    for column, name in enumerate(("p50", "p99")):
        samples = {
            who: [1e6 * pair[column] for pair in told[key]]
            for who, key in ((_BARE, "bare"), (_LOOP, "loop"))
        }
        rows = [
            Measurement(
                name=who, samples=values,
                ratio=statistics.median(
                    a / b for a, b in zip(values, samples[_BARE], strict=True)
                ),
            )
            for who, values in samples.items()
        ]  # fmt: skip
        sections.append(Section(title=f"{title}: lateness, {name}", unit="us", rows=rows))
    return sections


def _lateness_figures(name: str, tables: list[Section]) -> list[Figure]:
    p50, late = tables
    return [
        Figure(what=f"lateness p50, {name}", value=p50.median(_LOOP), unit="us",
               most=LATENESS_US),
        Figure(what=f"lateness p50 / bare, {name}", value=p50.rows[1].ratio,
               most=LATENESS_RATIO),
        Figure(what=f"lateness p99, {name}", value=late.median(_LOOP), unit="us"),
    ]  # fmt: skip


def _work_figures(
    samples: dict[str, list[float]], policy: dict[str, Any], period: float
) -> list[Figure]:
    """Of all windows together."""

    def of(what: str, values: list[float], most: float | None = WORK_MS, note: str = "") -> Figure:
        scaled = 1e3 * np.asarray(values)
        return Figure(
            what=what, value=p99(scaled), unit="ms", most=most, note=f"{note}{counted(scaled)}"
        )

    answers = np.asarray(samples["answer"]) / period
    return [
        of("loop: tick, p99", samples["tick"]),
        *(of(f"loop: {stage}, p99", samples[stage], None,
             "the twin's physics included; " if stage == "write" else "")
          for stage in ("read", "decide", "control", "write")),
        of("policy: observe, infer, act, p99", policy["acts"]),
        of("policy: tick with its messages, p99", policy["ticks"]),
        Figure(what="sensor stamp -> command applied, p99", value=p99(answers), unit="ticks",
               most=ANSWER_TICKS, note=f"{counted(answers)}"),
    ]  # fmt: skip
