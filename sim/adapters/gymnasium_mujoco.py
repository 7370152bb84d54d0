"""Gymnasium's planar MuJoCo environments on our engine, N at once.

`gymnasium.make(id)` tells one environment; this tells all of them in tensors, several times faster
than a loop over environments, and their state can be saved. Steps run on the CPU, whatever the
device of the tensors.

Source: pages and code of HalfCheetah-v5, Hopper-v5, Walker2d-v5, Swimmer-v5, InvertedPendulum-v5 in
Gymnasium 1.4 (`gymnasium/envs/mujoco`, MIT licence). Ant and the Humanoids are missing: what they
observe of contacts is left over inside the integrator, where no stepping of many envs shows it.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, MissingExtraError, unknown_name
from robot_rl.core.seeding import derive_seed
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.env import FaultFlags
from sim.physics.installed import PACKAGE, has_engine

if TYPE_CHECKING:  # foreign environments must run without our engine
    from sim.physics.mujoco_engine import MujocoEngine

INFINITE = float("inf")


@dataclass(frozen=True, kw_only=True)
class PlanarWorld:
    """One world; its first position is the way it has come."""

    model: str
    """File in Gymnasium's folder of models."""
    frame_skip: int
    """Integration steps per action."""
    hidden: int = 1
    """Leading positions that are not observed."""
    velocity_bound: float = INFINITE
    """Observed velocities are clipped to it; in units of each joint."""
    weights: Mapping[str, float]
    """Reward terms, keys of `TERMS`, with their weights."""
    healthy: Mapping[int, tuple[float, float]] = field(
        default_factory=dict[int, tuple[float, float]]
    )
    """Open range of a position by its column; an episode ends outside. Empty: it never ends."""
    state_bound: float = INFINITE
    """The same for the size of every velocity, and of every position but the first two."""
    position_noise: float
    """An episode's positions begin this close to the model's own, uniformly."""
    velocity_noise: float
    """Its velocities likewise, or with this standard deviation."""
    normal_velocity: bool = False
    """Velocities begin normally distributed instead of uniformly."""
    infos: tuple[str, ...]
    """Keys of `INFOS` and `reward_<term>`, that Gymnasium tells in every step."""
    episode_steps: int = 1000
    """Actions until time is up."""


@dataclass(frozen=True, kw_only=True)
class Motion:
    """Motion in one step, float64."""

    velocity: Tensor
    """Mean of the first two velocities during the step, (N, 2), not what they are at its end."""
    position: Tensor
    """Positions after it, (N, nq)."""
    start: Tensor
    """Positions of the model at rest, (nq,)."""
    action: Tensor
    """In the actuators' own range, (N, nu), float32."""
    healthy: Tensor
    """(N,) bool."""


TERMS: Mapping[str, Callable[[Motion], Tensor]] = {
    "forward": lambda motion: motion.velocity[:, 0],
    "ctrl": lambda motion: -motion.action.square().sum(-1),
    "survive": lambda motion: motion.healthy,
}
"""Terms of the rewards by Gymnasium's names, (N,)."""

INFOS: Mapping[str, Callable[[Motion], Tensor]] = {
    "x_position": lambda motion: motion.position[:, 0],
    "y_position": lambda motion: motion.position[:, 1],
    "z_distance_from_origin": lambda motion: motion.position[:, 1] - motion.start[1],
    "distance_from_origin": lambda motion: motion.position[:, :2].norm(dim=-1),
    "x_velocity": lambda motion: motion.velocity[:, 0],
    "y_velocity": lambda motion: motion.velocity[:, 1],
}
"""Further numbers of a step, (N,)."""

WORLDS: Mapping[str, PlanarWorld] = {
    "HalfCheetah-v5": PlanarWorld(
        model="half_cheetah.xml",
        frame_skip=5,
        weights={"forward": 1.0, "ctrl": 0.1},
        position_noise=0.1,
        velocity_noise=0.1,
        normal_velocity=True,
        infos=("x_position", "x_velocity", "reward_forward", "reward_ctrl"),
    ),
    "Hopper-v5": PlanarWorld(
        model="hopper.xml",
        frame_skip=4,
        velocity_bound=10.0,
        weights={"forward": 1.0, "ctrl": 1e-3, "survive": 1.0},
        healthy={1: (0.7, INFINITE), 2: (-0.2, 0.2)},
        state_bound=100.0,
        position_noise=5e-3,
        velocity_noise=5e-3,
        infos=(
            "x_position", "z_distance_from_origin", "x_velocity", "reward_forward", "reward_ctrl",
            "reward_survive",
        ),
    ),
    "InvertedPendulum-v5": PlanarWorld(
        model="inverted_pendulum.xml",
        frame_skip=2,
        hidden=0,
        weights={"survive": 1.0},
        healthy={1: (-0.2, 0.2)},
        position_noise=0.01,
        velocity_noise=0.01,
        infos=("reward_survive",),
    ),
    "Swimmer-v5": PlanarWorld(
        model="swimmer.xml",
        frame_skip=4,
        hidden=2,
        weights={"forward": 1.0, "ctrl": 1e-4},
        position_noise=0.1,
        velocity_noise=0.1,
        infos=(
            "x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity",
            "reward_forward", "reward_ctrl",
        ),
    ),
    "Walker2d-v5": PlanarWorld(
        model="walker2d_v5.xml",
        frame_skip=4,
        velocity_bound=10.0,
        weights={"forward": 1.0, "ctrl": 1e-3, "survive": 1.0},
        healthy={1: (0.8, 2.0), 2: (-1.0, 1.0)},
        position_noise=5e-3,
        velocity_noise=5e-3,
        infos=(
            "x_position", "z_distance_from_origin", "x_velocity", "reward_forward", "reward_ctrl",
            "reward_survive",
        ),
    ),
}  # fmt: skip
"""By Gymnasium's id."""


