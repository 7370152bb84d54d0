"""One ONNX graph of several: networks whose outputs are inputs of another one."""

import onnx
from onnx import compose, version_converter

from robot_rl.core.errors import BundleError

_OWN = ("", "ai.onnx")
"""Names of the domain of ONNX's own operations."""
OPERATIONS = 20
"""Version of ONNX's operations that bundles are written in."""


def in_our_operations(network: bytes, whose: str) -> bytes:
    """The same network in the version of the operations that bundles are written in.

    Raises:
        BundleError: It cannot be written so.
    """
    model = onnx.load_from_string(network)
    version = max((one.version for one in model.opset_import if one.domain in _OWN), default=0)
    if version == OPERATIONS:
        return network
    try:
        if model.functions:
            raise ValueError("it has functions of its own")
        converted = version_converter.convert_version(model, OPERATIONS)
        onnx.checker.check_model(converted)
    except Exception as error:  # the converter's own kinds have no common parent
        raise BundleError(
            f"{whose} is written in version {version} of ONNX's operations, bundles in "
            f"{OPERATIONS}, and cannot be converted ({str(error).splitlines()[0]}); write it "
            f"again with opset_version={OPERATIONS}"
        ) from error
    return converted.SerializeToString()


def join(head: bytes, inner: list[bytes], inputs: list[str]) -> bytes:
    """Put networks, observation groups -> `action`, in front of a graph that reads their actions.

    Args:
        head: Reads all groups, a state, and the inner networks' actions.
        inputs: Names of the inputs of `head` that their actions become.

    Raises:
        BundleError: One was written for another set of operations.
    """
    whole = onnx.load_from_string(head)
    for number, raw in enumerate(inner):
        part = compose.add_prefix(onnx.load_from_string(raw), f"base_{number}/")
        _check_operations(part, whole, number)
        graph, name = part.graph, inputs[number]
        groups = [one.name for one in graph.input]
        renamed = {one: one.removeprefix(f"base_{number}/") for one in groups}
        renamed[f"base_{number}/action"] = name
        for node in graph.node:
            node.input[:] = [renamed.get(one, one) for one in node.input]
            node.output[:] = [renamed.get(one, one) for one in node.output]
        kept = [one for one in whole.graph.input if one.name != name]
        nodes = [*graph.node, *whole.graph.node]
        whole.graph.ClearField("input")
        whole.graph.ClearField("node")
        whole.graph.input.extend(kept)
        whole.graph.node.extend(nodes)
        whole.graph.initializer.extend(graph.initializer)
        whole.functions.extend(part.functions)
    onnx.checker.check_model(whole)
    return whole.SerializeToString()


def _check_operations(part: onnx.ModelProto, whole: onnx.ModelProto, number: int) -> None:
    own = {one.domain: one.version for one in whole.opset_import}
    for one in part.opset_import:
        if own.setdefault(one.domain, one.version) != one.version:
            raise BundleError(
                f"policy {number} of the base was written for version {one.version} of the "
                f"operations of '{one.domain or 'ai.onnx'}', the residual for {own[one.domain]}; "
                "export the base again with the torch that is installed here"
            )
        if one.domain not in {have.domain for have in whole.opset_import}:
            whole.opset_import.append(one)
