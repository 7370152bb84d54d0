"""Evaluation of a trained policy: an episode in every env, its statistics, its files, its plot."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from configs.builders import pick_device
from configs.compose import changed_keys, from_plain, to_plain
from configs.schema import RunConfig, make_env
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.cli.command_line import missing_package
from robot_rl.cli.components import TrainedPolicy, load_policy, run_path
from robot_rl.core import quaternion
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from robot_rl.training.evaluation import Evaluation, evaluate
from robot_rl.training.reporting.console import format_number, format_percent
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.runs.provenance import config_hash, git_state, package_versions
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import replace_file, storage_errors
from robot_rl.training.trainer import VALIDATION_SEED
from sim.env import SimEnv


@dataclass(kw_only=True)
class EvaluateOptions:
    """Options of the command beside the fields of the run."""

    run: str = ""
    """Folder of the run, or `latest`."""
    runs: str = "runs"
    """Folder of all runs, in which `latest` is looked for."""
    checkpoint: str = "best"
    """best, latest, or the folder of a checkpoint."""
    bundle: str = ""
    """Folder of a bundle to fly instead of the checkpoint."""
    episodes: int = 1000
    """N: episodes, one per env."""
    seed: int = 2_000_003
    """Chooses starts, goals, physical parameters and noise."""
    device: str = "cpu"
    """Device of the envs and the policy."""
    threads: int = 1
    """CPU threads of torch."""
    video: bool = True
    """Plot flights and render a video."""
    out: str = ""
    """Folder of the result."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        for name, lowest in (("episodes", 1), ("threads", 1), ("seed", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if not self.run and not self.bundle:
            raise ConfigError("run is empty; say which: run=runs/..., run=latest or bundle=...")


