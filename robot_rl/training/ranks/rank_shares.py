"""What a rank has of a run: its share of worlds and batches, its seed, its device, its state.

In a checkpoint, rank 0's state lies where that of a process alone would. Every other rank writes a
segment with its worlds, its random streams and whatever else of it differs from rank 0's.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.saved_rows import Segments
from robot_rl.core.errors import CheckpointError, ConfigError, DeviceError, RankError
from robot_rl.core.seeding import derive_seed
from robot_rl.training.ranks.parallel import Ranks
from robot_rl.training.storage.durable import sha256
from robot_rl.training.storage.state_tree import flatten, restore


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
    """Seed of a rank's worlds, exploration and sampling; rank 0's is the run's own."""
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


def check_same(state: Mapping[str, Any], ranks: Ranks) -> None:
    """Check that all ranks begin with the same numbers: weights, targets, scales.

    Random streams, which are bytes, are each rank's own.

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
    """Write what the other ranks have beside rank 0; every rank must call it.

    Args:
        own: State of this rank: `learner` and what else it has.
        ranks: All of them.
        segments: Where it is written; a folder that all ranks see.

    Returns:
        One entry for each rank but 0.
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
        how = f"torchrun --nproc-per-node {saved} scripts/train.py" if saved > 1 else "one process"
        raise CheckpointError(
            f"the checkpoint was written by {saved} rank(s), with that many shares of worlds and "
            f"replay, and this session has {ranks.count}; go on with as many: {how}"
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
