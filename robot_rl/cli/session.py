"""One session of training: a new run from a typed config, or on from where a run stands.

With torchrun rank 0 chooses and makes the run's folder, reads the command line's wishes into it,
and calls the others, which build the same parts meanwhile and train their share in silence.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

from configs.compose import to_plain
from configs.schema import RunConfig
from robot_rl.cli.build import Run, build_run
from robot_rl.cli.components import bare_env, keep_base, next_commands, run_name
from robot_rl.cli.finish import report_outcome
from robot_rl.cli.learned_reward import keep_reward
from robot_rl.cli.noiseless_teaching import taught_config
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import StorageError
from robot_rl.training.ranks import Ranks, join_ranks
from robot_rl.training.reporting.console import Console, format_clock, format_count
from robot_rl.training.reporting.metrics import MetricLog, set_aside
from robot_rl.training.reporting.mirrors import open_sinks, show_results
from robot_rl.training.runs.provenance import collect_provenance, config_hash
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.storage.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from robot_rl.training.storage.segments import SegmentStore
from sim.env import SimEnv

_logger = logging.getLogger(__name__)
_START, _MEMORY = "robot_rl.training.start", "sim.physics.warp_memory"
"""Loggers whose messages are shown before the run begins."""


def asked_hash(config: RunConfig) -> str:
    """Digest of a run as it was asked for: before a device was chosen for it.

    A plug-in of another version is asked for by the same words, and a run is the same whatever
    group it is shown in: a sweep names its groups by what its jobs differ in.
    """
    shown = replace(config, logging=replace(config.logging, wandb_group=None))
    return config_hash({k: v for k, v in to_plain(shown).items() if k != "plugins"})


def start(
    config: RunConfig, chosen: Mapping[str, str], on_folder: Callable[[Path], None] | None = None
) -> int:
    """Train a new run to its end, together with the other ranks if torchrun started some.

    Args:
        config: The run.
        chosen: Name chosen in each group.
        on_folder: Is told the run's folder as soon as there is one.

    Returns:
        Exit code: 0, or 128 + the signal that stopped it.
    """
    with join_ranks(config.rank_timeout_seconds) as ranks:
        if ranks.rank:
            return follow(taught_config(config, say=lambda _: None), ranks)
        return _start(config, chosen, ranks, on_folder or (lambda _: None))


def _start(
    config: RunConfig, chosen: Mapping[str, str], ranks: Ranks, on_folder: Callable[[Path], None]
) -> int:
    asked = asked_hash(config)
    config = taught_config(config)
    with log_to_stdout(_MEMORY):
        parts = build_run(config, ranks)
    config = replace(config, device=str(parts.env.spec.device))
    plain = to_plain(config)
    name = run_name(config, chosen)
    origin = collect_provenance(plain, seed=config.seed, device=config.device)
    origin |= {"ranks": ranks.count, "asked_sha256": asked, "methods": parts.methods}
    with RunFolder.create(config.runs, name, plain, origin) as run:
        try:
            call(ranks, run, None)
            keep_base(run, config)
            keep_reward(run, config)
            session = _Session(run, config, parts, None)
        except BaseException:
            shutil.rmtree(run.path)  # it never began: no half-made folder stays
            raise
        on_folder(run.path)
        return session.run()


def go_on(run: RunFolder, config: RunConfig, checkpoint: Checkpoint | None, ranks: Ranks) -> int:
    """Train a run on from a checkpoint, or from its start where it has none yet.

    Args:
        run: Opened for writing.
        config: Its configuration, with what may be changed on resume.
        checkpoint: Where to go on from.
        ranks: Processes that train it; rank 0 calls this, the others `follow`.

    Returns:
        Exit code as of `start`.
    """
    with log_to_stdout(_MEMORY):
        parts = build_run(config, ranks)
    call(ranks, run, checkpoint)
    session = _Session(run, config, parts, checkpoint)
    run.write_config(to_plain(config))  # only now: what does not fit the checkpoint is refused
    return session.run()


class _Session:
    """A trainer with its folder, its console and its signals."""

    def __init__(
        self, run: RunFolder, config: RunConfig, parts: Run, checkpoint: Checkpoint | None
    ) -> None:
        self._run, self._config, self._parts = run, config, parts
        self._console = Console(quiet=config.logging.quiet)
        self._going_on = checkpoint is not None
        for note in (*parts.methods, *parts.notes):
            self._console.message(note)
        before = run.provenance().get("methods", ())
        for now, then in zip(parts.methods, before, strict=False):
            if now != then:
                self._console.message(
                    f"warning: when this run began it had {then}; from here on last digits may "
                    "differ from those of a run that was not stopped",
                    style="yellow",
                )
        if not parts.env.spec.resumable:
            self._console.message(
                "the state of these envs cannot be saved: "
                + (
                    "all begin new episodes"
                    if self._going_on
                    else "a resumed run will begin new episodes in all of them"
                )
            )
        step, named = checkpoint.step if checkpoint else 0, run.chosen()
        if begins_again := checkpoint is None and run.metrics_path.exists():
            kept = set_aside(run.metrics_path)
            self._console.message(
                f"warning: {run.path} has no checkpoint to resume from: it was stopped before the "
                f"first one. It begins again at step 0; the metrics so far are kept in {kept.name}",
                style="yellow",
            )
        parts_of_name = [str(named[part]) for part in ("task", "robot", "learner")]
        with show_and_keep_logs(run, self._console):  # a mirror that is left out says so
            sinks = open_sinks(
                config.logging,
                run.path,
                name=run.path.name,
                group="_".join(parts_of_name),
                tags=parts_of_name,
                run_config=to_plain(config),
                resume_step=step if self._going_on or begins_again else None,
            )
        self._metrics = MetricLog(run.metrics_path, sinks, resume_step=step)
        store = CheckpointStore(
            run.checkpoints, keep_last=config.training.keep_checkpoints,
            segments=SegmentStore(run.replay),
        )  # fmt: skip
        self._store = store
        self._trainer = parts.make_trainer(store, self._record)
        for note in self._trainer.notes:
            self._console.message(note)
        if checkpoint is None:
            # What is told of another run's learner is kept with this one, and shown.
            with show_and_keep_logs(run, self._console), log_to_stdout(_START):
                self._trainer.begin()
        else:
            self._trainer.load_state_dict(checkpoint.state)
            store.discard_after(step)

    def run(self) -> int:
        """Train, then show what came of it; returns the exit code."""
        with (
            contextlib.closing(self._parts.env),
            contextlib.closing(self._parts.evaluation_env),
            contextlib.ExitStack() as further,
            self._console,
            self._metrics,
            show_and_keep_logs(self._run, self._console),
        ):
            for env in self._parts.changed.values():
                further.callback(env.close)
            try:
                code = self._train()
                if code == 0:  # finished once its outcome lies there too: else a resume makes that
                    self._report()
            except BaseException as error:
                aborted = isinstance(error, KeyboardInterrupt)
                reason = "aborted by a signal" if aborted else _reason(error)
                with contextlib.suppress(StorageError):  # a full disk: the error itself says so
                    self._mark(RunState.INTERRUPTED if aborted else RunState.FAILED, reason)
                self._console.close()
                self._say_how_to_go_on("what was saved is intact")
                if isinstance(error, BrokenPipeError):  # by itself it says: the reader has enough
                    raise RuntimeError(f"the training failed: {error}") from error
                raise
        return code

    def _report(self) -> None:
        """Make what comes after training, and show where it lies."""
        env = bare_env(self._parts.evaluation_env)
        summary = report_outcome(self._run, self._config, env)
        self._show_results(drawn=True)
        self._mark(RunState.FINISHED)
        self._console.finish(self._headline("finished"), summary)

    def _train(self) -> int:
        config = self._config
        name = self._run.chosen()
        _logger.info("trains from step %d to %d", self._step, config.training.length)
        for line in self._parts.methods:
            _logger.info("%s", line)
        self._console.start(
            config.training.length,
            self._step,
            f"{name['task']} · {name['robot']} · {name['learner']} · seed {config.seed} · "
            f"{self._parts.title} -> {self._run.path}",
            start_seconds=self._trainer.seconds,
        )
        had_come_to = self._run.status().step
        self._mark(RunState.RUNNING)
        if self._going_on and had_come_to > self._step:
            self._console.message(
                f"it had come to step {format_count(had_come_to)}: what came after its newest "
                "checkpoint is trained again"
            )
        if self._going_on and self._trainer.lost_its_replay:
            self._console.message("the replay was not saved with the run: it starts empty")
        with self._profiled(), stop_on_signals(self._trainer.stop, self._parts.ranks) as caught:
            finished = self._trainer.run()
        if finished:
            self._store.keep_one_replay()
            self._console.close()
            return 0
        number = caught[0] if caught else signal.SIGTERM  # it reached another rank only
        self._mark(RunState.INTERRUPTED, f"stopped by {signal.Signals(number).name}")
        self._show_results(drawn=False)
        self._console.finish(self._headline("stopped"))
        self._say_how_to_go_on("everything is saved")
        return 128 + number

    @contextlib.contextmanager
    def _profiled(self) -> Iterator[None]:
        """Measure what the body does, where that was asked for, and show it however it ends."""
        if not self._config.profile:
            yield
            return
        from robot_rl.training.profiling import Profiler  # torch's profiler: not for all

        path = self._run.path / "profile" / "trace.json"
        profiler = Profiler(path, self._parts.env.spec.device)
        try:
            with profiler.attached(self._trainer):
                yield
        finally:
            for line in profiler.lines():
                self._console.message(line)
                _logger.info("%s", line)

    def _headline(self, how: str) -> str:
        return f"{how} {format_count(self._step)} steps in {format_clock(self._trainer.seconds)}"

    @property
    def _step(self) -> int:
        return self._trainer.step

    def _record(self, record: Mapping[str, float]) -> None:
        if "seconds" not in record:  # an evaluation beside, of a step before
            self._metrics.amend(record)
            self._console.evaluation(record)
            return
        self._metrics.write(record)
        self._console.interval(record)
        keep_faults(bare_env(self._parts.env), self._run.path / "faults", self._step)
        self._mark(RunState.RUNNING)

    def _show_results(self, *, drawn: bool) -> None:
        """Hand what the run has come to on to TensorBoard and wandb; arguments as `results_of`."""
        show_results(self._metrics, self._run, step=self._step, drawn=drawn)

    def _mark(self, state: RunState, reason: str = "") -> None:
        self._run.mark(
            state,
            step=self._step,
            total_steps=self._config.training.length,
            seconds=self._trainer.seconds,
            reason=reason,
        )

    def _say_how_to_go_on(self, what: str) -> None:
        if CheckpointStore(self._run.checkpoints, read_only=True).steps():
            line = next_commands(self._run, self._config, None)["resume"]
            self._console.message(f"{what}; resume with: {line}")


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


@contextlib.contextmanager
def log_to_stdout(name: str) -> Iterator[None]:
    """Show what a logger tells meanwhile, on the terminal: before a run has a folder for it."""
    with _handled(name, logging.INFO, logging.StreamHandler(sys.stdout)):
        yield


@contextlib.contextmanager
def show_and_keep_logs(run: RunFolder, console: Console) -> Iterator[None]:
    """Messages of all packages: warnings to the terminal, everything to log.txt.

    A thread of a library that dies (TensorBoard's, on a full disk) is a message too.
    """
    logging.raiseExceptions = False  # a full disk must not print a traceback for every message
    thread_hook = threading.excepthook
    # A font that is replaced by another is no message for the user of a run.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    threading.excepthook = lambda died: _logger.info("a thread died: %s", died.exc_value)
    try:
        with _handled("", logging.INFO, run.log_handler(), console.log_handler()):
            yield
    finally:
        threading.excepthook = thread_hook


@contextlib.contextmanager
def _handled(name: str, level: int, *handlers: logging.Handler) -> Iterator[None]:
    """A logger, or the root for an empty name, has this level and these handlers meanwhile."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None], ranks: Ranks) -> Iterator[list[int]]:
    """Ctrl-C, SIGTERM and the end of the terminal call `stop`, which saves; a second one aborts.

    A run that was told to outlive its terminal, as by `nohup`, does.

    As soon as one rank has ended, torchrun sends SIGTERM to all others, and SIGKILL 30 s later. So
    with several ranks SIGTERM is ignored from the end of the training to that of the process: it
    would cut off whoever is about to say which rank died, and to mark it in the run.

    Yields:
        The signals that came.
    """
    caught: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        stop()
        # Not through the console: the signal may have interrupted it in the middle of a line.
        with contextlib.suppress(OSError):  # the signal may have ended the reader of stderr too
            os.write(2, b"\nstopping after this step, then saving; press Ctrl-C again to abort\n")

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread may listen
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield caught
    finally:
        if ranks.count > 1:
            before[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in before.items():
            signal.signal(number, handler)


def call(ranks: Ranks, run: RunFolder, checkpoint: Checkpoint | None) -> None:
    """Rank 0 tells the others where the run lies, and from which checkpoint it goes on."""
    ranks.words(json.dumps([str(run.path), str(checkpoint.path) if checkpoint else ""]))


def dismiss(ranks: Ranks) -> None:
    """Rank 0 tells the others that there is nothing to do."""
    ranks.words(json.dumps(["", ""]))


def follow(config: RunConfig, ranks: Ranks) -> int:
    """Train this rank's share to its end.

    Returns:
        Exit code: 0, or 128 + the signal that stopped the run.
    """
    parts = build_run(config, ranks)
    folder, checkpoint = json.loads(ranks.words("")[0])
    if not folder:
        return 0
    run = RunFolder(Path(folder), None)
    segments = SegmentStore(run.replay, prefix=f"rank_{ranks.rank:03d}_")
    store = CheckpointStore(run.checkpoints, segments=segments, read_only=True)
    faults = run.path / "faults" / f"rank_{ranks.rank}"
    with (
        contextlib.closing(parts.env),
        _handled("", logging.getLogger().level, _rank_handler(run, ranks)),
    ):
        trainer = parts.make_trainer(
            store, lambda record: keep_faults(bare_env(parts.env), faults, int(record["step"]))
        )
        if checkpoint:
            trainer.load_state_dict(read_checkpoint(Path(checkpoint)).state)
        else:
            trainer.begin()
        with stop_on_signals(trainer.stop, ranks) as caught:
            finished = trainer.run()
    return 0 if finished else 128 + (caught[0] if caught else signal.SIGTERM)


def _rank_handler(run: RunFolder, ranks: Ranks) -> logging.Handler:
    """Warnings of this rank go to the run's log.txt, with its number; lines never tear."""
    handler = run.log_handler()
    handler.setLevel(logging.WARNING)
    form = f"%(asctime)s %(levelname)s %(name)s (rank {ranks.rank}): %(message)s"
    handler.setFormatter(logging.Formatter(form))
    return handler


MAX_FAULT_FILES = 16
"""Kept of a run: a broken model would fill the disk."""


def keep_faults(env: BatchEnv, folder: Path, step: int) -> None:
    """Save what broke since the last call; a full disk is told, not raised.

    Args:
        env: Worlds of a run; those of robots with joints remember what broke.
        folder: Where the files go, `step_<step>_world_<world>.npz`.
        step: World-steps so far.
    """
    if not isinstance(env, SimEnv):
        return
    from sim.robots.joint_simulation import MujocoSimulation  # other worlds may lack its MuJoCo

    if not isinstance(env.simulation, MujocoSimulation):
        return
    records = env.simulation.engine.fault_records
    room = MAX_FAULT_FILES - len(list(folder.glob("*.npz"))) if records else 0
    for record in records[: max(0, room)]:
        path = folder / f"step_{step:012d}_world_{record.world}.npz"
        try:
            record.save(path)
            _logger.warning(
                "world %d broke (%s): %s", record.world, ", ".join(record.reasons), path
            )
        except StorageError as error:
            _logger.warning("%s", error)
    records.clear()
