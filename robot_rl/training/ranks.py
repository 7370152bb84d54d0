"""Several processes that train one policy together, started by torchrun: its ranks.

Each rank has its share of the envs, of the replay and of every batch. Gradients are averaged
before each step of an optimiser, so that all ranks hold the same weights. Rank 0 evaluates, saves
and talks; the others wait for it. A rank that dies or ends by an error ends all of them, by name.

Tensors on CUDA travel over NCCL, everything else over gloo. Words are JSON: nothing is pickled.
`Ranks` itself is a process that trains alone, so that nobody has to ask how many there are.

In a checkpoint, rank 0's state lies where that of a process alone would. Every other rank writes a
segment with its envs, its random streams and whatever else of it differs from rank 0's.
"""

import importlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from robot_rl.buffers.returns import RowLayout
from robot_rl.buffers.saved_rows import Segments
from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import CheckpointError, ConfigError, DeviceError, RankError
from robot_rl.core.seeding import derive_seed
from robot_rl.training.storage.durable import sha256
from robot_rl.training.storage.state_tree import flatten, restore

Result = TypeVar("Result")
_SEARCH_SECONDS = 5.0
"""Time that a rank looks for who is missing before it says so [s]."""


class Ranks:
    """A process that trains alone: rank 0 of 1. What the others override does nothing here."""

    rank = 0
    """Number of this process."""
    count = 1
    """Number of processes."""
    local = 0
    """Its number on its machine."""
    local_count = 1
    """Number of processes on its machine."""
    reduce: Callable[[Sequence[nn.Parameter]], None] | None = None
    """Averages the gradients of parameters over all ranks, in place; None where there is one."""

    def any(self, flag: bool) -> bool:
        """True if a flag is set on any rank."""
        return flag

    def total(self, values: Tensor) -> Tensor:
        """Sum over all ranks of values on the host."""
        return values

    def words(self, text: str) -> list[str]:
        """The text of every rank."""
        return [text]

    def join_step(self, step: EnvStep) -> EnvStep:
        """The step of the envs of all ranks, for running statistics: those of rank 0 first."""
        return step

    def first(self, work: Callable[[], Result]) -> Result | None:
        """Work that rank 0 does while the others wait; None there."""
        return work()

    def problem(self, text: str, when: float) -> str:
        """The first problem on any rank, and its rank; empty where all is well.

        Args:
            text: What went wrong on this rank; empty where all is well.
            when: Count of the moment when it did; infinite where it is not known.
        """
        return text


