"""Reads the network of a bundle: which operations a row of observations goes through.

A graph has static shapes once the number of worlds is one. They are found by running every
operation on one row with onnxruntime, so that no rule of shapes is written down a second time. What
does not depend on the row is computed here and becomes a constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from policies.runner import open_network
from robot_rl.core.errors import ConfigError

_OF_SHAPES = ("Shape", "Size")
"""Operations whose result is a constant although their input is none."""


class Node:
    """One operation."""

    def __init__(self, proto: onnx.NodeProto, model: onnx.ModelProto) -> None:
        """Read it as one of a model."""
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
    for proto in model.graph.node:
        node = Node(proto, model)
        made = dict(zip(node.outputs, node.run({**constants, **row}), strict=True))
        if node.kind in _OF_SHAPES or not any(name in row for name in node.inputs):
            constants |= made
            continue
        for name, value in made.items():
            if value.dtype != np.float32:
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
