"""Steps an environment of Isaac Lab, manager-based or direct, 2.x or 3.x.

It begins new episodes in the step that ends them. Its last observations are then:

- 3.0 and later: in `extras["final_obs"]`, if `cfg.compute_final_obs` was set when it was made.
- before: nowhere. A step computes rewards and ends, calls `_reset_idx` for the envs that ended, and
  then computes the observations that it returns: they are computed once more, as `_reset_idx` is
  called. Commands are then those that the last action was chosen by, not yet drawn or turned anew.

Isaac Lab allows one simulation in a process, which training and evaluation share. Whoever steps it
next after another one begins new episodes in all envs, in a row that is invalid: nothing was
stepped in it, and nobody takes the other's end for its own.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.adapters.torch_envs.config import FinalObs
from sim.adapters.torch_envs.env import WorldStep


class FinalCapture:
    """Observations of all worlds as a step is about to reset some."""

    def __init__(self, env: Any) -> None:
        """Put itself in front of the environment's `_reset_idx`."""
        self._env, self._reset_idx = env, env._reset_idx
        self._armed, self._seen = False, None
        env._reset_idx = self

    def __call__(self, env_ids: Any) -> Any:
        """Look, then reset."""
        if self._armed and self._seen is None:
            self._seen = copied(self._look())
        return self._reset_idx(env_ids)

    def arm(self) -> None:
        """A step begins: its reset is to be looked at."""
        self._armed, self._seen = True, None

    def disarm(self) -> Mapping[str, Any] | None:
        """Observations before the reset in the step; None if nothing was reset."""
        self._armed = False
        return self._seen

    def _look(self) -> Mapping[str, Any]:
        manager = getattr(self._env, "observation_manager", None)
        if manager is None:
            return self._noisy(self._env._get_observations())
        memory = ObservationMemory(manager)
        seen = copied(manager.compute(update_history=True))
        memory.restore()
        return seen

    def _noisy(self, obs: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the noise that a direct environment adds to what its policy sees."""
        model = getattr(self._env, "_observation_noise_model", None)
        if model is None:
            return obs
        add = model if callable(model) else model.apply  # the latter before 2.1
        return {**obs, "policy": add(obs["policy"])}


class ObservationMemory:
    """Histories, filters and noise of an observation manager, kept so that a look changes none."""

    def __init__(self, manager: Any) -> None:
        """Keep copies of what the manager remembers now."""
        buffers = getattr(manager, "_group_obs_term_history_buffer", {})
        filters = getattr(manager, "_group_obs_class_instances", [])
        histories = [buffer for group in buffers.values() for buffer in group.values()]
        self._kept = [
            (one, axis, {name: _copy(value) for name, value in vars(one).items()})
            for remembering, axis in ((histories, 1), (filters, 0))
            for one in remembering
        ]
        self._count = int(manager.num_envs)

    def restore(self, but: Tensor | None = None) -> None:
        """Put everything back.

        Args:
            but: Worlds, int64, that keep what they have now.
        """
        for one, axis, kept in self._kept:
            now = vars(one)
            for name, before in kept.items():
                after = now[name]
                if but is not None and isinstance(after, Tensor):
                    if before is None:  # the first frame ever
                        continue
                    rows = _rows_of(before, self._count, but, axis)
                    if rows is not None:
                        before[rows] = after[rows]
                now[name] = before


def copied(obs: Any) -> Any:
    """Observations in memory of their own."""
    if isinstance(obs, Mapping):
        return {name: copied(part) for name, part in obs.items()}
    return obs.clone()


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _rows_of(value: Tensor, count: int, ids: Tensor, axis: int) -> Any:
    """Index of some worlds' rows, on the axis of a history (frames, N, ...), or on the first."""
    if axis < value.ndim and value.shape[axis] == count:
        return (slice(None),) * axis + (ids,)
    return ids if value.ndim and value.shape[0] == count else None


@dataclass(frozen=True, kw_only=True)
class Release:
    """Differences between the releases of Isaac Lab, where its environments do not say so."""

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


class SharedSimulation:
    """A simulation and who used it last; closed with its last user."""

    def __init__(self, worlds: IsaacLabWorlds, key: Any) -> None:
        """Begin without users.

        Args:
            key: What it was made from.
        """
        self.worlds, self.key = worlds, key
        self.user: SharedWorlds | None = None
        self.begun_anew = False
        """All worlds were reset since the user's last step, by another."""
        self._users: list[SharedWorlds] = []

    @property
    def closed(self) -> bool:
        """True after its last user left."""
        return not self._users

    def share(self, count: int) -> "SharedWorlds":
        """The first worlds of the simulation, for one more user.

        Raises:
            ConfigError: There are not as many.
        """
        if count > self.worlds.num_envs:
            raise ConfigError(
                f"{count} worlds were asked for to evaluate in, but Isaac Lab keeps one simulation "
                f"in a process, and it has {self.worlds.num_envs}: lower "
                "training.evaluation_episodes, or raise num_envs"
            )
        user = SharedWorlds(self, count)
        self._users.append(user)
        return user

    def leave(self, user: "SharedWorlds") -> None:
        """One user less."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self.worlds.close()


class SharedWorlds:
    """The first worlds of a simulation; the others stand at action 0 meanwhile."""

    def __init__(self, simulation: SharedSimulation, count: int) -> None:
        """One user of the simulation, through `SharedSimulation.share`."""
        self._simulation, self.num_envs = simulation, count
        self.env = simulation.worlds.env
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps since the run began; those of other users do not count."""
        mine = self._simulation.user is self
        return self._simulation.worlds.steps if mine else self._steps

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = value
        if self._simulation.user is self:
            self._simulation.worlds.steps = value

    def reset(self, seed: int | None, ids: Tensor | None) -> Mapping[str, Any]:
        """Begin new episodes; of some worlds only where nobody else was before."""
        simulation = self._simulation
        if ids is not None and (simulation.user is not self or simulation.begun_anew):
            # Not taken: the next step, whoever takes it, begins all of them anew.
            ids, simulation.begun_anew = None, True
        else:
            self._take()
        return self._mine(simulation.worlds.reset(seed, ids))

    def step(self, action: Tensor) -> WorldStep:
        """Step, or begin anew if somebody else was here."""
        if self._take():
            begun = self._mine(self._simulation.worlds.reset(None, None))
            none = torch.zeros(self.num_envs, dtype=torch.bool, device=action.device)
            return WorldStep(
                stayed=begun, final=None, begun=begun, reward=none.float(), terminated=none,
                truncated=~none, log={}, stepped=False,
            )  # fmt: skip
        others = action.new_zeros(
            self._simulation.worlds.num_envs - self.num_envs, *action.shape[1:]
        )
        step = self._simulation.worlds.step(torch.cat([action, others]))
        if not len(others):
            return step
        return WorldStep(
            stayed=self._mine(step.stayed),
            final=None if step.final is None else self._mine(step.final),
            begun=self._mine(step.begun),
            reward=step.reward[: self.num_envs],
            terminated=step.terminated[: self.num_envs],
            truncated=step.truncated[: self.num_envs],
            log={name: self._of_mine(value) for name, value in step.log.items()},
        )

    def term(self, name: str) -> Tensor | None:
        """A termination term in these worlds."""
        told = self._simulation.worlds.term(name)
        return None if told is None else told[: self.num_envs]

    def close(self) -> None:
        """Leave; the last one closes the simulation."""
        self._simulation.leave(self)

    def _take(self) -> bool:
        """Become the simulation's user; true if another one was, or reset the worlds."""
        before, begun_anew = self._simulation.user, self._simulation.begun_anew
        self._simulation.begun_anew = False
        if before is self:
            return begun_anew
        if before is not None:
            before._steps = self._simulation.worlds.steps
        self._simulation.user = self
        self._simulation.worlds.steps = self._steps
        return before is not None

    def _mine(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._mine(part) if isinstance(part, Mapping) else part[: self.num_envs]
            for name, part in obs.items()
        }

    def _of_mine(self, value: Any) -> Any:
        everyone = (self._simulation.worlds.num_envs,)
        if isinstance(value, Tensor) and value.shape == everyone:
            return value[: self.num_envs]
        return value
