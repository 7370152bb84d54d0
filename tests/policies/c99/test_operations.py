"""Every operation in C gives what onnxruntime gives, and those without a form are named."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from policies.c99.network import KNOWN
from policies.runner import open_network
from robot_rl.core.errors import ConfigError

RunInC = Callable[[onnx.ModelProto, np.ndarray], np.ndarray]
WIDTH = 6
ROW = np.array([0.5, 2.0, 1.5, 0.25, 3.0, 1.0], np.float32)
MATRIX = np.linspace(-1, 1, 5 * WIDTH, dtype=np.float32).reshape(5, WIDTH)


def model_of(*nodes: onnx.NodeProto, **constants: Any) -> onnx.ModelProto:
    """Network `actor` (worlds, 6) -> `action`; integers become indices, the rest float32."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    initializers = [
        numpy_helper.from_array(
            value if value.dtype == np.int64 else value.astype(np.float32), name
        )
        for name, value in arrays.items()
    ]
    actor = helper.make_tensor_value_info("actor", TensorProto.FLOAT, ["worlds", WIDTH])
    action = onnx.ValueInfoProto(name="action")
    graph = helper.make_graph(nodes, "network", [actor], [action], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def then(kind: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    """The last operation."""
    return helper.make_node(kind, inputs, ["action"], **attributes)


def one(kind: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    """The only operation."""
    return then(kind, "actor", *inputs, **attributes)


CASES: dict[str, tuple[Sequence[onnx.NodeProto], dict[str, Any]]] = {
    **{
        kind: ([one(kind)], {})
        for kind in (
            "Abs", "Cos", "Elu", "Erf", "Exp", "Gelu", "Identity", "LeakyRelu", "Neg", "Reciprocal",
            "Relu", "Sigmoid", "Sin", "Softplus", "Tanh",
        )
    },
    **{kind: ([one(kind, "c")], {"c": ROW}) for kind in ("Add", "Div", "Mul", "Sub")},
    "Elu, steeper": ([one("Elu", alpha=0.5)], {}),
    "Gelu by tanh": ([one("Gelu", approximate="tanh")], {}),
    "Pow": ([one("Pow", "c")], {"c": 2.0}),
    "Sqrt": ([helper.make_node("Abs", ["actor"], ["x"]), then("Sqrt", "x")], {}),
    "Log": ([helper.make_node("Exp", ["actor"], ["x"]), then("Log", "x")], {}),
    "one entry for all": ([then("Sub", "c", "actor")], {"c": 0.5}),
    "Clip": ([one("Clip", "low", "high")], {"low": -0.3, "high": 0.6}),
    "Clip above": ([one("Clip", "", "high")], {"high": 0.2}),
    "ReduceMean": ([one("ReduceMean", "axis")], {"axis": [-1]}),
    "ReduceSum": ([one("ReduceSum", "axis")], {"axis": [1]}),
    "ReduceL2": ([one("ReduceL2", "axis")], {"axis": [-1]}),
    "ReduceSumSquare": ([one("ReduceSumSquare", "axis", keepdims=0)], {"axis": [-1]}),
    "Softmax": ([one("Softmax")], {}),
    "TopK": ([helper.make_node("TopK", ["actor", "k"], ["action", "unread"])], {"k": [4]}),
    "TopK of all": ([helper.make_node("TopK", ["actor", "k"], ["action", "unread"])], {"k": [6]}),
    "GreaterOrEqual": (
        [
            helper.make_node("GreaterOrEqual", ["actor", "c"], ["x"]),
            then("Cast", "x", to=TensorProto.FLOAT),
        ],
        {"c": 0.1},
    ),
    "LayerNormalization": ([one("LayerNormalization", "s", "b")], {"s": ROW, "b": -ROW}),
    "MatMul": ([one("MatMul", "w")], {"w": MATRIX.T}),
    "Gemm": ([one("Gemm", "w", "b", transB=1, alpha=0.5, beta=2.0)], {"w": MATRIX, "b": ROW[:5]}),
    "Slice": ([one("Slice", "a", "b", "axis")], {"a": [1], "b": [4], "axis": [1]}),
    "Slice backwards": (
        [one("Slice", "a", "b", "axis", "step")], {"a": [5], "b": [0], "axis": [1], "step": [-2]}
    ),
    "Gather": ([one("Gather", "index", axis=1)], {"index": [4, 0, 0, 5]}),
    "Concat": ([then("Concat", "c", "actor", "actor", axis=1)], {"c": [ROW]}),
    "Pad": ([one("Pad", "pads", "c")], {"pads": [0, 1, 0, 2], "c": 3.0}),
    "Pad with zeros": ([one("Pad", "pads")], {"pads": [0, 2, 0, 0]}),
    "Reshape and Transpose": (
        [
            helper.make_node("Reshape", ["actor", "shape"], ["x"]),
            helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]),
            then("Reshape", "y", "back"),
        ],
        {"shape": [2, 3], "back": [1, 6]},
    ),
    "Split": (
        [
            helper.make_node("Split", ["actor"], ["x", "y"], axis=1, num_outputs=2),
            then("Div", "y", "x"),
        ],
        {},
    ),
    "a value that is needed twice is not overwritten": (
        [
            helper.make_node("Tanh", ["actor"], ["x"]),
            helper.make_node("Relu", ["x"], ["y"]),
            helper.make_node("Mul", ["y", "x"], ["z"]),
            helper.make_node("ReduceMean", ["z", "axis"], ["mean"]),
            then("Sub", "x", "mean"),
        ],
        {"axis": [-1]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_operation_gives_what_onnxruntime_gives_and_hides_no_nan(case, run_in_c):
    nodes, constants = CASES[case]
    model = model_of(*nodes, **constants)
    row = np.random.default_rng(0).standard_normal((1, WIDTH)).astype(np.float32)
    (expected,) = open_network(model.SerializeToString()).run(None, {"actor": row})
    found, of_nan = run_in_c(model, np.concatenate([row, np.full_like(row, np.nan)]))
    np.testing.assert_allclose(found, np.ravel(np.asarray(expected)), rtol=2e-6, atol=1e-6)
    if case in (
        "Relu", "Tanh", "Elu", "Gelu", "Sigmoid", "Softplus", "Clip", "MatMul", "Softmax", "TopK",
    ):  # fmt: skip
        assert np.isnan(of_nan).all()


def test_every_operation_that_is_said_to_be_known_is_tried():
    tried = {node.op_type for nodes, _ in CASES.values() for node in nodes}
    elsewhere = {"Expand", "Flatten", "Squeeze", "Tile", "Unsqueeze"}  # as Reshape, Gather
    assert tried | elsewhere == set(KNOWN)


@pytest.mark.parametrize(
    ("nodes", "constants", "told"),
    [
        ([one("Sinh")], {}, "operation Sinh (action) has no form in C99 here; known: Abs"),
        (
            [helper.make_node("Transpose", ["actor"], ["x"]), one("MatMul", "x")],
            {},
            "MatMul (action) gets 'x' from the observation",
        ),
        (
            [helper.make_node("Reshape", ["actor", "shape"], ["x"]),
             then("ReduceSum", "x", "axis")],
            {"shape": [2, 3], "axis": [1]},
            "has shapes (2, 3), (1,), (2, 1), which have no form",
        ),
        ([one("Cast", to=TensorProto.DOUBLE)], {}, "makes float64 ('action')"),
        ([one("Mul", "c")], {"c": np.inf}, "a constant of the policy is inf"),
    ],
)  # fmt: skip
def test_what_has_no_form_is_named(nodes, constants, told, run_in_c):
    with pytest.raises(ConfigError) as refused:
        run_in_c(model_of(*nodes, **constants), np.zeros((1, WIDTH), np.float32))
    assert told in str(refused.value)
