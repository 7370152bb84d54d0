"""Operations that carry entries from place to place, whatever they are called."""

from collections.abc import Mapping

import numpy as np

from policies.c99.network.graph import Graph, Node
from policies.c99.network.statements import Places, loop

MOVES = (
    "Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""The operations in ONNX."""
Run = tuple[str, int, int, int]
"""Entries in a row: source (empty for zeros), first entry, step, count."""


def moved(node: Node, graph: Graph) -> dict[str, list[Run]]:
    """What an operation that only moves entries does, found by moving numbered ones.

    Returns:
        By output, the runs that it consists of, in order.
    """
    numbered, first = {**graph.constants}, dict[str, int]()
    count = 1  # 0 is what a padding adds
    for name in dict.fromkeys(filter(None, node.inputs)):
        if name in graph.constants and graph.constants[name].dtype != np.float32:
            continue
        shape = graph.constants[name].shape if name in graph.constants else graph.shapes[name]
        size = graph.size(name)
        numbered[name] = np.arange(count, count + size, dtype=np.float32).reshape(shape)
        first[name] = count
        count += size
    results = node.run(numbered)
    return {
        name: _runs(value.ravel().astype(int), first)
        for name, value in zip(node.outputs, results, strict=True)
    }


def copy_lines(runs: list[Run], places: Places, target: str) -> list[str]:
    """Statements that carry runs of entries into an array."""
    lines, at = list[str](), 0
    for source, start, step, count in runs:
        value = f"{places[source]}[{_index(start, step)}]" if source else "0.0f"
        lines += loop(count, f"{target}[{_index(at, 1)}] = {value};")
        at += count
    return lines


def _index(start: int, step: int) -> str:
    """Entry of a run in iteration i."""
    parts = [str(start)] if start or not step else []
    if step:
        parts.append("i" if step == 1 else f"{step} * i")
    return " + ".join(parts)


def _runs(entries: np.ndarray, first: Mapping[str, int]) -> list[Run]:
    """Split numbered entries where the source or the step changes."""
    starts = sorted((number, name) for name, number in first.items())
    runs: list[Run] = []
    for entry in entries:
        source, begin = "", 0
        if entry:
            begin, source = max(pair for pair in starts if pair[0] <= entry)
        position = int(entry) - begin
        if runs and runs[-1][0] == source:
            _, start, step, count = runs[-1]
            if count == 1 or position == start + step * count:
                runs[-1] = (source, start, position - start if count == 1 else step, count + 1)
                continue
        runs.append((source, position, 1, 1))
    return runs
