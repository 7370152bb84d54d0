"""Evaluation under changes that training has not drawn, or drawn more narrowly."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from robot_rl.cli.evaluation import (
    EvaluateOptions,
    Trial,
    find_config,
    finite,
    results_folder,
    run_trial,
)
from robot_rl.cli.robustness_axes import read_axes
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.console import format_number, format_percent
from robot_rl.training.runs.provenance import git_state
from robot_rl.training.storage.durable import replace_json, storage_errors

_FIRST_METRICS = 2
"""Metrics in the table; all are in the file."""


@dataclass(frozen=True, kw_only=True)
class AxisResult:
    """Episodes under one change."""

    name: str
    changes: list[str]
    """Fields that were changed."""
    success: float
    interval: list[float]
    """Of the success, 95 %."""
    terminated: float
    """Share of the episodes that were lost before their time limit."""
    metrics: dict[str, float | None]
    """Means at the ends of the others, SI; None where there are none."""


def run_axes(
    options: EvaluateOptions, overrides: Sequence[str], say: Callable[[str], None]
) -> tuple[list[AxisResult], dict[str, str]]:
    """Play a policy under every change of its robot's axes.

    Args:
        options: As of `robot-rl evaluate`.
        overrides: Changes that hold under every axis.
        say: Is told a line per axis, as soon as it is done.

    Returns:
        Results, and where they lie.

    Raises:
        ConfigError: There is nothing to evaluate, or the envs have no robot.
    """
    results: list[AxisResult] = []
    first: Trial | None = None
    plain = find_config(options, overrides)[1]
    if plain.robot is None:
        raise ConfigError("robustness=true changes robots of our own; this environment has none")
    for name, changes in read_axes(plain.robot.spec).items():
        try:
            if changes and find_config(options, [*overrides, *changes])[1] == plain:
                say(f"{name}: as trained, which draws that")
                continue
            trial = run_trial(replace(options, video=False), [*overrides, *changes])
        except ConfigError as error:
            if first is None:
                raise
            say(f"{name}: not for this task ({error})")
            continue
        with contextlib.closing(trial.env):
            results.append(_result(name, changes, trial))
        if first is None:
            first = trial
            say(_header(results[0]))
        say(_row(results[-1]))
    assert first is not None
    return results, _save(first, options, overrides, results)


def _result(name: str, changes: list[str], trial: Trial) -> AxisResult:
    result = trial.result
    return AxisResult(
        name=name, changes=changes, success=result.success_rate,
        interval=list(result.success_interval),
        terminated=float(result.lost.float().mean()),
        metrics={name: values["mean"] for name, values in finite(trial.statistics).items()},
    )  # fmt: skip


def _header(one: AxisResult) -> str:
    metrics = "".join(f"{name[:20]:>21}" for name in list(one.metrics)[:_FIRST_METRICS])
    return f"{'':<60}{'success':>9}{'95 %':>18}{'lost':>8}{metrics}"


def _row(one: AxisResult) -> str:
    low, high = (format_percent(bound) for bound in one.interval)
    values = list(one.metrics.values())[:_FIRST_METRICS]
    metrics = "".join(f"{format_number(value):>21}" for value in values)
    share, lost = format_percent(one.success), format_percent(one.terminated)
    return f"{one.name[:59]:<60}{share:>9}{f'{low} to {high}':>18}{lost:>8}{metrics}"


def _save(
    trial: Trial, options: EvaluateOptions, overrides: Sequence[str], results: list[AxisResult]
) -> dict[str, str]:
    folder = Path(options.out) if options.out else results_folder(trial, options, "robustness")
    content: Mapping[str, Any] = {
        "policy": trial.flown,
        "options": asdict(options),
        "overrides": list(overrides),
        "axes": [asdict(one) for one in results],
        "git": git_state(Path(__file__).parent),
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    with storage_errors("write the evaluation", folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_json(folder / "robustness.json", content)
    found = {"result": str(folder / "robustness.json")}
    try:
        from robot_rl.training.reporting.curves import plot_shares  # matplotlib: not for all
    except ModuleNotFoundError as error:
        return {**found, "plot": f"none: {error}"}
    shares = {one.name: (one.success, one.interval[0], one.interval[1]) for one in results}
    plot_shares(shares, folder / "robustness.png", title=trial.caption, label="success")
    return {**found, "plot": str(folder / "robustness.png")}
