"""A nested training state as a JSON tree and a flat dict of tensors, and back, without pickle.

Plain JSON stays readable; what it cannot say is tagged by an object with one `$` key: `$tensor`
(name in the safetensors file), `$tuple`, `$float` (`inf`, `-inf`, `nan`) and `$dict` (pairs, for
keys that are not plain strings: optimisers count their parameters with integers). Floats and
integers of any size come back exactly (Python writes the shortest digits that do), tensors bit by
bit. A tensor that appears twice is stored twice: the tree has values, not identities.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import CheckpointError


def flatten(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a state into what JSON and safetensors can hold.

    Args:
        state: Dicts (string or integer keys), lists and tuples of tensors, ints, floats, bools,
            strings and None.

    Returns:
        The tree, and the tensors by name: detached, contiguous, on the CPU, none sharing memory
        with another (those on the CPU may share it with the state: write before it changes).

    Raises:
        TypeError: The state holds something else; the message says where.
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(state, "", tensors, set()), tensors


def restore(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Inverse of `flatten`; the tensors are on the CPU.

    Raises:
        CheckpointError: The tree names a tensor that is not there, or a tag that is not known.
    """
    if isinstance(tree, list):
        return [restore(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next(iter(tree), "")
    if not tag.startswith("$"):
        return {key: restore(value, tensors) for key, value in tree.items()}
    content = tree[tag]
    if tag == "$tuple":
        return tuple(restore(item, tensors) for item in content)
    if tag == "$dict":
        return {restore(key, tensors): restore(value, tensors) for key, value in content}
    if tag == "$float":
        return float(content)
    if tag == "$tensor" and content in tensors:
        return tensors[content]
    raise CheckpointError(f"the state tree asks for {tag} '{content}', which is not there")


def _flatten(value: Any, where: str, tensors: dict[str, Tensor], storages: set[int]) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):  # numpy's float64 is one too
        number = float(value)
        return number if math.isfinite(number) else {"$float": str(number)}
    if isinstance(value, Tensor):
        name = where
        while name in tensors:  # keys with slashes, and the integer 1 beside the string "1"
            name += "#"
        tensors[name] = _own(value, storages)
        return {"$tensor": name}
    if isinstance(value, (list, tuple)):
        items = [_flatten(v, f"{where}/{i}", tensors, storages) for i, v in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        pairs = [(k, _flatten(v, f"{where}/{k}", tensors, storages)) for k, v in value.items()]
        if all(type(key) is str and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        return {"$dict": [[_flatten(k, where, tensors, storages), item] for k, item in pairs]}
    raise TypeError(
        f"the state at '{where or '/'}' is a {type(value).__module__}.{type(value).__qualname__}; "
        "a checkpoint holds tensors, ints, floats, bools, strings, None, dicts, lists and tuples"
    )


def _own(tensor: Tensor, storages: set[int]) -> Tensor:
    """Contiguous CPU tensor in a storage that no earlier one uses (safetensors refuses aliases)."""
    host = tensor.detach().to("cpu").contiguous()
    address = host.untyped_storage().data_ptr()
    if address in storages:
        host = host.clone(memory_format=torch.contiguous_format)
        address = host.untyped_storage().data_ptr()
    storages.add(address)
    return host
