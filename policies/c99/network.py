"""The network of a bundle as one function in C99: its operations, each for a single row.

The graph has static shapes once the number of worlds is one. They are found by running every
operation on one row with onnxruntime, so that no rule of shapes is written down a second time. What
does not depend on the row is computed here and becomes a constant.

Entries of a value are one flat array: with one world every axis but the last has length one in the
networks of this package; where it has not, the checks of sizes refuse. What is true is 1, what is
false 0.
NaN goes through every operation, so that the check of the action sees it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from policies.c99.literals import array, indented, loop, number
from policies.runner import open_network
from robot_rl.core.errors import ConfigError

_OF_SHAPES = ("Shape", "Size")
"""Operations whose result is a constant although their input is none."""


class Node:
    """One operation."""

    def __init__(self, proto: onnx.NodeProto, model: onnx.ModelProto) -> None:
        self.kind = proto.op_type
        """Name of the operation in ONNX."""
        self.name = proto.name or proto.output[0]
        """Name of this one, for messages."""
        self.inputs: list[str] = list(proto.input)
        """Values that it reads; an empty name is an optional one that is left out."""
        self.outputs: list[str] = [name for name in proto.output if name]
        """Values that it makes."""
        if proto.domain not in ("", "ai.onnx") or any(a.HasField("g") for a in proto.attribute):
            raise ConfigError(
                f"the network's operation '{proto.domain}:{self.kind}' ({self.name}) has no form "
                "in C99 here: only operations of ONNX itself without branches and loops have"
            )
        self.attributes: dict[str, Any] = {
            a.name: helper.get_attribute_value(a) for a in proto.attribute
        }
        """Its settings; texts are bytes."""
        self._proto, self._model = proto, model

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs for the values of the inputs, by name."""
        feed = {name: values[name] for name in self.inputs if name}
        given = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in feed.items()
        ]
        made = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        alone = helper.make_model(
            helper.make_graph([self._proto], "one", given, made),
            opset_imports=list(self._model.opset_import),
            ir_version=self._model.ir_version,
        )
        results = open_network(alone.SerializeToString()).run(None, feed)
        return [np.asarray(result) for result in results]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A network for one row."""

    nodes: list[Node]
    """Operations on what depends on the inputs, in order."""
    constants: dict[str, np.ndarray]
    """Weights, settings and what follows from them alone."""
    shapes: dict[str, tuple[int, ...]]
    """Shape of everything that depends on the inputs, by name."""
    inputs: list[str]
    """`actor`, and `state` where there is one."""
    outputs: list[str]
    """`action`, and `next_state` where there is one."""

    def size(self, value: str) -> int:
        """Number of entries of a value."""
        shape = self.constants[value].shape if value in self.constants else self.shapes[value]
        return int(np.prod(shape))


def read_graph(network: bytes) -> Graph:
    """Read `policy.onnx`, whose inputs are (worlds, width).

    Raises:
        ConfigError: It has operations of other domains, branches, or values that are not float32.
    """
    model = onnx.load_from_string(network)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    row = {
        value.name: _example(value) for value in model.graph.input if value.name not in constants
    }
    inputs, nodes = list(row), list[Node]()
    used = {name for proto in model.graph.node for name in proto.input}
    used |= {value.name for value in model.graph.output}
    for proto in model.graph.node:
        node = Node(proto, model)
        made = dict(zip(node.outputs, node.run({**constants, **row}), strict=True))
        if node.kind in _OF_SHAPES or not any(name in row for name in node.inputs):
            constants |= made
            continue
        for name, value in made.items():
            if value.dtype != np.float32 and value.dtype != np.bool_ and name in used:
                raise ConfigError(
                    f"the network's operation {node.kind} ({node.name}) makes {value.dtype} "
                    f"('{name}'); C99 is written for float32 only"
                )
        row |= made
        nodes.append(node)
    shapes = {name: tuple(value.shape) for name, value in row.items()}
    outputs = [value.name for value in model.graph.output]
    return Graph(nodes=nodes, constants=constants, shapes=shapes, inputs=inputs, outputs=outputs)


def _example(value: onnx.ValueInfoProto) -> np.ndarray:
    """One row of plausible numbers; only its shape matters."""
    sizes = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)


Places = Mapping[str, str]
"""Arrays in C that hold the entries of values."""


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
    """Error about an operation that is not on rows."""
    known: dict[str, Any] = {**graph.shapes, **{k: v.shape for k, v in graph.constants.items()}}
    shapes = ", ".join(str(known[name]) for name in [*node.inputs, *node.outputs] if name)
    return ConfigError(
        f"the network's operation {node.kind} ({node.name}) has shapes {shapes}, which have no "
        "form in C99 here: a row, or one entry for all of it, has"
    )


PRODUCTS = ("Gemm", "MatMul")
"""The operations in ONNX."""
_ROWS = 4
"""Rows of a matrix that are summed side by side by `dense_function`."""


def weights_of(node: Node, graph: Graph) -> dict[str, np.ndarray]:
    """Arrays of a matrix product as they are stored in C: blocked weights and the bias.

    The rows of the matrix lie in blocks of `_ROWS`, interleaved and filled up with zeros.
    """
    matrix = np.asarray(constant(node, graph, 1))
    alpha = node.attributes.get("alpha", 1.0) if node.kind == "Gemm" else 1.0
    beta = node.attributes.get("beta", 1.0)
    if node.attributes.get("transA") or matrix.ndim != 2:
        raise shape_error(node, graph)
    rows = matrix if node.attributes.get("transB") else matrix.T  # (outputs, inputs)
    outputs, inputs = rows.shape
    if graph.size(node.inputs[0]) != inputs or graph.size(node.outputs[0]) != outputs:
        raise shape_error(node, graph)
    blocks = -(-outputs // _ROWS)
    padded = np.zeros((blocks * _ROWS, inputs), np.float32)
    padded[:outputs] = np.float32(alpha) * rows
    bias = np.zeros(outputs, np.float32)
    if len(node.inputs) > 2 and node.inputs[2]:
        bias[:] = np.float32(beta) * constant(node, graph, 2).reshape(-1)
    weights = padded.reshape(blocks, _ROWS, inputs).transpose(0, 2, 1)  # (blocks, inputs, _ROWS)
    return {"weights": weights.reshape(-1), "bias": bias}


def dense_function() -> list[str]:
    """The function in C that `Gemm` and `MatMul` call."""
    sums = [f"sum{k}" for k in range(_ROWS)]
    return [
        "/* y = W x + bias. The rows of W lie in blocks, interleaved: their sums run side by side,",
        "   in the order of the inputs. The last block is filled up with zeros. */",
        "static void dense(const float *restrict w, const float *restrict bias,",
        "                  const float *restrict x, int inputs, float *restrict y, int outputs)",
        "{",
        f"    for (int row = 0; row < outputs; row += {_ROWS}) {{",
        f"        float {', '.join(f'{name} = 0.0f' for name in sums)};",
        f"        for (int i = 0; i < inputs; ++i, w += {_ROWS}) {{",
        *(f"            {name} += w[{k}] * x[i];" for k, name in enumerate(sums)),
        "        }",
        f"        const float sums[{_ROWS}] = {{{', '.join(sums)}}};",
        f"        for (int k = 0; k < {_ROWS} && row + k < outputs; ++k) {{",
        "            y[row + k] = sums[k] + bias[row + k];",
        "        }",
        "    }",
        "}",
    ]


def product_lines(node: Node, graph: Graph, places: Places) -> list[str]:
    """The call; the arrays of `weights_of` have places named after the output."""
    name, source = node.outputs[0], node.inputs[0]
    arguments = [
        places[f"{name}/weights"], places[f"{name}/bias"], places[source],
        str(graph.size(source)), places[name], str(graph.size(name)),
    ]  # fmt: skip
    return [f"dense({', '.join(arguments)});"]


MOVES = (
    "Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""The operations in ONNX."""
