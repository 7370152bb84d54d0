"""Ranks as forks of this process, which meet over gloo as those of torchrun do."""

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from robot_rl.training.ranks import Ranks, join_ranks

_fork = multiprocessing.get_context("fork")
_PATIENCE = 60.0
"""Longest time a rank may take [s]."""


def on_ranks(work: Callable[[Ranks], Any], count: int = 2, *, timeout: float = 30.0) -> list[Any]:
    """What each of several ranks returned, or the exception that ended it; None where killed."""
    # As torchrun's agent does, this process keeps the store: it outlives every rank.
    # torch documents it, but leaves it out of its list of public names.
    make = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
    store = make("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = []
    for rank in range(count):
        here, there = _fork.Pipe()
        child = _fork.Process(target=_be_rank, args=(work, rank, count, store.port, timeout, there))
        child.start()
        there.close()
        pipes.append((here, child))
    results = []
    for here, _ in pipes:
        assert here.poll(_PATIENCE), "a rank hangs"
        try:
            results.append(here.recv())
            here.send("got it")
        except EOFError:
            results.append(None)
    for _, child in pipes:
        child.join(_PATIENCE)
    return results


def _be_rank(
    work: Callable[[Ranks], Any], rank: int, count: int, port: int, timeout: float, there: Any
) -> None:
    torch.set_num_threads(1)
    where = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": count, "RANK": rank,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }  # fmt: skip
    os.environ.update({name: str(value) for name, value in where.items()})
    try:
        with join_ranks(timeout) as ranks:
            result = work(ranks)
    except Exception as error:  # noqa: BLE001 - it is what the test asks for
        result = error
    there.send(result)
    there.recv()  # tensors stay in the memory of this process until they are read