@contextmanager
def join_ranks(timeout_seconds: float) -> Iterator[Ranks]:
    """Meet the other processes that torchrun has started; without torchrun there are none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield Ranks()
        return
    # The first optimiser loads this. Loaded while the group is alive, it keeps the group's threads
    # beyond the end, where they abort the interpreter (seen with torch 2.13).
    importlib.import_module("torch._dynamo")
    timeout = timedelta(seconds=timeout_seconds)
    store, rank, count = next(rendezvous("env://", timeout=timeout))
    on_cuda = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if on_cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=timeout)
    try:
        yield _JoinedRanks(store, rank, count)
    except BaseException as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        with suppress(RuntimeError):  # the process that keeps the store may be gone
            store.set(f"robot_rl/ended/{rank}", reason)
        raise
    finally:
        dist.destroy_process_group()


class _JoinedRanks(Ranks):
    """One of several processes."""

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self.local = int(os.environ.get("LOCAL_RANK", rank))
        self.local_count = int(os.environ.get("LOCAL_WORLD_SIZE", count))
        self.reduce = self._average
        self._store = store
        self._processes: list[tuple[str, int]] = []
        told = self.words(json.dumps([socket.gethostname(), os.getpid()]))
        self._processes = [(host, pid) for host, pid in map(json.loads, told)]

    def any(self, flag: bool) -> bool:
        return bool(self.total(torch.tensor(float(flag))) > 0)

    def total(self, values: Tensor) -> Tensor:
        values = values.clone()
        if values.numel():
            with self._together():
                dist.all_reduce(values)
        return values

    def words(self, text: str) -> list[str]:
        said = torch.tensor(list(text.encode()), dtype=torch.uint8)
        lengths = self._gather(torch.tensor([len(said)])).tolist()
        padded = torch.zeros(max(1, *lengths), dtype=torch.uint8)
        padded[: len(said)] = said
        rows = self._gather(padded).view(self.count, -1)
        return [bytes(row[:n].tolist()).decode() for row, n in zip(rows, lengths, strict=True)]

    def join_step(self, step: EnvStep) -> EnvStep:
        return unpack_step(self._gather(pack_step(step)), step)

    def first(self, work: Callable[[], Result]) -> Result | None:
        result = work() if self.rank == 0 else None
        self.any(False)  # the others wait here
        return result

    def problem(self, text: str, when: float) -> str:
        told = [json.loads(word) for word in self.words(json.dumps([when, text]))]
        # Averaged gradients carry a NaN to all ranks: where it came from is where it came first.
        first = min((moment for moment, said in told if said), default=None)
        return "; ".join(
            f"on rank {rank} of {self.count}, {said}"
            for rank, (moment, said) in enumerate(told)
            if said and moment == first
        )

    @torch.no_grad()
    def _average(self, params: Sequence[nn.Parameter]) -> None:
        """One flat bucket for all gradients: one message per step of an optimiser."""
        grads = [param.grad for param in params if param.grad is not None]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        with self._together():
            dist.all_reduce(flat)
        flat.div_(self.count)
        parts = flat.split([grad.numel() for grad in grads])
        for grad, part in zip(grads, parts, strict=True):
            grad.copy_(part.view_as(grad))

    def _gather(self, rows: Tensor) -> Tensor:
        """Rows of all ranks, those of rank 0 first."""
        out = rows.new_empty(self.count * rows.shape[0], *rows.shape[1:])
        with self._together():
            dist.all_gather(list(out.chunk(self.count)), rows.contiguous())
        return out

    @contextmanager
    def _together(self) -> Iterator[None]:
        said = ""
        try:
            yield
        except RuntimeError as error:
            said = str(error).partition("\n")[0] or type(error).__name__
        # Raised out here: the traceback of the other would keep the group alive beyond its end.
        if said:
            raise RankError(self._who_is_missing(said))

    def _who_is_missing(self, said: str) -> str:
        """Sentence about the ranks that ended, are gone, or do not answer, in this order."""
        advice = "the last checkpoint is intact: go on from it with resume=..."
        others = [rank for rank in range(self.count) if rank != self.rank]
        silent = list(others)
        deadline = time.monotonic() + _SEARCH_SECONDS
        with suppress(RuntimeError):
            self._store.set(f"robot_rl/waits/{self.rank}", "yes")
        while silent and time.monotonic() < deadline:
            for rank in others:
                if reason := self._heard(f"robot_rl/ended/{rank}"):
                    return f"rank {rank} of {self.count} ended: {reason}; {advice}"
            if gone := [rank for rank in others if not self._lives(rank)]:
                return f"{self._named(gone)} died; {advice}"
            silent = [rank for rank in others if not self._heard(f"robot_rl/waits/{rank}")]
            time.sleep(0.05)
        if silent:
            return f"{self._named(silent)} does not answer ({said}); {advice}"
        return f"the {self.count} ranks lost each other ({said}); {advice}"

    def _heard(self, key: str) -> str:
        with suppress(RuntimeError):
            if self._store.check([key]):
                return self._store.get(key).decode()
        return ""

    def _lives(self, rank: int) -> bool:
        """False where the process is known to be gone; those of other machines cannot be seen."""
        if not self._processes or self._processes[rank][0] != socket.gethostname():
            return True
        try:
            return psutil.Process(self._processes[rank][1]).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def _named(self, ranks: Sequence[int]) -> str:
        known = [self._processes[rank] for rank in ranks] if self._processes else []
        where = " and ".join(f"process {pid} on {host}" for host, pid in known)
        return f"rank {' and '.join(map(str, ranks))} of {self.count}" + (
            f" ({where})" if where else ""
        )


_FLAGS = ("terminated", "truncated", "success", "valid", "intervened")


def pack_step(step: EnvStep) -> Tensor:
    """Vectors, reward and flags of a step as rows of floats, (N, W); images stay behind."""
    flags = torch.stack([getattr(step, name) for name in _FLAGS], dim=-1)
    obs, next_obs = _vectors(step.obs), _vectors(step.next_obs)
    parts = [*obs.values(), *next_obs.values(), step.action, step.reward[:, None], flags]
    return torch.cat([part.float() for part in parts], dim=-1)


def unpack_step(rows: Tensor, example: EnvStep) -> EnvStep:
    """Inverse of `pack_step` for rows (M, W) of such steps; without metrics and reward terms."""
    obs, next_obs = _vectors(example.obs), _vectors(example.next_obs)
    parts = [*obs.values(), *next_obs.values(), example.action]
    widths = [part.shape[-1] for part in parts] + [1, len(_FLAGS)]
    pieces = list(rows.split(widths, dim=-1))
    flags = dict(zip(_FLAGS, (pieces.pop() > 0).unbind(-1), strict=True))
    reward, action = pieces.pop()[:, 0], pieces.pop()
    return EnvStep(
        obs=dict(zip(obs, pieces[: len(obs)], strict=True)),
        next_obs=dict(zip(next_obs, pieces[len(obs) :], strict=True)),
        action=action,
        reward=reward,
        **flags,
    )


def _vectors(obs: Obs) -> Obs:
    return {name: x for name, x in obs.items() if x.ndim == 2 and x.is_floating_point()}


def share_of(total: int, ranks: Ranks, name: str) -> int:
    """A rank's part of a number that must divide evenly.

    Raises:
        ConfigError: It does not.
    """
    if total % ranks.count:
        lower = total // ranks.count * ranks.count
        raise ConfigError(
            f"{name}={total} was asked of {ranks.count} ranks, which must have equal shares; "
            f"take a multiple of {ranks.count}, such as {lower or ranks.count}"
        )
    return total // ranks.count


def seed_of(seed: int, ranks: Ranks) -> int:
    """Seed of a rank's envs, exploration and sampling; rank 0's is the run's own."""
    if ranks.rank == 0:
        return seed
    return derive_seed(seed, f"rank {ranks.rank}") >> 32  # Gymnasium takes 32 bits


