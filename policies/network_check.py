"""Check of an ONNX file before it is trusted: contents first, then one run in bounded memory.

The file is read with a few lines of our own, as a robot computer has no package `onnx`. Format:
https://protobuf.dev/programming-guides/encoding; numbers of fields: `onnx.proto` of ONNX.
"""

import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np
import onnxruntime

from robot_rl.core.errors import BundleError

_GRAPH, _OPERATIONS, _FUNCTIONS = 7, 8, 25  # of a model
_NODE, _INITIALIZER, _SPARSE = 1, 5, 15  # of a graph
_ATTRIBUTE, _DOMAIN = 5, 7  # of a node
_TENSOR, _SUBGRAPH, _TENSORS, _SUBGRAPHS = 5, 6, 10, 11  # of an attribute
_EXTERNAL, _LOCATION = 13, 14  # of a tensor
_OWN_DOMAINS = (b"", b"ai.onnx")

_ROOM = 64 << 20
"""Memory for what the network computes in its trial, beside four times its own size [bytes]."""
_SECONDS = 2.0
"""Processor time that one run may take."""


def check_content(raw: bytes) -> None:
    """Refuse what a policy's network does not need and a robot must not run.

    That is: data in other files, functions and subgraphs, operations of others than ONNX.

    Raises:
        BundleError: It has one of them, or is no ONNX.
    """
    try:
        parts = list(_fields(raw))
        graphs = [one for number, one in parts if number == _GRAPH and isinstance(one, bytes)]
        if len(graphs) != 1:
            raise ValueError("it has no graph")
        found = set(_unwanted(graphs[0]))
    except (ValueError, IndexError) as error:
        raise BundleError(f"policy.onnx is no ONNX network: {error}") from None
    numbers = {number for number, _ in parts}
    if _OPERATIONS not in numbers:
        found.add("no version of ONNX's operations")
    if _FUNCTIONS in numbers:
        found.add("functions")
    if found:
        raise BundleError(
            f"policy.onnx has {', '.join(sorted(found))}; expected one graph of ONNX's own "
            "operations that holds all of its numbers"
        )


def check_run(raw: bytes, feed: Mapping[str, np.ndarray]) -> None:
    """Run a network once, as it is, in bounded memory and time.

    Args:
        feed: Its inputs by name, (N, width) float32 each.

    Raises:
        BundleError: onnxruntime refuses it, or it needs more memory or time.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it says comes as an error
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    memory = onnxruntime.OrtArenaCfg({"max_mem": _ROOM + 4 * len(raw), "arena_extend_strategy": 1})
    _limit_memory(memory)
    options.add_session_config_entry("session.use_env_allocators", "1")
    running, ended = onnxruntime.RunOptions(), threading.Event()
    start = time.process_time()

    def watch() -> None:
        while not ended.wait(0.02):
            if time.process_time() - start > _SECONDS:
                running.terminate = True

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        onnxruntime.set_default_logger_severity(4)  # the allocator's, which belongs to no session
        session = onnxruntime.InferenceSession(
            raw, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
        watcher.start()
        session.run(None, dict(feed), running)
    except Exception as error:  # onnxruntime's own kinds have no common parent
        reason = str(error).replace("\n", " ")[-200:]
        late = f" and took more than {_SECONDS:g} s" if running.terminate else ""
        raise BundleError(
            f"policy.onnx does not run{late}: {reason}; expected a network that answers "
            f"{len(next(iter(feed.values())))} robots within {_SECONDS:g} s and "
            f"{(_ROOM + 4 * len(raw)) >> 20} MiB"
        ) from error
    finally:
        ended.set()
        onnxruntime.set_default_logger_severity(2)


def _limit_memory(config: onnxruntime.OrtArenaCfg) -> None:
    """The next sessions that use shared memory get no more of it than this."""
    where = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(where, config)


def _unwanted(graph: bytes) -> Iterator[str]:
    for number, part in _fields(graph):
        if number in (_INITIALIZER, _SPARSE):
            yield from _outside(part)
        if number != _NODE:
            continue
        for kind, value in _fields(part):
            if kind == _DOMAIN and value not in _OWN_DOMAINS:
                yield "operations of another kind than ONNX's"
            if kind == _ATTRIBUTE:
                for inner, held in _fields(value):
                    if inner in (_SUBGRAPH, _SUBGRAPHS):
                        yield "a graph within the graph"
                    if inner in (_TENSOR, _TENSORS):
                        yield from _outside(held)


def _outside(tensor: bytes | int) -> Iterator[str]:
    for number, value in _fields(tensor):
        if number == _EXTERNAL or (number == _LOCATION and value):
            yield "numbers in another file"


def _fields(raw: bytes | int) -> Iterator[tuple[int, bytes | int]]:
    """Fields of a message of protobuf: number, and bytes or a number."""
    if isinstance(raw, int):
        raise ValueError("a part of it is a number")
    position = 0
    while position < len(raw):
        key, position = _varint(raw, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(raw, position)
            yield number, value
            continue
        if kind == 2:
            size, position = _varint(raw, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"it has a field of the unknown kind {kind}")
        if position + size > len(raw):
            raise ValueError("it ends in the middle of a field")
        yield number, raw[position : position + size]
        position += size


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        value, position = value | (byte & 127) << shift, position + 1
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("it has a number of more than 64 bits")