STATISTICS = ("mean", "median", "p95", "max")
"""Quantiles that are reported of a distribution."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Episodes that were played, and their results."""

    run: RunFolder
    config: RunConfig
    env: BatchEnv
    policy: TrainedPolicy
    result: Evaluation
    tilt: Tensor | None
    """Lean at the start, (N,), [rad]; None for a fixed base and in foreign environments."""
    bundle: Path | None = None
    """The bundle that flew; None where torch did."""
    bundle_difference: float = 0.0
    """Largest difference between an action of the bundle and one of torch."""

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Distribution of every final metric over the episodes that lasted to their time limit."""
        complete = ~self.result.terminated
        return {name: _describe(v[complete]) for name, v in self.result.metrics.items()}


def _describe(values: Tensor) -> dict[str, float]:
    values = values[values.isfinite()].double()
    if values.numel() == 0:
        return dict.fromkeys(STATISTICS, float("nan"))
    numbers = (values.mean(), values.median(), values.quantile(0.95), values.max())
    return dict(zip(STATISTICS, map(float, numbers), strict=True))


def _run_of(bundle: Path) -> Path:
    """The run in whose folder a bundle lies.

    Raises:
        ConfigError: It was exported to another place.
    """
    if not (bundle.parent / "config.yaml").is_file():
        raise ConfigError(
            f"the bundle {bundle} does not lie in the folder of its run, whose envs it is played "
            "in; name the run too: run=runs/..."
        )
    return bundle.parent


def run_trial(options: EvaluateOptions, overrides: Sequence[str]) -> Trial:
    """Play one episode per world.

    Args:
        options: What to play.
        overrides: Fields of the run to change, such as the task's evaluation starts.
    """
    if options.seed == VALIDATION_SEED:
        raise ConfigError(
            f"seed={VALIDATION_SEED} gives the starts that the best checkpoint was chosen on; "
            "take another seed for a test"
        )
    for key in changed_keys(overrides):
        if not key.startswith(("env.", "task.", "robot.")):
            raise ConfigError(
                f"'{key}' changes nothing in an evaluation; what can be changed are its options "
                f"({', '.join(asdict(options))}) and fields of the task and the robot "
                "(task.<field>, robot.<field>), or of a foreign environment (env.<field>)"
            )
    torch.set_num_threads(options.threads)
    bundle = Path(options.bundle) if options.bundle else None
    if bundle is not None and not bundle.is_dir():
        raise ConfigError(f"bundle '{bundle}' is not a folder; give the one that export wrote")
    path = None if bundle is None or options.run else _run_of(bundle)
    run = RunFolder.open(path or run_path(options.run, options.runs))
    config = from_plain(run.config(), overrides)
    env = make_env(
        config,
        num_envs=options.episodes,
        device=pick_device(options.device),
        seed=options.seed,
        evaluation=True,
    )
    policy = load_policy(run, config, env.spec, options.checkpoint)
    env.reset(seed=options.seed)  # `evaluate` begins at the same starts
    tilt = None
    if isinstance(env, SimEnv) and "orientation_w" in env.simulation.true_state.fields:
        tilt = quaternion.tilt(env.simulation.true_state.orientation_w)
    if bundle is None:
        result = evaluate(env, policy.module, seed=options.seed)
        return Trial(run=run, config=config, env=env, policy=policy, result=result, tilt=tilt)
    if not isinstance(env, SimEnv):
        raise ConfigError(
            f"the bundle {bundle} flies robots; the run {run.path} has none to fly: evaluate it "
            "without bundle=..."
        )
    flyer = BundlePolicy.load(bundle, env, policy.module)
    result = evaluate(env, flyer, seed=options.seed, on_step=flyer.on_step)
    return Trial(
        run=run, config=config, env=env, policy=policy, result=result, tilt=tilt,
        bundle=bundle, bundle_difference=flyer.difference,
    )  # fmt: skip


def trial_lines(trial: Trial) -> list[str]:
    """Lines of a trial for the terminal."""
    result = trial.result
    low, high = result.success_interval
    ended = int(result.terminated.sum())
    flown = trial.bundle or trial.policy.checkpoint
    spread = format_number(float(result.returns.std(correction=0)))
    lines = [
        f"{flown}",
        f"success      {format_percent(result.success_rate)} of {result.success.numel()} episodes "
        f"(95 % interval {format_percent(low)} to {format_percent(high)})"
        if trial.env.spec.judges_success
        else f"success      not judged by this environment; {result.success.numel()} episodes",
        f"terminated   {ended}   return {format_number(float(result.returns.mean()))} "
        f"(deviation {spread})   episode {float(result.seconds.mean()):.2f} s",
    ]
    if trial.statistics:
        lines.append(f"{'at the end [SI]':<16}" + "".join(f"{word:>10}" for word in STATISTICS))
    for name, values in trial.statistics.items():
        cells = "".join(f"{format_number(values[word]):>10}" for word in STATISTICS)
        lines.append(f"  {name:<14}{cells}")
    if trial.bundle is not None:
        lines.append(f"actions of the bundle and of torch differ by {trial.bundle_difference:.1e}")
    return lines


def save_trial(trial: Trial, options: EvaluateOptions, overrides: Sequence[str]) -> dict[str, str]:
    """Write result, plot and, if asked, flights; returns where each lies.

    Raises:
        StorageError: The folder cannot be written.
    """
    folder = Path(options.out) if options.out else _new_folder(trial, options)
    with storage_errors("write the evaluation", folder):
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(_record(trial, options, overrides), indent=2)
        replace_file(folder / "result.json", content.encode())
    found = {"result": str(folder / "result.json")}
    try:
        plot_trial(trial, folder / "plot.png")
        found["plot"] = str(folder / "plot.png")
    except ModuleNotFoundError as error:
        found["plot"] = f"none: {missing_package(error, 'the plot') or error}"
    if options.video and not isinstance(trial.env, SimEnv):
        found["video"] = "none: foreign environments are not filmed"
    elif options.video and isinstance(trial.env, SimEnv):
        try:
            from robot_rl.cli.pictures import draw_policy  # matplotlib: not for all

            policy = trial.policy.module
            found |= draw_policy(folder, trial.config, trial.env, policy, seed=options.seed)
        except ModuleNotFoundError as error:
            found["video"] = f"none: {missing_package(error, 'the video') or error}"
    return found


def _record(trial: Trial, options: EvaluateOptions, overrides: Sequence[str]) -> dict[str, Any]:
    result, policy = trial.result, trial.policy
    low, high = result.success_interval
    config = to_plain(trial.config)
    return {
        "run": trial.run.path.name,
        "checkpoint": {"step": policy.step, "validation_score": policy.score},
        "bundle": None if trial.bundle is None else str(trial.bundle),
        "bundle_action_difference": trial.bundle_difference if trial.bundle else None,
        "options": asdict(options),
        "overrides": list(overrides),
        "judges_success": trial.env.spec.judges_success,
        "success": {"rate": result.success_rate, "low": low, "high": high, "confidence": 0.95},
        "episodes": result.success.numel(),
        "terminated": int(result.terminated.sum()),
        "mean_return": float(result.returns.mean()),
        "return_deviation": float(result.returns.std(correction=0)),
        "mean_episode_seconds": float(result.seconds.mean()),
        "metrics": _finite(trial.statistics),
        "config_sha256": config_hash(config),
        "git": git_state(Path(__file__).parent),
        "packages": package_versions(),
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _new_folder(trial: Trial, options: EvaluateOptions) -> Path:
    kind = "bundle" if trial.bundle else Path(options.checkpoint).name
    stem = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{kind}_{options.episodes}"
    root = trial.run.path / "evaluations"
    taken = sorted(root.glob(f"{stem}*"))
    return root / (f"{stem}_{len(taken) + 1}" if taken else stem)


def _finite(statistics: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """JSON has no NaN: null where there was nothing to measure."""
    return {
        name: {word: value if value == value else None for word, value in values.items()}
        for name, values in statistics.items()
    }


_INK, _BLUE, _ORANGE = "#333333", "#0072B2", "#D55E00"
_BINS = 8


def plot_trial(trial: Trial, path: Path) -> None:
    """Draw the distribution of every metric beside success by the lean at the start.

    Where nothing leans (a fixed base, a foreign environment) it is the distribution of the returns.

    Raises:
        StorageError: The file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # may be missing
    from matplotlib.figure import Figure

    metrics = trial.result.metrics
    count = 1 + len(metrics)
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows + 0.6), dpi=130, layout="constrained")
    rate, episodes = trial.result.success_rate, trial.result.success.numel()
    told = f"{format_percent(rate)} of {episodes} episodes succeed"
    figure.suptitle(
        f"{trial.run.path.name}: "
        + (told if trial.env.spec.judges_success else f"{episodes} episodes"),
        color=_INK,
        fontsize=12,
        fontweight="bold",
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    if trial.tilt is not None:
        _success_by_tilt(axes[0], np.degrees(trial.tilt.cpu().numpy()), trial)
    else:
        _distribution(axes[0], "return", trial.result.returns.cpu().numpy())
    complete = ~trial.result.terminated
    for axis, (name, values) in zip(axes[1:], metrics.items(), strict=False):
        _distribution(axis, name, values[complete].cpu().numpy())
    for axis in axes[count:]:
        axis.remove()
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with storage_errors("write the plot", path):
        replace_file(path, buffer.getvalue())


def _success_by_tilt(axis: Any, tilt: np.ndarray, trial: Trial) -> None:
    success = trial.result.success.cpu().numpy()
    edges = np.linspace(0, max(1.0, math.ceil(tilt.max())), _BINS + 1)
    place = np.clip(np.digitize(tilt, edges) - 1, 0, _BINS - 1)
    for i in np.unique(place):
        won, count = int(success[place == i].sum()), int((place == i).sum())
        low, high = wilson_interval(won, count)
        middle, width = (edges[i] + edges[i + 1]) / 2, edges[1] * 0.85
        axis.bar(middle, won / count, width=width, color=_BLUE, alpha=0.85)
        axis.plot([middle, middle], [low, high], color=_INK, lw=1)
        axis.plot(middle, won / count, "o", color=_INK, ms=3, clip_on=False)  # seen at 0 too
    axis.set_ylim(0, 1.02)
    _dress(axis, "lean at the start [deg]", "success, 95 % interval")


def _distribution(axis: Any, name: str, values: np.ndarray) -> None:
    """Share of episodes below each value: reads off any percentile."""
    values = np.sort(values[np.isfinite(values)])
    if values.size:
        axis.step(values, np.arange(1, values.size + 1) / values.size, where="post", color=_BLUE)
        p95 = float(np.quantile(values, 0.95))
        axis.axvline(p95, color=_ORANGE, lw=1, ls="--")
        axis.set_title(f"95 % below {p95:.3g}", color=_ORANGE, fontsize=9, loc="right")
        low, high = min(0.0, float(values[0])), float(np.quantile(values, 0.99))
        axis.set_xlim(low, max(high * 1.1, low + 1e-9))
    axis.set_ylim(0, 1.02)
    _dress(axis, name.replace("_", " "), "share of episodes below")


def _dress(axis: Any, x: str, y: str) -> None:
    axis.set_xlabel(x, color=_INK, fontsize=9)
    axis.set_ylabel(y, color=_INK, fontsize=9)
    axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=_INK, labelsize=8, length=3)
    axis.grid(color="#E4E4E4", lw=0.8)
    axis.set_axisbelow(True)