def device_of(device: torch.device, ranks: Ranks) -> torch.device:
    """A rank's device: with several ranks on CUDA, the one of its number on its machine.

    Raises:
        DeviceError: This machine has fewer.
    """
    if ranks.count == 1 or device.type != "cuda":
        return device
    if ranks.local >= torch.cuda.device_count():
        raise DeviceError(
            f"rank {ranks.rank} needs cuda:{ranks.local}, but this machine has "
            f"{torch.cuda.device_count()} CUDA device(s); start as many ranks on it as it has, or "
            "use device=cpu"
        )
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def check_memory(needed: int, device: torch.device, *, copies: int, what: str, remedy: str) -> None:
    """Refuse what does not fit.

    Args:
        needed: Bytes, by each process.
        copies: Processes of this machine; each has a GPU of its own, and they share the memory.
        what: Who needs them; begins the message.

    Raises:
        ConfigError: The device has not so many left.
    """
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()  # of an earlier run in this process
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if not on_gpu:
        needed *= copies
    if needed > free:
        raise ConfigError(
            f"{what}: {needed / 1e6:,.0f} MB on {device} are needed, but only "
            f"{free / 1e6:,.0f} MB are free; {remedy}"
        )


def check_room(
    path: Path, count: int, layout: RowLayout, device: torch.device, copies: int, *,
    frames: int = 0,
) -> None:  # fmt: skip
    """Refuse stored transitions that do not fit; the run's own have their memory by then.

    Args:
        frames: Memory of their images [bytes].

    Raises:
        ConfigError: They do not.
    """
    check_memory(
        count * layout.row_bytes + frames, device, copies=copies,
        what=f"the {count:,} transitions of {path}",
        remedy="take a part of them (robot-rl data split ...), or a machine with more",
    )  # fmt: skip


def check_same(state: Mapping[str, Any], ranks: Ranks) -> None:
    """Check that all ranks begin with the same floats: weights, targets, scales.

    Raises:
        RankError: They do not; the message names what differs.
    """
    digests = {n: _digest(x) for n, x in flatten(state)[1].items() if x.is_floating_point()}
    told = [json.loads(word) for word in ranks.words(json.dumps(digests))]
    for rank, other in enumerate(told):
        differing = [name for name in told[0] if other.get(name) != told[0][name]]
        if differing or other.keys() != told[0].keys():
            raise RankError(
                f"rank {rank} begins with other weights than rank 0 "
                f"({', '.join(differing[:3]) or 'it has more of them'}); expected the same on all: "
                "check that all ranks run the same code with the same configuration"
            )


def save_others(own: Mapping[str, Any], ranks: Ranks, segments: Segments) -> list[dict[str, Any]]:
    """Write what the other ranks have beside rank 0, an entry each; every rank must call it.

    Args:
        own: State of this rank: `learner` and what else it has.
        segments: Where it is written; a folder that all ranks see.
    """
    if ranks.count == 1:
        return []
    tree, tensors = flatten(own)
    digests = {name: _digest(x) for name, x in tensors.items() if name.startswith("/learner/")}
    known = json.loads(ranks.words(json.dumps(digests if ranks.rank == 0 else {}))[0])
    entry: dict[str, Any] = {}
    if ranks.rank > 0:
        differing = {n: x for n, x in tensors.items() if digests.get(n, "") != known.get(n)}
        entry = {"tree": tree, "tensors": segments.write("state", differing)}
    return [json.loads(word) for word in ranks.words(json.dumps(entry))[1:]]


def state_of(state: Mapping[str, Any], ranks: Ranks, segments: Segments) -> Mapping[str, Any]:
    """A rank's part of a checkpoint.

    Raises:
        CheckpointError: It was written by another number of ranks.
    """
    others = state.get("ranks", [])
    if len(others) + 1 != ranks.count:
        saved = len(others) + 1
        how = (
            f"torchrun --nproc-per-node {saved} -m robot_rl.cli train"
            if saved > 1
            else "one process"
        )
        raise CheckpointError(
            f"the checkpoint was written by {saved} rank(s), with that many shares of envs and "
            f"replay, and this session has {ranks.count}; resume with as many: {how}"
        )
    if ranks.rank == 0:
        return state
    entry = others[ranks.rank - 1]
    shared = flatten({"learner": state["learner"]})[1]
    return restore(entry["tree"], {**shared, **segments.read(entry["tensors"])})


def replay_of(entry: Mapping[str, Any], segments: Segments) -> Mapping[str, Any]:
    """The replay that another rank than 0 had, of its entry in a checkpoint (`save_others`)."""
    return restore(entry["tree"]["replay"], segments.read(entry["tensors"]))


def _digest(tensor: Tensor) -> str:
    return sha256(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
