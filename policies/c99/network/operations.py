"""The operations of a network as lines of C99, each for a single row.

Entries of a value are one flat array: with one world every axis but the last has length one in the
networks of this package; where it has not, the checks of sizes refuse.
NaN goes through every operation, so that the check of the action sees it.
"""

from collections.abc import Callable

import numpy as np

from policies.c99.literals import number
from policies.c99.network.graph import Graph, Node
from policies.c99.network.moves import MOVES
from policies.c99.network.products import PRODUCTS, product_lines
from policies.c99.network.statements import Places, constant, indented, loop, shape_error
from robot_rl.core.errors import ConfigError

_UNARY = {
    "Abs": "fabsf({0})",
    "Cos": "cosf({0})",
    "Elu": "{0} < 0.0f ? {alpha} * expm1f({0}) : {0}",
    "Erf": "erff({0})",
    "Exp": "expf({0})",
    "Gelu": "0.5f * {0} * (1.0f + erff({0} * 0.70710678f))",
    "LeakyRelu": "{0} < 0.0f ? {alpha} * {0} : {0}",
    "Log": "logf({0})",
    "Neg": "-{0}",
    "Reciprocal": "1.0f / {0}",
    "Relu": "{0} < 0.0f ? 0.0f : {0}",
    "Sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "Sin": "sinf({0})",
    "Softplus": "({0} < 0.0f ? 0.0f : {0}) + log1pf(expf(-fabsf({0})))",
    "Sqrt": "sqrtf({0})",
    "Tanh": "tanhf({0})",
}
_BINARY = {
    "Add": "{0} + {1}",
    "Div": "{0} / {1}",
    "Mul": "{0} * {1}",
    "Pow": "powf({0}, {1})",
    "Sub": "{0} - {1}",
}
_ALPHA = {"Elu": 1.0, "LeakyRelu": 0.01}
"""Slopes where a node gives none."""
_REDUCTIONS = {
    # operation: what is summed, what becomes of the sum over {n} entries
    "ReduceL2": ("{x} * {x}", "sqrtf(sum)"),
    "ReduceMean": ("{x}", "sum / {n}"),
    "ReduceSum": ("{x}", "sum"),
    "ReduceSumSquare": ("{x} * {x}", "sum"),
}
ELEMENTWISE = (*_UNARY, *_BINARY, "Clip")
"""Operations whose entry i reads entry i only: they may write over what they read."""
KNOWN = sorted([*ELEMENTWISE, *_REDUCTIONS, *MOVES, *PRODUCTS, "LayerNormalization"])
"""Operations that can be written."""


def lines_of(node: Node, graph: Graph, places: Places) -> list[str]:
    """Statements that compute the outputs of an operation; not of those in `MOVES`.

    Raises:
        ConfigError: It has no form in C99, or one for other shapes only.
    """
    write: Callable[[Node, Graph, Places], list[str]]
    if node.kind in PRODUCTS:
        write = product_lines
    elif node.kind in _REDUCTIONS:
        write = _reduction
    elif node.kind == "LayerNormalization":
        write = _layer_norm
    elif node.kind in ELEMENTWISE:
        write = _elementwise
    else:
        raise ConfigError(
            f"the network's operation {node.kind} ({node.name}) has no form in C99 here; known: "
            f"{', '.join(KNOWN)}"
        )
    return write(node, graph, places)


def _elementwise(node: Node, graph: Graph, places: Places) -> list[str]:
    size = graph.size(node.outputs[0])
    operands = [_entry(name, node, graph, places, size) for name in node.inputs if name]
    if node.kind == "Clip":
        text = _clip(node, graph, operands[0])
    else:
        pattern = (_UNARY | _BINARY)[node.kind]
        if node.attributes.get("approximate") == b"tanh":
            pattern = (
                "0.5f * {0} * (1.0f + tanhf(0.79788456f * {0} * (1.0f + 0.044715f * {0} * {0})))"
            )
        alpha = number(node.attributes.get("alpha", _ALPHA.get(node.kind, 0.0)))
        text = pattern.format(*operands, alpha=alpha)
    return loop(size, f"{places[node.outputs[0]]}[i] = {text};")


def _entry(name: str, node: Node, graph: Graph, places: Places, size: int) -> str:
    """Entry i of an operand; one entry stands for all, as in ONNX."""
    if graph.size(name) == 1 and name in graph.constants:
        return number(float(graph.constants[name].reshape(-1)[0]))
    if graph.size(name) not in (1, size):
        raise shape_error(node, graph)
    return f"{places[name]}[{'i' if graph.size(name) == size else 0}]"


def _clip(node: Node, graph: Graph, value: str) -> str:
    text = value
    for position, sign in ((1, "<"), (2, ">")):
        if len(node.inputs) > position and node.inputs[position]:
            bound = float(constant(node, graph, position).reshape(-1)[0])
            if np.isfinite(bound):
                limit = number(bound)
                text = f"{value} {sign} {limit} ? {limit} : {text}"
    return text


def _reduction(node: Node, graph: Graph, places: Places) -> list[str]:
    (source, *_), (target,) = node.inputs, node.outputs
    if graph.size(target) != 1:
        raise shape_error(node, graph)
    term, result = _REDUCTIONS[node.kind]
    size = graph.size(source)
    return [
        "{",
        "    float sum = 0.0f;",
        *indented(loop(size, f"sum += {term.format(x=f'{places[source]}[i]')};")),
        f"    {places[target]}[0] = {result.format(n=number(size))};",
        "}",
    ]


def _layer_norm(node: Node, graph: Graph, places: Places) -> list[str]:
    source, target = node.inputs[0], node.outputs[0]
    size = graph.size(source)
    if graph.shapes[source][-1] != size or node.attributes.get("axis", -1) not in (
        -1, len(graph.shapes[source]) - 1,
    ):  # fmt: skip
        raise shape_error(node, graph)
    x, n = f"{places[source]}[i]", number(size)
    value = f"({x} - mean) * scale"
    for name, sign in zip(node.inputs[1:], "*+", strict=False):
        value += f" {sign} {_entry(name, node, graph, places, size)}" if name else ""
    epsilon = number(node.attributes.get("epsilon", 1e-5))
    body = [
        "float mean = 0.0f, square = 0.0f;",
        *loop(size, f"mean += {x};"),
        f"mean /= {n};",
        *loop(size, f"square += ({x} - mean) * ({x} - mean);"),
        f"const float scale = 1.0f / sqrtf(square / {n} + {epsilon});",
        *loop(size, f"{places[target]}[i] = {value};"),
    ]
    return ["{", *indented(body), "}"]
