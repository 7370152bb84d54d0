"""Products of a constant matrix and a row."""

import numpy as np

from policies.c99.network.graph import Graph, Node
from policies.c99.network.statements import Places, constant, shape_error

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
