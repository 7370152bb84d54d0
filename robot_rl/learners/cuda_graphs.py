"""Updates captured once as a CUDA graph, and replayed from then on.

An update of small networks is some hundred kernels, each of which takes the host longer to launch
than the device to run. A graph launches all of them at once.

A replay runs what was captured and no line of Python. A step may therefore depend on static
arguments, plain values beside the batch, for each combination of which it is captured anew.
Whatever else changes must lie in tensors that stay where they are; and nothing in it may wait for
the device, pick rows by a mask, or make a tensor of the host's numbers.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from robot_rl.core.process import nothing_collected
from robot_rl.core.transition import Batch

_logger = logging.getLogger(__name__)

_WARM_UP_UPDATES = 3
"""Updates before a capture, which make what is made once: states of optimisers, workspaces."""
_MAX_CAPTURES = 16
"""Captures of one learner; further combinations are computed kernel by kernel."""
_MAX_COUNTED = 256
"""Combinations whose updates are counted at once: a value that fades is another in each update."""


class UpdateResult(NamedTuple):
    """Detached tensors that an update leaves."""

    metrics: dict[str, Tensor]
    """Of the critics, 0-dim."""
    actor_metrics: dict[str, Tensor]
    """Of the actor, 0-dim; empty where it takes no step."""
    error: Tensor
    """Of every row, (B,), as its priority."""


Step = Callable[..., UpdateResult]
"""Of a batch and static arguments."""
Replay = Callable[[Batch], UpdateResult]
"""Replays a capture with another batch of the same shapes; its result is the caller's to keep."""


class Recorder(Protocol):
    """Captures steps, in one way or another."""

    def warm_up(self, step: Callable[[], UpdateResult]) -> UpdateResult:
        """Do a step as it is done before a capture."""
        ...

    def capture(self, step: Callable[[Batch], UpdateResult], batch: Batch) -> Replay:
        """Remember what a step does, without doing it.

        Raises:
            RuntimeError: It does what cannot be captured; nothing has happened.
        """
        ...


class CUDAGraphs:
    """Runs a learner's steps, and replays those that come again and again."""

    def __init__(self, recorder: Recorder | None) -> None:
        """Nothing is captured yet.

        Args:
            recorder: What captures; None computes everything kernel by kernel.
        """
        self.allowed = True
        """False where a learner's steps cannot be captured."""
        self._recorder = recorder
        self._replays: dict[Hashable, Replay] = {}
        self._done: Counter[Hashable] = Counter()

    @property
    def captures(self) -> int:
        """Number of graphs."""
        return len(self._replays)

    def run(self, step: Step, batch: Batch, *static_args: Hashable) -> UpdateResult:
        """Run a step, or replay its graph.

        Args:
            step: Called with the batch and the static arguments.
            batch: B rows.
            static_args: Plain values that decide what the step does.
        """
        recorder = self._recorder
        if recorder is None or not self.allowed:
            return step(batch, *static_args)
        key = (static_args, _description(batch))
        if key not in self._replays:
            if len(self._done) > _MAX_COUNTED:
                self._done.clear()  # captures come a little later
            if self._done[key] < _WARM_UP_UPDATES:
                self._done[key] += 1
                return recorder.warm_up(lambda: step(batch, *static_args))
            if len(self._replays) >= _MAX_CAPTURES:
                return step(batch, *static_args)
            try:
                self._replays[key] = recorder.capture(
                    lambda other: step(other, *static_args), batch
                )
            except (RuntimeError, TypeError, ValueError) as error:  # training can go on
                self.allowed = False
                self.forget()
                cause = error.__context__ or error  # the end of a spoilt capture fails as well
                _logger.warning(
                    "an update could not be captured as a graph; all go on kernel by kernel, "
                    "which is slower (learner.capture=false asks for it): %s",
                    str(cause).partition("\n")[0],
                )
                return step(batch, *static_args)
        return self._replays[key](batch)

    def record_with(self, recorder: Recorder) -> None:
        """Capture by other means than CUDA graphs."""
        self.forget()
        self._recorder = recorder

    def forget(self) -> None:
        """Capture anew: tensors of the learner were replaced."""
        self._replays.clear()
        self._done.clear()


class CUDAGraphRecorder:
    """Captures steps as CUDA graphs."""

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        """Begin a stream of its own, as captures want it.

        Args:
            device: Of the learner.
            generators: All that steps draw from.
        """
        self._stream = torch.cuda.Stream(device)
        self._device, self._generators = device, generators

    def warm_up(self, step: Callable[[], UpdateResult]) -> UpdateResult:
        """Do a step in the stream of the captures, between what came before and what follows."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            result = step()
        present.wait_stream(self._stream)
        return result

    def capture(self, step: Callable[[Batch], UpdateResult], batch: Batch) -> Replay:
        """Make a graph of a step, whose inputs and outputs stay where they are.

        Raises:
            RuntimeError: It waits for the device, or does something else that graphs cannot.
        """
        graph: Any = torch.cuda.CUDAGraph()
        kernels: Any = torch  # torch does not annotate all that it has
        inputs = [tensor.clone() for tensor in tensors_of(batch)]
        before = [generator.clone_state() for generator in self._generators]
        try:
            for generator in self._generators:
                graph.register_generator_state(generator)
            # The outer context brings the present stream back where a capture ends in an error.
            with (
                torch.cuda.stream(self._stream), nothing_collected(),
                torch.cuda.graph(graph, stream=self._stream),
            ):  # fmt: skip
                metrics, acting, error = step(with_tensors(batch, inputs))
                values = (*metrics.values(), *acting.values())
                told = torch.stack([value.float() for value in values])
        except Exception:
            # Whatever a failed capture left in them: nothing has been drawn.
            for generator, state in zip(self._generators, before, strict=True):
                generator.graphsafe_set_state(state)
            raise

        def replay(other: Batch) -> UpdateResult:
            kernels._foreach_copy_(inputs, tensors_of(other))
            graph.replay()
            now = told.clone().unbind()  # the next replay writes into the same place
            of_critics = dict(zip(metrics, now, strict=False))
            of_actor = dict(zip(acting, now[len(metrics) :], strict=True))
            return UpdateResult(of_critics, of_actor, error.clone())

        return replay


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, in an order that is that of `with_tensors`."""
    return [
        *batch.obs.values(), *batch.next_obs.values(), *batch.extra.values(),
        batch.action, batch.reward, batch.discount, batch.weight,
    ]  # fmt: skip


def with_tensors(batch: Batch, tensors: Sequence[Tensor]) -> Batch:
    """The batch with other tensors in the place of its own."""
    left = iter(tensors)

    def others(groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: next(left) for name in groups}

    return replace(
        batch, obs=others(batch.obs), next_obs=others(batch.next_obs), extra=others(batch.extra),
        action=next(left), reward=next(left), discount=next(left), weight=next(left),
    )  # fmt: skip


def _description(batch: Batch) -> Hashable:
    names = (*batch.obs, "|", *batch.next_obs, "|", *batch.extra)
    return names, tuple((tensor.shape, tensor.dtype) for tensor in tensors_of(batch))
