"""The environment contract: N envs stepped at once, with the true successor of every step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from robot_rl.core.errors import ShapeError
from robot_rl.core.robot import RobotSpec

Obs: TypeAlias = dict[str, Tensor]
"""Observation groups by name: `actor` (only what the robot measures), optionally `critic`
(complete in itself, absent on hardware) and `image/<camera>` (uint8, NHWC)."""


@dataclass(frozen=True, kw_only=True)
class TermSpec:
    """Place of a term in its group: `width * history` consecutive entries, oldest frame first."""

    name: str
    """Of the term."""
    width: int
    """Entries of one frame."""
    history: int = 1
    """Frames, the present one included."""

    @property
    def size(self) -> int:
        """Entries of all frames."""
        return self.width * self.history


@dataclass(frozen=True, kw_only=True)
class GroupSpec:
    """Shape of one observation group."""

    shape: tuple[int, ...]
    """Shape without the envs' axis."""
    dtype: torch.dtype = torch.float32
    """Element type."""
    stack: int = 1
    """Frames on an axis of their own (images); 1 for vectors, whose history is inside."""
    terms: tuple[TermSpec, ...] = ()
    """Parts of a vector, in order; empty where the environment does not say them."""


@dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """Constants of an environment that learners, buffers and collectors need."""

    num_envs: int
    """N."""
    device: torch.device
    """Device of every tensor of the environment."""
    groups: Mapping[str, GroupSpec]
    """Observation groups by name."""
    action_size: int
    """A; actions are in [-1, 1]."""
    control_dt: float
    """Time between two actions [s]."""
    reward_names: tuple[str, ...] = ()
    """Names of the K reward terms; empty where the environment gives only their sum."""
    reward_weights: tuple[float, ...] = ()
    """Weights of these terms before the first step; empty where the environment tells none."""
    metric_names: tuple[str, ...] = ()
    """Keys of `EnvStep.metrics`."""
    discrete: bool = False
    """True if an action chooses the one of A whose entry is the largest; `EnvStep.action` is 1
    there and -1 elsewhere."""
    robot: RobotSpec | None = None
    """The robot, where one is described."""
    judges_success: bool = True
    """False where nothing says whether an episode succeeded: policies compare by their return."""
    meaning: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Meaning of actions and observations in plain values (`robot_rl.core.meaning`); empty where
    the environment does not tell."""
    steps_beside: bool = False
    """True if `step` may run in a thread of its own while a learner updates."""
    resumable: bool = True
    """True if `state_dict` restores a bit-equal continuation; else `load_state_dict` begins new
    episodes in all envs."""

    def check_reset(self, mask: Tensor | None, state: Mapping[str, Any] | None) -> None:
        """Refuse a mask together with a state, and masks of another shape or type.

        Raises:
            ShapeError: These arguments of `BatchEnv.reset` do not fit.
        """
        if mask is not None and state is not None:
            raise ShapeError("reset takes a mask or a state, got both")
        if mask is not None and (mask.shape != (self.num_envs,) or mask.dtype is not torch.bool):
            raise ShapeError(
                f"reset mask: expected {(self.num_envs,)} of bool, "
                f"got {tuple(mask.shape)} of {mask.dtype}"
            )

    def check_action(self, action: object) -> None:
        """Refuse what is no tensor of float32, (N, A).

        Raises:
            ShapeError: This argument of `BatchEnv.step` does not fit.
        """
        expected = (self.num_envs, self.action_size)
        if not isinstance(action, Tensor):
            raise ShapeError(
                f"action: expected a tensor of shape {expected}, got {type(action).__name__}; "
                "torch.as_tensor(action, dtype=torch.float32) makes one of an array"
            )
        if action.dtype is not torch.float32:
            raise ShapeError(f"action: expected torch.float32, got {action.dtype}")
        if action.shape != expected:
            raise ShapeError(f"action: expected shape {expected}, got {tuple(action.shape)}")


@dataclass(frozen=True, kw_only=True)
class EnvStep:
    """One step of N envs. Tensors may be overwritten by the next step: keep copies."""

    obs: Obs
    """Observation to act on next: already reset where an episode ended."""
    next_obs: Obs
    """The true successor, before any reset: what a critic bootstraps from."""
    reward: Tensor
    """(N,)."""
    terminated: Tensor
    """(N,) bool: the task ended the episode, nothing follows. Wins where both are set."""
    truncated: Tensor
    """(N,) bool: a time limit ended the episode; the state has a future value."""
    success: Tensor
    """(N,) bool: the episode that ends in this step met the task's success rule."""
    valid: Tensor
    """(N,) bool: false for rows that must not be learned from (foreign auto-reset, faulted env,
    lost sensor); n-step returns treat such a row as a seam."""
    action: Tensor
    """(N, A), in [-1, 1]: accepted in this step after clip, person and safety, before delay."""
    intervened: Tensor
    """(N,) bool: a person chose the action."""
    metrics: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """For logs, each (N,); nothing learns from them."""
    reward_terms: Tensor | None = None
    """(N, K), unweighted; `reward` is `reward_terms @ reward_weights`."""
    reward_weights: Tensor | None = None
    """(K,), the weights of this step; stored terms are reweighted with the newest."""
    stale: Tensor | None = None
    """(N,) bool: not valid for the age of its pictures alone, so that reward and end are those of
    the task; None where no row is."""

    @property
    def counts(self) -> Tensor:
        """(N,) bool: reward and end are those of the task, also where they must not be learned."""
        return self.valid if self.stale is None else self.valid | self.stale

    @property
    def ended(self) -> Tensor:
        """(N,) bool: the episode ended in this step, for either reason."""
        return self.terminated | self.truncated


