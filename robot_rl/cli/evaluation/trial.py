"""A trial of a trained policy: played once in every world, judged, written down."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from configs.builders import pick_device
from configs.compose import changed_keys, from_plain, to_plain
from configs.schema import make_env
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.cli.command_line import missing_package
from robot_rl.cli.evaluation.trial_options import EvaluateOptions
from robot_rl.cli.evaluation.trial_record import STATISTICS, Trial
from robot_rl.cli.parts import load_policy, run_path
from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.training.evaluation import evaluate
from robot_rl.training.reporting.console import format_number, format_percent
from robot_rl.training.runs.provenance import config_hash, git_state, package_versions
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import replace_file, storage_errors
from robot_rl.training.trainer import VALIDATION_SEED
from sim.env import SimEnv


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
    # A bundle lies in its run's folder unless it was exported elsewhere.
    run = RunFolder.open(run_path(options.run) if bundle is None or options.run else bundle.parent)
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
    """What a person reads of a trial."""
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
        from robot_rl.cli.evaluation.trial_plot import plot_trial

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