def is_healthy(world: PlanarWorld, position: Tensor, velocity: Tensor) -> Tensor:
    """Envs whose episode continues, (N,) bool."""
    healthy = torch.ones(len(position), dtype=torch.bool)
    for column, (low, high) in world.healthy.items():
        place = position[:, column]
        healthy &= (place > low) & (place < high)
    if world.state_bound < INFINITE:
        healthy &= position[:, 2:].abs().amax(-1) < world.state_bound
        healthy &= velocity.abs().amax(-1) < world.state_bound
    return healthy


class MujocoWorldsEnv:
    """N copies of a planar world that begin anew in the step that ends an episode."""

    def __init__(
        self,
        world: PlanarWorld,
        engine: "MujocoEngine",
        *,
        device: torch.device,
        seed: int,
        episode_steps: int,
        metrics: Sequence[str] = (),
        control_dt: float = 0.0,
    ) -> None:
        """Describe the worlds and begin their first episodes.

        Args:
            engine: Its physics, N worlds with `world.frame_skip` steps per action.
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
        self.spec = EnvSpec(
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

    def reset(
        self,
        seed: int | None = None,
        mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:
        """Start new episodes in all or in the masked worlds, or go on from a saved state."""
        self.spec.check_reset(mask, state)
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
        self.spec.check_action(action)
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

        Diverged envs are not among them: their steps were invalid and they were reset.
        """
        self._flags.check(
            {
                "actor": [f"observation[{i}]" for i in range(self._obs.shape[1])],
                "reward": list(self._world.weights),
                "action": [f"entry {i}" for i in range(self.spec.action_size)],
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


_MODELS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
_LIMIT = "max_episode_steps"
"""The argument of `gymnasium.make` that these worlds understand too."""


def what_needs_the_wrapper(config: GymnasiumConfig) -> list[str]:
    """Settings that only a loop over Gymnasium's environments understands."""
    asked = {
        "env.processes": config.processes,
        "env.pixels": config.pixels,
        "env.groups": config.groups,
        "env.action_low": config.action_low,
        "env.action_high": config.action_high,
        "env.success": config.success,
    }
    asked |= {f"env.kwargs.{name}": True for name in config.kwargs if name != _LIMIT}
    return [name for name, value in asked.items() if value]


def can_make(config: GymnasiumConfig) -> bool:
    """True if these envs are all that the settings ask for, and our engine is installed."""
    return config.id in WORLDS and not what_needs_the_wrapper(config) and has_engine()


def make_mujoco_worlds(
    config: GymnasiumConfig, *, num_envs: int, device: torch.device, seed: int
) -> MujocoWorldsEnv:
    """N worlds of one of `WORLDS`.

    Raises:
        ConfigError: The id is none of `WORLDS`, or a setting is not understood here.
        MissingExtraError: MuJoCo is missing, or older than our engine needs.
    """
    if config.id not in WORLDS:
        raise ConfigError(unknown_name("world of env.engine=batch", config.id, WORLDS))
    strange = what_needs_the_wrapper(config)
    if strange:
        raise ConfigError(
            f"env.engine=batch was asked for with {', '.join(strange)}, which it does not "
            "understand; leave out the setting, or take env.engine=gymnasium"
        )
    if not has_engine():
        raise MissingExtraError(PACKAGE, "sim", "env.engine=batch")
    import mujoco

    from sim.physics.fault_record import warnings_unsaid
    from sim.physics.mujoco_engine import MujocoEngine

    world, limit = WORLDS[config.id], config.kwargs.get(_LIMIT)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise ConfigError(f"env.kwargs.{_LIMIT} must be a whole number of steps, got {limit!r}")
    with warnings_unsaid():  # what is old in Gymnasium's files, nobody here can mend
        model = mujoco.MjModel.from_xml_path(str(_MODELS / world.model))
    engine = MujocoEngine(
        model, num_envs, decimation=world.frame_skip, threads=config.physics_threads
    )
    return MujocoWorldsEnv(
        world,
        engine,
        device=device,
        seed=seed,
        episode_steps=world.episode_steps if limit is None else limit,
        metrics=config.metrics,
        control_dt=config.control_dt,
    )
