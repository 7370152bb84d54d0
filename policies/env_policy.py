"""The policy of a Gymnasium environment, which has no robot: a folder that runs without torch.

The files are those of a bundle, sealed in the same way. `spec.json` holds an `EnvPolicySpec`
instead of a robot and its terms, `golden.npz` observations and the actions that belong to them.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from policies.bundle import ENVIRONMENT, REPLAY_TOLERANCE, finished_folder, read_sealed
from policies.decoding import as_object, decode
from policies.network_check import check_content, check_run
from policies.runner import open_network
from policies.sealed_files import read_arrays
from robot_rl.core.action import within_bounds
from robot_rl.core.errors import BundleError, ConfigError, NonFiniteError, ShapeError

__all__ = ["EnvPolicy", "EnvPolicySpec", "load_policy"]

_LARGEST = 1_000_000
"""Entries of an observation or an action."""
_MOST_AXES = 32
_DTYPES = ("float16", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class EnvPolicySpec:
    """An environment's observation and action."""

    environment: str
    """Its id."""
    observation_shape: list[int]
    """Of one observation."""
    action_shape: list[int]
    """Of one action."""
    action_dtype: str
    """float16, float32 or float64; int64 of a choice."""
    low: list[float]
    """Action for -1 of the network, every entry; empty of a choice."""
    high: list[float]
    """Action for 1; empty of a choice."""
    choices: int = 0
    """K, where an action is one of K: the number of the network's largest output; 0 elsewhere."""
    first: int = 0
    """Number of the first choice."""

    def __post_init__(self) -> None:
        for name, shape in (
            ("observation", self.observation_shape), ("action", self.action_shape)
        ):  # fmt: skip
            fits = len(shape) <= _MOST_AXES and all(size > 0 for size in shape)
            if not fits or not 0 < math.prod(shape) <= _LARGEST:
                raise ConfigError(
                    f"policy.{name}_shape: expected up to {_MOST_AXES} axes and {_LARGEST:,} "
                    f"entries, got {shape!s:.60}"
                )
        if self.choices:
            self._check_choices()
            return
        size = math.prod(self.action_shape)
        if not len(self.low) == len(self.high) == size:
            raise ConfigError(
                f"policy: expected {size} bounds of an action below and above, got "
                f"{len(self.low)} and {len(self.high)}"
            )
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ConfigError("policy: expected every bound of an action below its upper one")
        if self.action_dtype not in _DTYPES:
            raise ConfigError(
                f"policy.action_dtype: expected one of {', '.join(_DTYPES)}, got "
                f"'{self.action_dtype:.20}'"
            )

    def _check_choices(self) -> None:
        if not 2 <= self.choices <= _LARGEST:
            raise ConfigError(f"policy.choices: expected 2 to {_LARGEST:,}, got {self.choices}")
        if self.action_shape or self.low or self.high or self.action_dtype != "int64":
            raise ConfigError(
                "policy: a choice has no bounds, the shape [] and the type int64; got "
                f"{len(self.low)} bounds, {self.action_shape!s:.60} and '{self.action_dtype:.20}'"
            )

    @property
    def outputs(self) -> int:
        """A: outputs of the network."""
        return self.choices or len(self.low)

    @property
    def observation_size(self) -> int:
        """D: entries of an observation."""
        return math.prod(self.observation_shape)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": ENVIRONMENT, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EnvPolicySpec":
        """Rebuild from `to_dict`.

        Raises:
            ConfigError: A value is missing, of another type or out of range.
        """
        plain = {name: value for name, value in values.items() if name != "kind"}
        return decode(plain, cls, "policy")