Run = tuple[str, int, int, int]
"""Entries in a row: source (empty for zeros), first entry, step, count."""


def moved(node: Node, graph: Graph) -> dict[str, list[Run]]:
    """By output, the runs of entries that an operation moves, found by moving numbered ones."""
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
    "GreaterOrEqual": "{0} >= {1} ? 1.0f : 0.0f",
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


def _takes_a_row(node: Node, graph: Graph) -> bool:
    """True where a node's input is one row, and its axis the row."""
    shape = graph.shapes[node.inputs[0]]
    whole = shape[-1] == graph.size(node.inputs[0])
    return whole and node.attributes.get("axis", -1) in (-1, len(shape) - 1)


def _layer_norm(node: Node, graph: Graph, places: Places) -> list[str]:
    source, target = node.inputs[0], node.outputs[0]
    size = graph.size(source)
    if not _takes_a_row(node, graph):
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


def _softmax(node: Node, graph: Graph, places: Places) -> list[str]:
    source, target = node.inputs[0], node.outputs[0]
    size = graph.size(source)
    if not _takes_a_row(node, graph):
        raise shape_error(node, graph)
    x, y = f"{places[source]}[i]", f"{places[target]}[i]"
    body = [
        f"float largest = {places[source]}[0], sum = 0.0f;",
        *loop(size, f"largest = {x} > largest ? {x} : largest;"),
        *loop(size, f"{y} = expf({x} - largest);"),
        *loop(size, f"sum += {y};"),
        *loop(size, f"{y} /= sum;"),
    ]
    return ["{", *indented(body), "}"]


