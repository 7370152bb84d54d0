"""N of Gymnasium's MuJoCo worlds on one engine, with the truth after every step.

What `gymnasium.make(id)` would say of one world, this says of all of them in tensors, several times
faster than a loop over environments, and the state of the worlds can be saved. Steps run on the
CPU, whatever the device of the tensors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.seeding import derive_seed
from sim.adapters.mujoco_worlds.facts import INFINITE, INFOS, TERMS, Motion, PlanarWorld, is_healthy
from sim.fault_flags import FaultFlags
from sim.physics.mujoco_engine.batch import MujocoEngine


class MujocoWorldsEnv:
    """N copies of a planar world that begin anew in the step that ends an episode."""

    def __init__(
        self,
        world: PlanarWorld,
        engine: MujocoEngine,
        *,
        device: torch.device,
        seed: int,
        episode_steps: int,
        metrics: Sequence[str] = (),
        control_dt: float = 0.0,
    ) -> None:
        """Describe the worlds and begin their first episodes.

        Args:
            world: Its rules.
            engine: Its physics, N worlds with `world.frame_skip` steps per action.
            device: Where the tensors live.
            seed: Of the starts.
            episode_steps: Actions until time is up.
            metrics: Names of `world.infos` to tell; empty for all.
            control_dt: What the spec says of the time between actions [s]; 0 for the engine's.

        Raises:
            ConfigError: A metric is unknown, or no time is left.
        """
        for name in metrics:
            if name not in world.infos:
                raise ConfigError(
                    unknown_name("env.metrics: info of this world", name, world.infos)
                )
        if episode_steps < 1:
            raise ConfigError(f"max_episode_steps must be at least 1, got {episode_steps}")
        self.engine = engine
        self._world, self._device, self._episode_steps = world, device, episode_steps
        count, model = engine.num_worlds, engine.model
        low, high = torch.tensor(model.actuator_ctrlrange).float().unbind(-1)
        self._middle, self._reach = 0.5 * (low + high), 0.5 * (high - low)
        self._rest = torch.tensor(model.qpos0)
        self._weights = torch.tensor(list(world.weights.values()))
        self._metric_names = tuple(metrics) or world.infos
        width = model.nq - world.hidden + model.nv
        self._spec = EnvSpec(
            num_envs=count,
            device=device,
            groups={"actor": GroupSpec(shape=(width,))},
            action_size=model.nu,
            control_dt=control_dt or engine.control_dt,
            reward_names=tuple(world.weights),
            metric_names=self._metric_names,
            judges_success=False,
        )
        # Written anew in every step, through views made once: at this speed a slice costs.
        self._obs, self._next_obs = torch.zeros(count, width), torch.zeros(count, width)
        self._seen = self._next_obs.split([model.nq - world.hidden, model.nv], dim=-1)
        self._shown = engine.qpos[:, world.hidden :]
        self._place = engine.qpos[:, :2]
        self._before, self._velocity = self._place.clone(), self._place.clone()
        self._terms = torch.zeros(count, len(world.weights))
        self._weighted = torch.zeros_like(self._terms)
        self._told_rewards = dict(zip(world.weights, self._weighted.unbind(-1), strict=True))
        self._ends = bool(world.healthy) or world.state_bound < INFINITE
        self._metrics = {
            name: self._told_rewards.get(name.removeprefix("reward_"), torch.zeros(count))
            for name in self._metric_names
        }
        self._age = torch.zeros(count, dtype=torch.int64)
        self._none = torch.zeros(count, dtype=torch.bool)
        self._flags = FaultFlags(count, torch.device("cpu"))
        self._generator = torch.Generator()
        self.reset(seed=seed)

    @property
    def spec(self) -> EnvSpec:
        """Shapes, device, names."""
        return self._spec

    def reset(
        self,
        seed: int | None = None,
        mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:
        """Start new episodes in all or in the masked worlds, or go on from a saved state."""
        self._spec.check_reset(mask, state)
        if seed is not None:
            self._generator.manual_seed(derive_seed(seed, "episodes"))
        if state is not None:
            self.load_state_dict(state)
            return self._told(self._obs)
        self._begin(EnvSelection(~self._none if mask is None else mask.cpu()))
        return self._told(self._obs)

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period and begin anew where an episode ended."""
        engine, world, device = self.engine, self._world, self._device
        self._spec.check_action(action)
        asked = action.cpu()
        action = torch.nan_to_num(asked, nan=0.0).clamp(-1.0, 1.0)  # `check` tells of a NaN
        native = torch.addcmul(self._middle, action, self._reach)
        engine.control.copy_(native)
        self._before.copy_(self._place)
        engine.step()
        self._age += 1
        torch.sub(self._place, self._before, out=self._velocity).div_(engine.control_dt)
        healthy = is_healthy(world, engine.qpos, engine.qvel) if self._ends else ~self._none
        self._judge(
            Motion(
                velocity=self._velocity, position=engine.qpos, start=self._rest, action=native,
                healthy=healthy,
            )
        )  # fmt: skip
        self._observe(self._shown, engine.qvel, self._seen)

        watched = {"actor": self._next_obs, "reward": self._terms, "action": asked}
        valid = self._flags.watch(watched, excused=engine.fault)
        terminated = ~healthy & valid
        truncated = ((self._age >= self._episode_steps) | ~valid) & ~terminated
        self._obs.copy_(self._next_obs)
        self._begin(EnvSelection(terminated | truncated))
        none = self._none.to(device)
        return EnvStep(
            obs=self._told(self._obs),
            next_obs=self._told(self._next_obs),
            reward=self._weighted.sum(-1).to(device),
            terminated=terminated.to(device),
            truncated=truncated.to(device),
            success=none,
            valid=valid.to(device),
            action=action.to(device),
            intervened=none,
            metrics={name: value.to(device) for name, value in self._metrics.items()},
            reward_terms=self._terms.to(device),
            reward_weights=self._weights.to(device),
        )

    def check(self) -> None:
        """Raise NonFiniteError for observations, rewards or actions that were not numbers.

        Worlds that MuJoCo gave up are not among them: their steps were invalid and they began anew.
        """
        self._flags.check(
            {
                "actor": [f"observation[{i}]" for i in range(self._obs.shape[1])],
                "reward": list(self._world.weights),
                "action": [f"entry {i}" for i in range(self._spec.action_size)],
            }
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future."""
        return {
            "engine": self.engine.state_dict(),
            "age": self._age.clone(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.engine.load_state_dict(state["engine"])
        self._age.copy_(state["age"])
        self._generator.set_state(state["generator"])
        self._observe(self._shown, self.engine.qvel, self._seen)
        self._obs.copy_(self._next_obs)

    def close(self) -> None:
        """Nothing is held beyond memory."""

    def _begin(self, rows: EnvSelection) -> None:
        """Start episodes in the picked worlds and put their first observations in place."""
        if rows.count == 0:
            return
        world, generator = self._world, self._generator
        engine, count = self.engine, rows.count
        shift = torch.rand(count, engine.qpos.shape[1], generator=generator, dtype=torch.float64)
        draw = torch.randn if world.normal_velocity else torch.rand
        speed = draw(count, engine.qvel.shape[1], generator=generator, dtype=torch.float64)
        if not world.normal_velocity:
            speed = 2 * speed - 1
        engine.reset(
            rows,
            self._rest + world.position_noise * (2 * shift - 1),
            world.velocity_noise * speed,
            torch.zeros(count, engine.control.shape[1]),
        )
        rows.put(self._age, 0)
        first = torch.empty(count, self._obs.shape[1])
        parts = first.split([part.shape[1] for part in self._seen], dim=-1)
        self._observe(rows.take(self._shown), rows.take(engine.qvel), parts)
        rows.put(self._obs, first)

    def _observe(self, shown: Tensor, velocity: Tensor, out: Sequence[Tensor]) -> None:
        """Write what is seen of positions and velocities into the two parts of an observation."""
        out[0].copy_(shown)
        out[1].copy_(velocity)
        bound = self._world.velocity_bound
        if bound < INFINITE:
            out[1].clamp_(-bound, bound)

    def _judge(self, motion: Motion) -> None:
        """Write reward terms and metrics of a step."""
        for i, name in enumerate(self._world.weights):
            self._terms[:, i] = TERMS[name](motion)
        torch.mul(self._terms, self._weights, out=self._weighted)
        for name, value in self._metrics.items():
            if name in INFOS:
                value.copy_(INFOS[name](motion))

    def _told(self, seen: Tensor) -> Obs:
        return {"actor": seen.to(self._device)}