class EnvPolicy:
    """A policy as a function of the environment's own observation."""

    def __init__(self, spec: EnvPolicySpec, network: Any) -> None:
        """Take what `load_policy` has checked; the network is a session of onnxruntime."""
        self.spec = spec
        """Shapes and bounds."""
        self._network = network
        self._low, self._high = np.array(spec.low), np.array(spec.high)

    def __call__(self, observation: ArrayLike) -> NDArray[Any]:
        """The action for an observation, as the environment's `step` takes it.

        Args:
            observation: Of the shape `spec.observation_shape`.

        Raises:
            ShapeError: It has another one.
            NonFiniteError: An entry is no number.
        """
        try:
            values = np.asarray(observation, np.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ShapeError(
                f"observation: expected an array of shape {tuple(self.spec.observation_shape)}, "
                f"got {type(observation).__name__}; env.reset() gives an observation and infos: "
                "hand over the first"
            ) from error
        if list(values.shape) != self.spec.observation_shape:
            raise ShapeError(
                f"observation: expected shape {tuple(self.spec.observation_shape)}, as "
                f"'{self.spec.environment}' has it, got {values.shape}"
            )
        return self.actions(values.reshape(1, -1))[0].reshape(self.spec.action_shape)

    def actions(self, observations: ArrayLike) -> NDArray[Any]:
        """Actions (N, A), or numbers of choices (N,), for flat observations (N, D).

        Raises:
            ShapeError: They have another shape.
            NonFiniteError: An entry is no number.
        """
        rows = np.asarray(observations, np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.spec.observation_size:
            raise ShapeError(
                f"observations: expected shape (N, {self.spec.observation_size}), got {rows.shape}"
            )
        if not np.isfinite(rows).all():
            raise NonFiniteError("observation: an entry is no number")
        unit = np.asarray(self._network.run(["action"], {"actor": rows})[0])
        if self.spec.choices:
            return unit.argmax(-1) + self.spec.first
        return within_bounds(unit, self._low, self._high).astype(self.spec.action_dtype)


def load_policy(path: Path | str, *, verify: bool = True) -> EnvPolicy:
    """Check the exported policy of a Gymnasium environment and make it ready to run.

    Args:
        path: Folder that export wrote.
        verify: Ask it for the recorded observations' actions; damage is found without it too.

    Raises:
        BundleError: The folder holds no such policy, or is damaged.
    """
    return read_env_policy(finished_folder(path), verify=verify)


def read_env_policy(folder: Path, *, verify: bool) -> EnvPolicy:
    """Check a folder, finished or being written, and open its policy."""
    content, files = read_sealed(folder)
    try:
        plain = as_object(content.get("policy"), "policy")
        if plain.get("kind") != ENVIRONMENT:
            raise BundleError("it holds the policy of a robot; load_bundle reads it")
        spec = EnvPolicySpec.from_dict(plain)
        golden = read_arrays(folder, files["golden.npz"])
        seen, expected = golden["observation"], golden["action"]
        rows, size = len(seen), spec.outputs
        if rows == 0 or seen.shape != (rows, spec.observation_size) or seen.dtype != np.float32:
            raise ConfigError(f"golden.npz has observations {seen.shape} {seen.dtype}")
        wanted = (rows,) if spec.choices else (rows, size)
        if expected.shape != wanted:
            raise ConfigError(f"golden.npz has actions {expected.shape}, expected {wanted}")
        check_content(files["policy.onnx"])
        check_run(files["policy.onnx"], {"actor": seen})
        network = open_network(files["policy.onnx"])
        outputs = [(one.name, one.type, list(one.shape)[1:]) for one in network.get_outputs()]
        if outputs != [("action", "tensor(float)", [size])]:
            raise ConfigError(f"the network gives {outputs!s:.100}, expected {size} actions")
        policy = EnvPolicy(spec, network)
        if verify:
            _check(policy, seen, expected)
    except (BundleError, ConfigError, KeyError, NonFiniteError, ShapeError) as error:
        raise BundleError(f"{folder}: {str(error)[:500]}; export the policy again") from error
    return policy


def _check(policy: EnvPolicy, seen: NDArray[np.float32], expected: NDArray[Any]) -> None:
    # Another choice is as far apart as one number from the next.
    span = np.array(policy.spec.high) - np.array(policy.spec.low) if policy.spec.low else 1.0
    difference = float(np.abs((policy.actions(seen) - expected) / span).max())
    allowed = 2e-3 if policy.spec.action_dtype == "float16" else REPLAY_TOLERANCE
    if not difference <= allowed:
        raise BundleError(
            f"recorded actions come back {difference:.1e} of their range apart, expected "
            f"{allowed:.0e}"
        )
