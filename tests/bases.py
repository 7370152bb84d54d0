"""Base policies for tests: ONNX files of a few numbers, and what they do computed by hand."""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from policies.networks.frozen import FrozenBase, read_base
from policies.networks.residual import FrozenBaseConfig
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import BatchEnv, EnvSpec

INTERVAL = 2
"""Actions of a chunk that are done."""


def write_base(
    path: Path, obs_size: int, action_size: int, length: int = 3, seed: int = 0, *,
    operations: int = 20, worlds: int | str = "worlds", all_weights: float | None = None,
) -> Path:  # fmt: skip
    """A network that plans `length` actions, linear in what it observes.

    Args:
        path: Where it is written.
        obs_size: D.
        action_size: A.
        length: H.
        seed: Of its weights.
        operations: Version of ONNX's operations.
        worlds: First dimension; a number fixes it.
        all_weights: What every weight is; None draws them.
    """
    weight = linear(obs_size, action_size, length, seed)
    if all_weights is not None:
        weight.fill(all_weights)
    shape = np.array([-1, length, action_size], np.int64)
    nodes = [
        helper.make_node("MatMul", ["actor", "weight"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["action"]),
    ]
    graph = helper.make_graph(
        nodes, "base",
        [helper.make_tensor_value_info("actor", TensorProto.FLOAT, [worlds, obs_size])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT,
                                       [worlds, length, action_size])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(shape, "shape")],
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", operations)], ir_version=8
    )
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def linear(obs_size: int, action_size: int, length: int = 3, seed: int = 0) -> np.ndarray:
    """The weights of `write_base`, (D, H * A)."""
    random = np.random.default_rng(seed)
    return (0.2 * random.normal(size=(obs_size, length * action_size))).astype(np.float32)


def frozen(paths: list[Path], spec: EnvSpec, count: int, **config: Any) -> FrozenBase:
    """The base of these files for some worlds."""
    settings = FrozenBaseConfig(paths=[str(p) for p in paths], replan_interval=INTERVAL, **config)
    return FrozenBase(read_base(settings, spec, None), count, spec.action_size)


class ByHand:
    """One world of a base of `write_base`: told when an episode starts, it acts by the rules."""

    def __init__(self, obs_size: int, action_size: int, length: int = 3, seed: int = 0) -> None:
        self._weight = linear(obs_size, action_size, length, seed)
        self._shape = (length, action_size)
        self._left: list[np.ndarray] = []

    def start(self) -> None:
        """Forget the plan."""
        self._left = []

    def act(self, actor: torch.Tensor) -> np.ndarray:
        """(A,) for (D,)."""
        if not self._left:
            plan = (actor.numpy() @ self._weight).reshape(self._shape)
            self._left = list(plan[:INTERVAL])
        return self._left.pop(0).clip(-1, 1)


def based(env: BatchEnv) -> BaseActionEnv:
    """Worlds with a base that plans three actions and does two."""
    sizes = math.prod(env.spec.groups["actor"].shape), env.spec.action_size
    with tempfile.TemporaryDirectory() as folder:
        path = write_base(Path(folder) / "base.onnx", *sizes)
        return BaseActionEnv(env, frozen([path], env.spec, env.spec.num_envs))
