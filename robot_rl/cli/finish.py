"""Steps after training: curve, flight, bundle, and where to look. A step that fails says so."""

import logging
import shlex
from collections.abc import Callable
from functools import cache

from torch import nn

from configs.schema import RunConfig, parts_of_program
from robot_rl.cli.bundling import export_run
from robot_rl.cli.command_line import missing_package
from robot_rl.cli.components import load_policy, next_commands
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import RobotRLError
from robot_rl.training.reporting.console import format_count, format_number, format_percent
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore, read_manifest
from robot_rl.training.trainer import VALIDATION_SEED
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.env import SimEnv

_logger = logging.getLogger(__name__)


def report_outcome(run: RunFolder, config: RunConfig, env: BatchEnv) -> dict[str, str]:
    """Draw and export the best policy of a finished run.

    Returns:
        Lines of a summary: what it is -> where it lies, or why there is none.
    """

    def draw_curve() -> dict[str, str]:
        from robot_rl.training.reporting.curves import plot_run  # matplotlib: not for all

        path = run.plots / "learning_curve.png"
        plot_run(read_metrics(run.metrics_path), path, title=run.path.name)
        return {"curve": str(path)}

    curve: dict[str, str] = {}
    bundle: dict[str, str] = {}

    def draw_and_export() -> None:
        """Do what has time while other processes draw the video."""
        curve.update(_attempt("curve", draw_curve))
        if config.robot is not None:
            bundle.update(_attempt("bundle", export))

    @cache
    def best_policy() -> nn.Module:
        return load_policy(run, config, env.spec, "best").module

    def draw_episodes() -> dict[str, str]:
        policy = best_policy()
        if not isinstance(env, SimEnv):
            if not (config.video and isinstance(config.env, GymnasiumConfig)):
                return {}
            from sim.adapters.gymnasium_film import film_episode  # gymnasium: not for all

            return film_episode(run.path, config.env, policy, seed=VALIDATION_SEED)
        from robot_rl.cli.pictures import draw_policy  # matplotlib: not for all

        return draw_policy(
            run.path, config, env, policy,
            seed=VALIDATION_SEED, video=config.video, meanwhile=draw_and_export,
        )  # fmt: skip

    def export() -> dict[str, str]:
        exported = export_run(run, config, "best", run.bundle)
        return {"bundle": f"{exported.path} ({exported.sentence})"}

    drawn = _attempt("picture" if isinstance(env, SimEnv) else "video", draw_episodes)
    if not curve:  # nothing was played, or foreign worlds were
        draw_and_export()
    lines = next_commands(run, config, longer(run, config))
    found = {
        "run": str(run.path),
        **_attempt("best", lambda: _best(run, config, env)),
        **curve,
        **drawn,
        **bundle,
    }
    if config.robot is not None and run.bundle.is_dir() and not parts_of_program(config):
        found["deploy"] = f"robot-rl deploy bundle={shlex.quote(str(run.bundle))}"
    found["evaluate"] = lines["evaluate"]

    def offer_export() -> dict[str, str]:
        if isinstance(config.env, GymnasiumConfig):
            from robot_rl.cli.env_bundling import reason_not_exported  # gymnasium: not for all

            if reason_not_exported(config, list(env.spec.groups), best_policy()):
                return {}
        elif config.robot is None:
            return {}
        return {"export": lines["export"]}

    found |= _attempt("export", offer_export)
    return found | {"continue": lines["resume"]}


def longer(run: RunFolder, config: RunConfig) -> int:
    """Length to go on to: twice the one that was reached, which is at least the one asked for."""
    steps = CheckpointStore(run.checkpoints, read_only=True).steps()
    reached = steps[-1] - config.training.offline.updates if steps else 0
    return 2 * max(config.training.total_steps, reached) or 50_000


def _attempt(what: str, step: Callable[[], dict[str, str]]) -> dict[str, str]:
    try:
        return step()
    except ModuleNotFoundError as error:
        return {what: f"none: {missing_package(error, what) or error}"}
    except RobotRLError as error:
        return {what: f"none: {error}"}
    except Exception as error:  # the run is finished and saved: it is not lost now
        _logger.info("%s failed", what, exc_info=True)  # into log.txt only
        return {what: f"none: {type(error).__name__}: {error} (log.txt has the details)"}


def _best(run: RunFolder, config: RunConfig, env: BatchEnv) -> dict[str, str]:
    """Result of the best checkpoint: success, or return where nothing says what success is."""
    judged = env.spec.judges_success
    store = CheckpointStore(run.checkpoints, read_only=True)
    best = store.best()
    if best is None:
        return {"success" if judged else "return": "not measured"}
    manifest = read_manifest(best)
    score = float(manifest["score"])
    episodes = manifest.get("episodes") or config.training.evaluation_episodes  # older ones: none
    where = f"best checkpoint, step {format_count(manifest['step'])}"
    if worst := manifest.get("condition"):
        where = f"the worst condition: {worst}; {where}"
    if not judged:
        mean = f"{format_number(score)}, mean of {episodes} validation episodes, {where}"
        return {"return": mean}
    low, high = wilson_interval(round(score * episodes), episodes)
    return {
        "success": f"{format_percent(score)} (95 % interval {format_percent(low)} to "
        f"{format_percent(high)}) of {episodes} validation starts, {where}"
    }
