"""Evaluations in a process beside the training, whose results come while it goes on.

What is learned does not depend on them. A checkpoint waits on disk for its score, and none is
deleted meanwhile: which one becomes the best is what it would be without such a process. The
process is started once, is sent the folders of checkpoints, and answers in lines of JSON. It ends
when its input does, so that it outlives no training.
"""

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robot_rl.core.errors import CheckpointError, RobotRLError
from robot_rl.training.storage.checkpoint import CheckpointStore, Score, read_manifest

_logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
"""Time between two looks at whether to stop waiting [s]."""
_END_SECONDS = 5.0
"""Time that the process has to end [s]."""

Found = tuple[dict[str, float], Score]
"""Metrics of a policy, and its score."""


class EvaluationProcessError(RobotRLError):
    """The process beside failed, or is gone."""


class EvaluationProcess:
    """The other process."""

    def __init__(self, command: Sequence[str], setup: Mapping[str, Any], log: Path) -> None:
        """Start nothing yet.

        Args:
            command: Starts it.
            setup: First line that it is sent, plain values.
            log: File of what it says, warnings and errors.
        """
        self._command, self._setup, self.log = command, setup, log
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = queue.SimpleQueue[bytes | None]()

    def start(self) -> None:
        """Start it, unless it runs; it makes its envs while the training begins."""
        if self._process is not None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is for the training, which ends it.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        self._write(self._setup)

    def ask(self, checkpoint: Path) -> None:
        """Let it evaluate a checkpoint, after those before; returns at once."""
        self._write({"checkpoint": str(checkpoint)})

    def answer(self, seconds: float) -> Found | None:
        """The next answer; None where there is none within a time.

        Raises:
            EvaluationProcessError: It failed or is gone.
        """
        try:
            line = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
        except queue.Empty:
            return None
        content = {} if line is None else json.loads(line)
        if "score" in content:
            return content["summary"], Score(**content["score"])
        raise EvaluationProcessError(content.get("error") or self._how_it_ended())

    def close(self) -> None:
        """End it; allowed more than once, and after it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: its answer says so
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put(None)

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        return f"it ended with exit code {code}; {self.log} has what it said"


class LateEvaluations:
    """Checkpoints that wait for their scores, oldest first."""

    def __init__(
        self, process: EvaluationProcess | None, checkpoints: CheckpointStore,
        evaluate_here: Callable[[Mapping[str, Any]], Found], on_found: Callable[[int, Found], None],
    ) -> None:  # fmt: skip
        """Begin with none.

        Args:
            process: None where none is to be started; what waits nevertheless, after a resume, is
                evaluated here.
            checkpoints: Where they lie.
            evaluate_here: Evaluates a policy by its state, in this process.
            on_found: Is told a step and what was found there.
        """
        self._process, self._checkpoints = process, checkpoints
        self._evaluate_here, self._on_found = evaluate_here, on_found
        self._waiting: list[dict[str, Any]] = []

    @property
    def are_on(self) -> bool:
        """True while there is a process beside, or one is to be started."""
        return self._process is not None

    @property
    def state(self) -> list[dict[str, Any]]:
        """Steps that wait, for the checkpoint."""
        return [dict(one) for one in self._waiting]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Wait for the same again, but for what has its score by now, or is gone."""
        self._waiting = []
        for one in state:
            path = self._checkpoints.path_of(int(one["step"]))
            try:
                scored = read_manifest(path)["score"] is not None
            except CheckpointError as error:
                _logger.warning("step %d is not evaluated: %s", one["step"], error)
                continue
            if not scored:
                self.expect(int(one["step"]), settled=bool(one["settled"]))

    def begin(self) -> None:
        """Start the process, and let it evaluate what waits."""
        if self._process is not None:
            self._process.start()
            for one in self._waiting:
                self._process.ask(self._checkpoints.path_of(one["step"]))

    def expect(self, step: int, *, settled: bool) -> None:
        """Wait for the score of a checkpoint that is about to be written."""
        self._waiting.append({"step": step, "settled": settled})
        self._checkpoints.hold(step)

    def ask(self, step: int) -> None:
        """Let it be evaluated, now that it is written."""
        if self._process is None:  # it failed since it was asked for
            self.take()
        else:
            self._process.ask(self._checkpoints.path_of(step))

    def take(self) -> None:
        """Take what was found meanwhile, without waiting."""
        self._take(lambda: 0.0)

    def finish(self, stopped: Callable[[], bool]) -> bool:
        """Wait for all; false where a stop was asked for before they were there."""
        self._take(lambda: None if stopped() else _LOOK_SECONDS)
        return not self._waiting

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()

    def _take(self, patience: Callable[[], float | None]) -> None:
        while self._waiting and (seconds := patience()) is not None:
            if self._process is None:
                self._evaluate_next()
                continue
            try:
                found = self._process.answer(seconds)
            except EvaluationProcessError as error:
                self._give_up(error)
                continue
            if found is not None:
                self._found(found)
            elif not seconds:
                return

    def _give_up(self, error: EvaluationProcessError) -> None:
        _logger.warning(
            "the process beside that evaluates failed: %s; from here on this one evaluates", error
        )
        self.close()
        self._process = None

    def _evaluate_next(self) -> None:
        path = self._checkpoints.path_of(self._waiting[0]["step"])
        self._found(self._evaluate_here(self._checkpoints.load(path).state["policy"]))

    def _found(self, found: Found) -> None:
        one, (summary, score) = self._waiting[0], found
        score = replace(score, settled=one["settled"])
        self._on_found(one["step"], (summary, score))  # first: a kill between repeats it
        self._checkpoints.set_score(one["step"], score)
        del self._waiting[0]


def serve(build: Callable[[Mapping[str, Any]], Callable[[Path], Found]]) -> None:
    """Answer in the other process, until the input ends.

    Args:
        build: Makes, from the setup, what evaluates a checkpoint.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what others print is no answer
    asked = queue.SimpleQueue[bytes]()
    threading.Thread(target=_read_input, args=(asked,), daemon=True).start()
    evaluate = build(json.loads(asked.get()))
    while True:
        path = Path(json.loads(asked.get())["checkpoint"])
        try:
            summary, score = evaluate(path)
            answer: dict[str, Any] = {"summary": summary, "score": vars(score)}
        except Exception as error:  # the training evaluates it again, and says more
            _logger.exception("evaluation of %s", path)
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer).encode() + b"\n")


def _read_input(asked: "queue.SimpleQueue[bytes]") -> None:
    """Read lines; with the training gone, end at once, in the middle of an evaluation too."""
    with os.fdopen(0, "rb", closefd=False) as lines:
        for line in lines:
            asked.put(line)
    os._exit(0)
