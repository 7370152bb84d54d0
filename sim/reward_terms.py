"""Reward terms of plug-ins and programs, for any task of ours that gives them a weight.

    from sim.reward_terms import RewardedStep, reward_term

    @reward_term
    def my_level(step: RewardedStep) -> Tensor:
        _, x, y, _ = step.true_state.orientation_w.unbind(-1)
        return 1 - 2 * (x.square() + y.square())

A task computes its own terms. What else has a weight, as `task.reward.initial.my_level=0.2`, is
looked up here by its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.plugins import Registry


@dataclass(frozen=True, kw_only=True)
class RewardedStep:
    """A step of N envs that a term values."""

    true_state: RobotState
    """True state after it, fields (N, width); without the noise of sensors."""
    action: Tensor
    """Accepted action, (N, A), in [-1, 1]."""
    last_action: Tensor
    """Accepted action of the step before, (N, A)."""
    goal: Mapping[str, Tensor]
    """Goals of the task after it, by name, (N, width)."""
    episode_step: Tensor
    """Steps since each episode's start, this one included, (N,) int64."""


RewardTerm: TypeAlias = Callable[[RewardedStep], Tensor]
"""Unweighted value of a step, (N,); needs no memory of earlier ones."""
REWARD_TERMS: Registry[RewardTerm] = Registry("reward term")
"""Terms that any task takes, by name."""


def reward_term(function: RewardTerm) -> RewardTerm:
    """Declare a reward term, above its function, which names it.

    The name of a package's term begins with the package's: `my_arm_calm` of the package `my_arm`,
    so that a run can say whose term it needs.

    Raises:
        ConfigError: There is a term of that name, or it is a package's and begins otherwise.
    """
    name = function.__name__
    REWARD_TERMS.add(name, function)
    owner = REWARD_TERMS.owners[name]
    if owner is not None and not name.startswith(start := f"{owner.module.partition('.')[0]}_"):
        del REWARD_TERMS[name], REWARD_TERMS.owners[name]
        raise ConfigError(f"reward term '{name}' of {owner} must begin with '{start}'")
    return function


def valued(name: str, step: RewardedStep) -> Tensor:
    """Value of a step by a declared term, (N,).

    Raises:
        ConfigError: It is no such tensor.
    """
    value, expected = REWARD_TERMS[name](step), (len(step.action),)
    if not isinstance(value, Tensor) or value.shape != expected:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(
            f"reward term '{name}' gave {found}, expected a tensor of the shape {expected}: a "
            "number for each env"
        )
    if value.device != step.action.device:
        raise ConfigError(
            f"reward term '{name}' gave a tensor on {value.device}, expected one on "
            f"{step.action.device}, as the state is"
        )
    return value.to(step.action.dtype)