def _largest(node: Node, graph: Graph, places: Places) -> list[str]:
    """The values of `TopK`, in falling order; its indices have no form."""
    source, target = node.inputs[0], node.outputs[0]
    size, count = graph.size(source), graph.size(target)
    if not (node.attributes.get("largest", 1) and _takes_a_row(node, graph)):
        raise shape_error(node, graph)
    x, y = places[source], places[target]
    # Insertion into the list of those found so far; NaN goes to its front and stays.
    insertion = [
        f"float value = {x}[i];",
        f"for (int k = 0; k < {count} && k <= i; ++k) {{",
        f"    if (k == i || value > {y}[k] || value != value) {{",
        f"        const float other = k == i ? value : {y}[k];",
        f"        {y}[k] = value;",
        "        value = other;",
        "    }",
        "}",
    ]
    return [f"for (int i = 0; i < {size}; ++i) {{", *indented(insertion), "}"]


_FORMS: dict[str, Callable[[Node, Graph, Places], list[str]]] = {
    **dict.fromkeys(PRODUCTS, product_lines),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "LayerNormalization": _layer_norm,
    "Softmax": _softmax,
    "TopK": _largest,
}
"""Operation -> statements that compute its outputs."""
KNOWN = sorted([*_FORMS, *MOVES])
"""Operations that can be written."""
INPUT_PLACES = {"actor": "s->observation", "state": "s->recurrent"}
"""Inputs of a network in C; `s` is the state of an instance."""
_OUTPUT_PLACES = {"action": "action", "next_state": "s->recurrent"}


@dataclass(frozen=True, kw_only=True)
class NetworkSource:
    """A network in C."""

    constants: list[str]
    """Lines of its weights."""
    functions: list[str]
    """Lines of `run_network(state, action)` and of what it calls."""
    work: list[int]
    """Sizes of the arrays `work_<i>` of the state that it computes in."""


