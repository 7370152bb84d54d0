"""The learner process: takes what robots send, learns, and gives weights back.

Everything it has is in the run's folder: the log of all steps (`experience/`), checkpoints, weights
and metrics. Killed and started again with the same folder, it goes on from the last checkpoint with
every step that it had acknowledged.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from configs.builders import run_device
from configs.compose import to_plain
from configs.schema import RunConfig
from robot_rl.cli.components import make_learner
from robot_rl.cli.learned_reward import episode_augmenter
from robot_rl.cli.learning.environment import robot_meaning, robot_spec
from robot_rl.cli.learning.options import LearnOptions, experience_folder, weights_folder
from robot_rl.cli.learning.parts import frame_spec
from robot_rl.cli.learning.supervisor import is_supervised
from robot_rl.cli.session import show_and_keep_logs, stop_on_signals
from robot_rl.core.errors import RobotRLError
from robot_rl.link.server import LinkServer
from robot_rl.link.store import ExperienceStore
from robot_rl.link.weights import WeightStore
from robot_rl.training.online import OnlineTrainer
from robot_rl.training.ranks import Ranks
from robot_rl.training.reporting.console import Console, format_clock, format_count
from robot_rl.training.reporting.metrics import MetricLog, read_metrics
from robot_rl.training.reporting.mirrors import open_sinks, show_results
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.start import load_start
from robot_rl.training.storage.checkpoint import CheckpointStore

_logger = logging.getLogger(__name__)


def run_learner(
    run: RunFolder, config: RunConfig, options: LearnOptions, over: Callable[[], bool]
) -> None:  # fmt: skip
    """Learn until `training.total_steps` have come, until a signal, or until `over`.

    Args:
        run: Opened for writing.
        config: The run.
        options: Address and secrets.
        over: True when it is time to end.

    Raises:
        RobotRLError: The parts do not fit, the disk refused, or a value was not finite.
    """
    torch.set_num_threads(config.threads)
    spec = replace(robot_spec(config, options), device=run_device(config))
    learner = make_learner(config, spec)
    with contextlib.ExitStack() as open_parts:
        console = open_parts.enter_context(Console(quiet=config.logging.quiet))
        open_parts.enter_context(show_and_keep_logs(run, console))
        store = open_parts.enter_context(
            contextlib.closing(ExperienceStore(experience_folder(run.path)))
        )
        console.message(method := f"updates: {learner.update_method}")
        _logger.info("%s", method)
        checkpoints = CheckpointStore(run.checkpoints, keep_last=config.training.keep_checkpoints)
        checkpoint = checkpoints.load() if checkpoints.steps() else None
        step = checkpoint.step if checkpoint else 0
        named = run.chosen()
        parts = [str(named[part]) for part in ("task", "robot", "learner")]
        sinks = open_sinks(
            config.logging, run.path, name=run.path.name, group="_".join(parts), tags=parts,
            job_type="learn", run_config=to_plain(config),
            resume_step=step if checkpoint else None,
        )  # fmt: skip
        metrics = open_parts.enter_context(MetricLog(run.metrics_path, sinks, resume_step=step))

        def record(values: Mapping[str, float]) -> None:
            values = {**values, **_robots(server, weights.newest)}
            metrics.write(values)
            console.interval(values)
            _mark(run, trainer, config, RunState.RUNNING)

        weights = WeightStore(weights_folder(run.path))
        trainer = OnlineTrainer(
            config.training, config.online, spec=spec, learner=learner, store=store,
            checkpoints=checkpoints, publish=weights.publish,
            record=record, interval_seconds=config.logging.interval_seconds, seed=config.seed,
            augment=episode_augmenter(config, spec),
        )  # fmt: skip
        if checkpoint is not None:
            trainer.load_state_dict(checkpoint.state)
            run.write_config(to_plain(config))  # only now: what does not fit is refused
        elif config.training.start.run:
            load_start(config.training.start, learner)
        trainer.publish()
        server = LinkServer(
            store, weights, address=options.address, security=options.security(),
            spec=frame_spec(spec, learner, robot_meaning(config, options)), controls=trainer.ask,
            metrics=trainer.metrics,
        )  # fmt: skip
        open_parts.callback(server.stop)
        console.start(
            config.training.total_steps, trainer.steps,
            f"learns on {spec.device}, listens at {options.address} -> {run.path}",
            start_seconds=trainer.seconds,
        )  # fmt: skip
        try:
            with stop_on_signals(trainer.stop, Ranks()):
                trainer.run(over)
        except BaseException as error:
            with contextlib.suppress(RobotRLError):
                _mark(run, trainer, config, RunState.FAILED, str(error).partition("\n")[0])
            raise
        alone = "" if is_supervised() else f"role=learner address={options.address} "
        how = "finished" if trainer.finished else "stopped"
        if trainer.finished:
            _mark(run, trainer, config, RunState.FINISHED)
        else:
            _mark(run, trainer, config, RunState.INTERRUPTED, "stopped by a person")
        _draw(run)
        show_results(metrics, run, step=trainer.steps, drawn=True)
        more = " training.total_steps=<more>" if trainer.finished else ""
        scored = "" if checkpoints.best() else " checkpoint=latest"
        console.finish(
            f"{how} after {format_count(trainer.steps)} steps and "
            f"{format_count(trainer.updates)} updates in {format_clock(trainer.seconds)}",
            {
                "run": str(run.path), "continue": f"robot-rl learn {alone}run={run.path}{more}",
                "export": f"robot-rl export run={run.path}{scored}",
            },
        )  # fmt: skip


def _robots(server: LinkServer, version: int) -> dict[str, float]:
    """Robots that are heard, and versions by which the furthest of them lags behind."""
    heard = [one for one in server.robots.values() if one.connected]
    told = [one.told.get("version", 0) for one in heard]
    lags = [version - one for one in told if isinstance(one, int)]
    lag = {"rollout/policy_lag": float(max(lags))} if lags else {}
    return {"rollout/robots": float(len(heard)), **lag}


def _mark(
    run: RunFolder, trainer: OnlineTrainer, config: RunConfig, state: RunState, reason: str = ""
) -> None:  # fmt: skip
    run.mark(
        state, step=trainer.steps, total_steps=config.training.total_steps,
        seconds=trainer.seconds, reason=reason,
    )  # fmt: skip


def _draw(run: RunFolder) -> None:
    """Draw the learning curve, if anything was recorded."""
    from robot_rl.training.reporting.curves import plot_run  # matplotlib: not before it is needed

    records = read_metrics(run.metrics_path)
    if any(name.startswith("rollout/return") for one in records for name in one):
        plot_run(records, run.plots / "learning_curve.png", title=run.path.name)
