"""Steps an environment of Isaac Lab, manager-based or direct, 2.x or 3.x.

It begins new episodes in the step that ends them. Where its last observations are then:

- 3.0 and later: in `extras["final_obs"]`, if `cfg.compute_final_obs` was set when it was made.
- before: nowhere. They are computed when the step is about to reset (`final_obs.py`).
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.adapters.torch_worlds.config import FinalObs
from sim.adapters.torch_worlds.isaaclab.final_obs import FinalCapture, ObservationMemory
from sim.adapters.torch_worlds.worlds import WorldStep


@dataclass(frozen=True, kw_only=True)
class Release:
    """What differs between the releases of Isaac Lab, where its environments do not say so."""

    scalar_last: bool
    """Quaternions are x, y, z, w (3.x), else w, x, y, z (2.x)."""
    ids: torch.dtype
    """Type of the worlds' numbers: int32 for 3.x, whose assets read them in Warp kernels."""

    @classmethod
    def of(cls, identity: Tensor) -> "Release":
        """The release whose rotation by nothing is this quaternion, (4,)."""
        scalar_last = bool(identity[3].abs() > 0.5)
        return cls(scalar_last=scalar_last, ids=torch.int32 if scalar_last else torch.int64)


class IsaacLabWorlds:
    """N worlds of one simulation."""

    def __init__(self, env: Any, release: Release, final_obs: FinalObs = FinalObs.exact) -> None:
        """Take the environment over.

        Args:
            env: A `ManagerBasedRLEnv` or `DirectRLEnv`, without wrappers.
            release: Of the package.
            final_obs: Where last observations come from.

        Raises:
            ConfigError: Several agents act in it, or it cannot tell last observations.
        """
        if hasattr(env, "possible_agents"):
            raise ConfigError(
                f"{type(env).__name__} has several agents; expected one: choose another task"
            )
        self.env, self.num_envs = env, int(env.num_envs)
        self._release = release
        self._told = bool(getattr(env.cfg, "compute_final_obs", False))
        self._capture: FinalCapture | None = None
        if final_obs is FinalObs.exact and not self._told:
            if not hasattr(env, "_reset_idx"):
                raise ConfigError(
                    f"{type(env).__name__} neither has cfg.compute_final_obs nor resets by "
                    "_reset_idx; its last observations are lost: say env.final_obs=drop"
                )
            self._capture = FinalCapture(env)
        self._drops = final_obs is FinalObs.drop

    @property
    def steps(self) -> int:
        """Steps since the run began, which curricula follow."""
        return int(self.env.common_step_counter)

    @steps.setter
    def steps(self, value: int) -> None:
        self.env.common_step_counter = value

    def reset(self, seed: int | None, ids: Tensor | None) -> Mapping[str, Any]:
        """Begin new episodes."""
        if ids is None:
            return self.env.reset(seed=seed)[0]
        native = ids.to(self._release.ids)
        if "env_ids" not in inspect.signature(self.env.reset).parameters:  # direct
            self.env._reset_idx(native)
            self.env.scene.write_data_to_sim()
            self.env.sim.forward()
            return self.env._get_observations()
        memory = ObservationMemory(self.env.observation_manager)
        begun = self.env.reset(env_ids=native)[0]
        memory.restore(but=ids)  # the others did not see another step
        return begun

    def step(self, action: Tensor) -> WorldStep:
        """Step; worlds whose episode ends begin anew in it."""
        if self._capture is not None:
            self._capture.arm()
        obs, reward, terminated, truncated, extras = self.env.step(action)
        final = None
        if not self._drops:
            if self._capture is not None:
                final = self._capture.disarm()
            elif "final_obs" in extras:
                final = extras["final_obs"]
                _check_apart(final, obs)
            if final is None:
                if bool((terminated | truncated).any()):
                    raise SpecMismatchError(
                        f"{type(self.env).__name__} ended an episode without telling its last "
                        "observation; expected it in extras['final_obs'], or a call of "
                        "_reset_idx in the step: say env.final_obs=drop"
                    )
                final = obs  # no row of it is used
        return WorldStep(
            stayed=obs, final=final, begun=obs, reward=reward, terminated=terminated,
            truncated=truncated, log=extras.get("log", {}),
        )  # fmt: skip

    def term(self, name: str) -> Tensor | None:
        """(N,) bool: a termination term in the last step; None where there are no such terms."""
        manager = getattr(self.env, "termination_manager", None)
        return None if manager is None else manager.get_term(name)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _check_apart(final: Mapping[str, Any], obs: Mapping[str, Any]) -> None:
    """Refuse last observations in the memory of those after the reset, which have replaced them."""
    for name, group in final.items():
        other = obs.get(name)
        if isinstance(group, Mapping) and isinstance(other, Mapping):
            _check_apart(group, other)
        elif (
            isinstance(group, Tensor)
            and isinstance(other, Tensor)
            and group.data_ptr() == other.data_ptr()
        ):
            raise SpecMismatchError(
                f"extras['final_obs'] holds '{name}' in the memory of the observation after the "
                "reset, which has overwritten it: say env.final_obs=drop, or let the task's "
                "observations be tensors of their own"
            )
