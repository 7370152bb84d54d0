"""What the operations share: places, loops, constant operands, and the error about shapes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from policies.c99.literals import INDENT
from policies.c99.network.graph import Graph, Node
from robot_rl.core.errors import ConfigError

Places = Mapping[str, str]
"""Where the entries of a value are: an array in C."""


def constant(node: Node, graph: Graph, position: int) -> np.ndarray:
    """An operand that must not depend on the observation."""
    name = node.inputs[position]
    if name not in graph.constants:
        raise ConfigError(
            f"the network's operation {node.kind} ({node.name}) gets '{name}' from the "
            "observation; in C99 only its first operand may depend on it"
        )
    return graph.constants[name]


def shape_error(node: Node, graph: Graph) -> ConfigError:
    """What to say where an operation is not on rows."""
    known: dict[str, Any] = {**graph.shapes, **{k: v.shape for k, v in graph.constants.items()}}
    shapes = ", ".join(str(known[name]) for name in [*node.inputs, *node.outputs] if name)
    return ConfigError(
        f"the network's operation {node.kind} ({node.name}) has shapes {shapes}, which have no "
        "form in C99 here: a row, or one entry for all of it, has"
    )


def loop(count: int, body: str) -> list[str]:
    """A statement for every i."""
    return [f"for (int i = 0; i < {count}; ++i) {{", f"    {body}", "}"]


def indented(lines: list[str]) -> list[str]:
    """Lines one level deeper."""
    return [f"{INDENT}{line}" if line else line for line in lines]