@runtime_checkable
class BatchEnv(Protocol):
    """N envs behind one interface; implemented by simulations, foreign environments and robots.

    Envs reset themselves in the step in which their episode ends. No step makes the host wait
    for the device: faults set sticky device flags that `check` reads.
    """

    @property
    def spec(self) -> EnvSpec:
        """Shapes, device, names; constant."""
        ...

    def reset(
        self,
        seed: int | None = None,
        mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:
        """Start new episodes; returns the observation of all N envs.

        Args:
            seed: Reseeds all randomness of the environment; None goes on with the present streams.
            mask: (N,) bool on the environment's device, the envs to reset; None resets all.
            state: A `state_dict` to start from instead of drawn starts; needs mask None.
        """
        ...

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period.

        Args:
            action: (N, A); clipped to [-1, 1]. What was accepted comes back in `EnvStep.action`.
        """
        ...

    def check(self) -> None:
        """Read the sticky fault flags; waits for the device.

        Raises:
            NonFiniteError: Names the envs and the terms that were not finite.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future: engine, delays, histories, goals, curriculum, RNG."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; the continuation is bit-equal where `spec.resumable`."""
        ...

    def close(self) -> None:
        """Release what the environment holds; allowed more than once."""
        ...


class ResetStateSource(Protocol):
    """Source of states that episodes begin in."""

    @property
    def until(self) -> int:
        """Steps of the envs of all processes, after which episodes begin as they always do."""
        ...

    @property
    def episode_steps(self) -> int:
        """Control steps after which an episode that began so is truncated."""
        ...

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """States by the names of their parts, (count, W) each."""
        ...


class SupportsStateReset(Protocol):
    """An environment that tells the state its envs are in, and begins episodes in such states."""

    @property
    def state_widths(self) -> Mapping[str, int]:
        """Parts of an env's state: name -> width W.

        Raises:
            ConfigError: The task or the robot cannot begin anywhere; says why.
        """
        ...

    def world_states(self) -> dict[str, Tensor]:
        """States of all envs as they are now, (N, W) float32 each, copied."""
        ...

    def set_reset_states(self, source: ResetStateSource) -> None:
        """Begin episodes in its states from the next reset on, by the environment's own stream."""
        ...


def choice_rows(choice: Tensor, count: int) -> Tensor:
    """Actions (N, K) that choose (`EnvSpec.discrete`): 1 at the number (N,), -1 elsewhere."""
    return 2.0 * torch.nn.functional.one_hot(choice, count).float() - 1.0