class NetworkWriter:
    """Gives every value of a graph a place, and writes its operations in order.

    Values that are no longer needed give their place away, so that memory is what the two or three
    widest layers take.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, name
        self._runs: dict[str, list[Run]] = {}
        self._source: dict[str, str] = {}  # a value that is another under a new name
        for node in graph.nodes:
            self._find_runs(node)
        last = {self._root(v): i for i, node in enumerate(graph.nodes) for v in node.inputs}
        self._last_use = last | {self._root(value): len(graph.nodes) for value in graph.outputs}
        self._places = _Places(graph)
        self._slots: dict[str, int] = {}  # value -> its work array
        self._alive: set[str] = set()
        self._work: list[int] = []
        self._free: set[int] = set()

    def write(self) -> NetworkSource:
        """The whole network."""
        body: list[str] = []
        for i, node in enumerate(self._graph.nodes):
            body += self._lines(i, node)
        for value in self._graph.outputs:
            source, target = self._place(value), _OUTPUT_PLACES[value]
            body += loop(self._graph.size(value), f"{target}[i] = {source}[i];")
        head = f"static void run_network({self._name}_state *s, float *action)"
        products = any(node.kind in PRODUCTS for node in self._graph.nodes)
        return NetworkSource(
            constants=self._places.arrays(),
            functions=[
                *([*dense_function(), ""] if products else []),
                *(head, "{", *indented(body), "}"),
            ],
            work=self._work,
        )

    def _find_runs(self, node: Node) -> None:
        if node.kind not in MOVES:
            return
        for name, runs in moved(node, self._graph).items():
            self._runs[name] = runs
            source = runs[0][0] if runs else ""
            if source in self._graph.shapes and runs == [(source, 0, 1, self._graph.size(source))]:
                self._source[name] = self._root(source)

    def _lines(self, index: int, node: Node) -> list[str]:
        made = [value for value in node.outputs if value not in self._source]
        self._release(index, self._overwritable(node))
        for value in made:
            self._take(value)
        if node.kind in PRODUCTS:
            layer = node.inputs[1].removesuffix(".weight")
            for part, weights in weights_of(node, self._graph).items():
                self._places.add(f"{node.outputs[0]}/{part}", f"{layer}_{part}", weights)
        for value in [*node.inputs, *node.outputs]:
            if value in self._graph.shapes:
                self._places[value] = self._place(value)
        lines = []
        if node.kind in MOVES:
            for value in made:
                lines += copy_lines(self._runs[value], self._places, self._places[value])
        elif node.kind in _FORMS:
            lines = _FORMS[node.kind](node, self._graph, self._places)
        else:
            raise ConfigError(
                f"the network's operation {node.kind} ({node.name}) has no form in C99 here; "
                f"known: {', '.join(KNOWN)}"
            )
        self._release(index, [*node.inputs, *node.outputs])
        return [f"/* {node.kind} */", *lines] if lines else []

    def _root(self, value: str) -> str:
        return self._source.get(value, value)

    def _place(self, value: str) -> str:
        root = self._root(value)
        if root in self._slots:
            return f"s->work_{self._slots[root]}"
        return INPUT_PLACES[root] if root in self._graph.inputs else self._places[root]

    def _overwritable(self, node: Node) -> list[str]:
        """Inputs whose place the output may take although it is still being read."""
        if node.kind not in ELEMENTWISE:
            return []
        size = self._graph.size(node.outputs[0])
        return [name for name in node.inputs if name and self._graph.size(name) == size]

    def _release(self, index: int, values: Iterable[str]) -> None:
        for root in map(self._root, values):
            if root in self._alive and self._last_use.get(root, index) == index:
                self._alive.remove(root)
                self._free.add(self._slots[root])

    def _take(self, value: str) -> None:
        size = self._graph.size(value)
        if not self._free:
            self._free.add(len(self._work))
            self._work.append(0)
        fitting = [slot for slot in self._free if self._work[slot] >= size]
        slot = min(fitting, key=self._work.__getitem__) if fitting else max(
            self._free, key=self._work.__getitem__
        )  # fmt: skip
        self._free.remove(slot)
        self._work[slot] = max(self._work[slot], size)
        self._slots[value] = slot
        self._alive.add(value)


class _Places(dict[str, str]):
    """Names of arrays in C; constants get one when they are first asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self._constants: dict[str, np.ndarray] = {}

    def __missing__(self, value: str) -> str:
        self.add(value, value, self._graph.constants[value].ravel())
        return self[value]

    def add(self, value: str, called: str, entries: np.ndarray) -> None:
        """Give entries a place whose name is like `called`."""
        name = plain = "w_" + re.sub(r"\W+", "_", called.removeprefix("policy."))
        copies = 1
        while name in self._constants:
            copies += 1
            name = f"{plain}_{copies}"
        self._constants[name] = entries
        self[value] = name

    def arrays(self) -> list[str]:
        """Lines of all constants."""
        return [line for name, v in self._constants.items() for line in array("float", name, v)]
