"""Rewards that are given as a function: written by a person or by a language model.

A file defines `reward(obs)` over the named terms of an observation, as Text2Reward (Xie et al.
2023, arXiv:2309.11489) and Eureka (Ma et al. 2023, arXiv:2310.12931) let a model write one. It is
read before it runs (`check_source`), and runs in a process of its own that refuses all but numbers
(`sandbox.py`).

A vision-language model with weights on this computer plugs in the same way, as a `RewardFunction`
over images.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import RewardError
from robot_rl.rewards.env import Value

ALLOWED_MODULES = ("math", "numpy")
"""Modules that a file may import."""
_REFUSED_NAMES = frozenset({
    "breakpoint", "compile", "delattr", "eval", "exec", "getattr", "globals", "input", "locals",
    "open", "setattr", "vars",
})  # fmt: skip
_REFUSED_ATTRIBUTES = frozenset({
    "ctypeslib", "distutils", "f2py", "fromfile", "fromregex", "genfromtxt", "lib", "load",
    "loadtxt", "memmap", "open_memmap", "save", "savetxt", "savez", "savez_compressed", "testing",
    "tofile", "dump",
})  # fmt: skip
"""Of numpy: ways to files, to other modules and to pickles."""


class RewardFunction(Protocol):
    """Rewards of N frames; the same for the same frames."""

    def __call__(self, obs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Rewards, (N,).

        Args:
            obs: Groups, (N, D), and each of their terms as `<group>/<term>`, (N, width).
        """
        ...


class FunctionJudge:
    """Judges steps of N envs by a function; remembers nothing, and never says success."""

    def __init__(self, function: RewardFunction, spec: EnvSpec) -> None:
        """Take the function and the layout of what it reads."""
        self._function, self._spec = function, spec

    def judge(self, obs: Obs) -> Value:
        """Rewards of the newest frames.

        Raises:
            RewardError: They are not finite, or of another shape.
        """
        given = named_terms({n: g.cpu().numpy() for n, g in obs.items()}, self._spec)
        count = len(next(iter(given.values())))
        reward = checked(self._function(given), count)
        none = torch.zeros(count, dtype=torch.bool, device=self._spec.device)
        return Value(
            reward=torch.from_numpy(reward).to(self._spec.device), success=none, uncertain=none
        )

    def begin(self, mask: Tensor) -> None:
        """Nothing is remembered."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is remembered."""


def named_terms(obs: Mapping[str, NDArray[Any]], spec: EnvSpec) -> dict[str, NDArray[Any]]:
    """Groups, and beside them each term as `<group>/<term>`, (N, width * history).

    A term that a group has twice, with two scales, is its first.
    """
    found = dict(obs)
    for group, values in obs.items():
        first = 0
        for term in spec.groups[group].terms:
            found.setdefault(f"{group}/{term.name}", values[:, first : first + term.size])
            first += term.size
    return found


def checked(reward: NDArray[Any], count: int) -> NDArray[np.float32]:
    """Rewards as float32, (N,).

    Raises:
        RewardError: They have another shape or are not finite.
    """
    value = np.asarray(reward, dtype=np.float32)
    if value.shape != (count,):
        raise RewardError(
            f"the reward function answered with shape {value.shape} about {count} frames; expected "
            f"({count},), one number a frame"
        )
    if not np.isfinite(value).all():
        frame = int(np.argmin(np.isfinite(value)))
        raise RewardError(
            f"the reward function answered {value[frame]} about frame {frame} of {count}; expected "
            "finite numbers"
        )
    return value


def check_source(path: Path) -> str:
    """Text of a file with `reward(obs)` that imports and names nothing it need not.

    Raises:
        RewardError: The file is missing, is no Python, defines no such function, or reaches for
            more than numbers; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError) as error:
        raise RewardError(f"the reward function {path} cannot be read: {error}") from None
    except SyntaxError as error:
        raise RewardError(
            f"the reward function {path} is no Python: {error.msg} in line {error.lineno}"
        ) from None
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "reward"]
    if len(functions) != 1 or len(functions[0].args.args) != 1:
        raise RewardError(f"{path} must define one function reward(obs); got {len(functions)}")
    for node in ast.walk(tree):
        if fault := _fault(node):
            line = getattr(node, "lineno", 0)
            raise RewardError(
                f"{path}, line {line}: {fault}; a reward function computes with "
                f"{' and '.join(ALLOWED_MODULES)} alone"
            )
    return text


def _fault(node: ast.AST) -> str:
    """Reason to refuse a part of a program; empty for none."""
    if isinstance(node, ast.Import):
        names = [one.name for one in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "."]
    else:
        names = []
    for name in names:
        if name not in ALLOWED_MODULES:
            return f"it imports '{name}'"
    if isinstance(node, ast.Name) and (node.id in _REFUSED_NAMES or node.id.startswith("__")):
        return f"it names '{node.id}'"
    if isinstance(node, ast.Attribute) and (
        node.attr.startswith("_") or node.attr in _REFUSED_ATTRIBUTES
    ):
        return f"it reads the attribute '{node.attr}'"
    if isinstance(node, ast.alias) and (
        node.name.startswith("_") or node.name in _REFUSED_ATTRIBUTES
    ):
        return f"it imports '{node.name}'"
    return ""
