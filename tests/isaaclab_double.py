"""A contract double of Isaac Lab: what an adapter meets, with a point on a plane for a robot.

Written after the interfaces of 2.3 and 3.0 (isaac-sim/IsaacLab, source/isaaclab/isaaclab/envs):
`ManagerBasedRLEnv` and `DirectRLEnv` begin new episodes in the step that ends them by `_reset_idx`,
reuse their buffers, draw from the global generators, and tell last observations only where
`cfg.compute_final_obs` exists. Not one line of Isaac Lab is here.
"""

import contextlib
import importlib
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor

BOUND, LIMIT, HISTORY = 1.2, 9, 3
INF = float("inf")


def make_cfg(num_envs: int, *, modern: bool, limit: int = LIMIT, noise: float = 0.0) -> Any:
    """Configuration as tasks have it; only 3.0 knows `compute_final_obs`."""
    cfg = types.SimpleNamespace(
        scene=types.SimpleNamespace(num_envs=num_envs),
        sim=types.SimpleNamespace(device="cpu", dt=0.01),
        decimation=2, episode_length_s=0.02 * limit, is_finite_horizon=False, seed=None,
        bound=BOUND, noise=noise, observations=None, action_space=2, reused=False,
    )  # fmt: skip
    if modern:
        cfg.compute_final_obs = False
    return cfg


class History:
    """Frames of one term, oldest first, as a buffer of 2.x and 3.x keeps them."""

    def __init__(self, count: int) -> None:
        self._buffer: Tensor | None = None
        self._num_pushes = torch.zeros(count, dtype=torch.long)
        self._pointer = -1

    def append(self, frame: Tensor) -> None:
        if self._buffer is None:
            self._buffer = torch.empty(HISTORY, *frame.shape)
        self._pointer = (self._pointer + 1) % HISTORY
        self._buffer[self._pointer] = frame
        first = self._num_pushes == 0
        self._buffer[:, first] = frame[first]
        self._num_pushes += 1

    @property
    def frames(self) -> Tensor:
        assert self._buffer is not None
        return torch.roll(self._buffer, -self._pointer - 1, dims=0).transpose(0, 1)

    def reset(self, ids: Tensor) -> None:
        self._num_pushes[ids.long()] = 0


class Episodes(gymnasium.Env[Any, Any]):
    """What both kinds of environment do: physics, ends, automatic resets, reused buffers."""

    is_vector_env = True
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's form
    open = 0
    """Simulations of this process: a second one is refused."""

    def __init__(self, cfg: Any, modern: bool) -> None:
        if Episodes.open:
            raise RuntimeError("Simulation context already exists. Cannot create a new one.")
        Episodes.open += 1
        self.cfg, self.num_envs, self.device = cfg, cfg.scene.num_envs, "cpu"
        self.modern = modern
        self.extras: dict[str, Any] = {}
        self.common_step_counter = 0
        count = self.num_envs
        self.episode_length_buf = torch.zeros(count, dtype=torch.long)
        self.place, self.turn = torch.zeros(count, 2), torch.zeros(count)
        self.reward_buf = torch.zeros(count)
        self.reset_terminated = torch.zeros(count, dtype=torch.bool)
        self.reset_time_outs = torch.zeros(count, dtype=torch.bool)
        self.scene = types.SimpleNamespace(write_data_to_sim=lambda: None)
        self.sim = types.SimpleNamespace(forward=lambda: None)
        self.single_action_space: Any = Box(-INF, INF, (2,))
        if self.cfg.seed is not None:
            self.seed(self.cfg.seed)

    @property
    def step_dt(self) -> float:
        return self.cfg.sim.dt * self.cfg.decimation

    @property
    def max_episode_length(self) -> int:
        return math.ceil(round(self.cfg.episode_length_s / self.step_dt, 6))

    @staticmethod
    def seed(seed: int = -1) -> int:
        """Of the global generators, as the original does it."""
        torch.manual_seed(seed)
        np.random.seed(seed)
        return seed

    def quaternion(self) -> Tensor:
        """Turn about z: w, x, y, z in 2.x and x, y, z, w in 3.x."""
        w, z, o = (0.5 * self.turn).cos(), (0.5 * self.turn).sin(), torch.zeros_like(self.turn)
        return torch.stack([o, o, z, w] if self.modern else [w, o, o, z], dim=-1)

    def step(self, action: Tensor) -> Any:
        self.place += 0.4 * action[:, :2]
        self.turn += 0.1 * action[:, 0]
        self.episode_length_buf += 1
        self.common_step_counter += 1
        # Both may be set in one step, and the buffers are the same ones every time.
        self.reset_terminated[:] = self.place.abs().amax(-1) > self.cfg.bound
        self.reset_time_outs[:] = self.episode_length_buf >= self.max_episode_length
        self.reward_buf[:] = self.place.sum(-1)
        ids = (self.reset_terminated | self.reset_time_outs).nonzero()[:, 0]
        if len(ids):
            if getattr(self.cfg, "compute_final_obs", False):
                self.extras["final_obs"] = self.look(push=False)
            self._reset_idx(ids.int() if self.modern else ids)
        obs = self.look(push=True)
        return obs, self.reward_buf, self.reset_terminated, self.reset_time_outs, self.extras

    def _reset_idx(self, env_ids: Tensor) -> None:
        expected = torch.int32 if self.modern else torch.int64
        assert env_ids.dtype is expected
        ids = env_ids.long()
        self.place[ids] = torch.rand(len(ids), 2) - 0.5
        self.turn[ids] = 0.0
        steps = self.episode_length_buf[ids].float()
        self.extras["log"] = {"Episode/length": steps.mean(), "Episode/resets": len(ids)}
        self.episode_length_buf[ids] = 0

    def all_ids(self) -> Tensor:
        return torch.arange(self.num_envs, dtype=torch.int32 if self.modern else torch.int64)

    def noisy(self, values: Tensor) -> Tensor:
        return values + self.cfg.noise * torch.rand_like(values)

    def look(self, push: bool) -> dict[str, Any]:
        raise NotImplementedError

    def close(self) -> None:
        if self.num_envs:
            Episodes.open -= 1
        self.num_envs = 0


class Manager:
    """The observation manager: group `policy` joined with a history, `critic` term by term."""

    active_terms = {  # noqa: RUF012 - a constant of the double
        "policy": ["place", "root_quat", "past"], "critic": ["place", "steps"],
    }  # fmt: skip
    group_obs_term_dim = {  # noqa: RUF012
        "policy": [(2,), (4,), (2 * HISTORY,)], "critic": [(2,), (1,)],
    }  # fmt: skip
    group_obs_concatenate = {"policy": True, "critic": False}  # noqa: RUF012

    def __init__(self, env: Episodes) -> None:
        self._env, self.num_envs = env, env.num_envs
        self._group_obs_term_history_buffer = {"policy": {"past": History(env.num_envs)}}
        self._group_obs_class_instances: list[Any] = []

    def compute(self, update_history: bool = False) -> dict[str, Any]:
        env = self._env
        past = self._group_obs_term_history_buffer["policy"]["past"]
        if update_history or past._buffer is None:
            past.append(env.place.clone())
        policy = [env.noisy(env.place), env.quaternion(), past.frames.flatten(1)]
        steps = env.episode_length_buf[:, None].float()
        critic = {"place": env.place.clone(), "steps": steps}
        return {"policy": torch.cat(policy, -1), "critic": critic}

    def reset(self, ids: Tensor) -> None:
        self._group_obs_term_history_buffer["policy"]["past"].reset(ids)


class ManagerBasedRLEnv(Episodes):
    """Manager-based: terms, groups, termination terms; some worlds can be reset."""

    def __init__(self, cfg: Any, modern: bool) -> None:
        super().__init__(cfg, modern)
        self.observation_manager = Manager(self)
        ends = {"out": self.reset_terminated, "time_out": self.reset_time_outs}
        self.termination_manager = types.SimpleNamespace(
            active_terms=list(ends), get_term=ends.__getitem__
        )
        critic = Dict({"place": Box(-INF, INF, (2,)), "steps": Box(-INF, INF, (1,))})
        policy = Box(-INF, INF, (6 + 2 * HISTORY,))
        self.single_observation_space = Dict({"policy": policy, "critic": critic})

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]  as the original takes it
        self, seed: Any = None, env_ids: Any = None, options: Any = None
    ) -> tuple[Any, Any]:
        if seed is not None:
            self.seed(seed)
        self._reset_idx(self.all_ids() if env_ids is None else env_ids)
        return self.look(push=True), self.extras

    def _reset_idx(self, env_ids: Tensor) -> None:
        super()._reset_idx(env_ids)
        self.observation_manager.reset(env_ids)

    def look(self, push: bool) -> dict[str, Any]:
        return self.observation_manager.compute(update_history=push)


class DirectRLEnv(Episodes):
    """Direct: one method makes the observations, into buffers that it reuses."""

    def __init__(self, cfg: Any, modern: bool) -> None:
        super().__init__(cfg, modern)
        self._seen = torch.zeros(self.num_envs, 6)
        if cfg.noise:
            self._observation_noise_model = self.noisy
        self.single_observation_space = Dict(
            {"policy": Box(-INF, INF, (6,)), "critic": Box(-INF, INF, (3,))}
        )

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]  as the original takes it
        self, seed: Any = None, options: Any = None
    ) -> tuple[Any, Any]:
        if seed is not None:
            self.seed(seed)
        self._reset_idx(self.all_ids())
        return self._get_observations(), self.extras

    def _get_observations(self) -> dict[str, Any]:
        self._seen[:] = torch.cat([self.place, self.quaternion()], -1)
        age = self.episode_length_buf[:, None].float()
        return {"policy": self._seen, "critic": torch.cat([self.place, age], -1)}

    def step(self, action: Tensor) -> Any:
        answer = super().step(action)
        self.extras["log"] = {**self.extras.get("log", {}), "near": self.place.abs().amax(-1) < 0.5}
        return answer

    def look(self, push: bool) -> dict[str, Any]:
        obs = self._get_observations()
        if self.cfg.noise and push:
            obs["policy"] = self.noisy(obs["policy"])
        # What 3.0 keeps for later must not be the buffer that is about to be written again.
        return obs if push or self.cfg.reused else {k: v.clone() for k, v in obs.items()}


KINDS = {"manager": ManagerBasedRLEnv, "direct": DirectRLEnv}


_TASKS = """
import gymnasium
from isaaclab.app import AppLauncher
from tests.isaaclab_double import KINDS
MODERN = {modern}
assert MODERN or AppLauncher.started, "imported before Isaac Sim was started"
for kind, made in KINDS.items():
    gymnasium.register(
        f"Isaac-Drift-{{kind.title()}}-v0",
        entry_point=lambda cfg, modern, env_cfg_entry_point, made=made: made(cfg, modern),
        kwargs={{"env_cfg_entry_point": kind, "modern": MODERN}},
    )
"""
_UTILS = """
import contextlib, gymnasium
from tests.isaaclab_double import make_cfg

def load_cfg_from_registry(task, entry_point):
    assert entry_point in gymnasium.spec(task).kwargs
    return make_cfg(1, modern={modern})
"""
_MODERN_UTILS = """
PRESETS, RUNNING = [], []

def resolve_presets(cfg, selected=()):
    PRESETS.append(set(selected))
    return cfg

@contextlib.contextmanager
def launch_simulation(cfg, arguments):
    RUNNING.append(arguments)
    yield
"""
_MATH = """
import torch

def quat_from_euler_xyz(roll, pitch, yaw):
    return torch.tensor([{identity}])
"""
_APP = """
import sys

class AppLauncher:
    started = []

    def __init__(self, **arguments):
        assert len(sys.argv) == 1, "overrides of ours reach Isaac Sim"
        AppLauncher.started.append(arguments)
"""


@contextlib.contextmanager
def installed(folder: Path, *, modern: bool) -> Iterator[None]:
    """Packages on the path that look like an installed Isaac Lab, which nobody started yet."""
    identity = "[0.0, 0.0, 0.0, 1.0]" if modern else "[1.0, 0.0, 0.0, 0.0]"
    files = {
        "isaaclab/__init__.py": "",
        "isaaclab/app.py": _APP,
        "isaaclab/utils/__init__.py": "",
        "isaaclab/utils/math.py": _MATH.format(identity=identity),
        "isaaclab_tasks/__init__.py": _TASKS.format(modern=modern),
        "isaaclab_tasks/utils/__init__.py": _UTILS.format(modern=modern)
        + (_MODERN_UTILS if modern else ""),
        **({"isaaclab_tasks/utils/sim_launcher.py": ""} if modern else {}),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        for name in [name for name in sys.modules if name.partition(".")[0].startswith("isaaclab")]:
            patch.delitem(sys.modules, name)
        make = importlib.import_module("sim.adapters.torch_envs.isaaclab_make")
        patch.setattr(make, "_open", [])
        patch.setattr(make, "_started", [])
        patch.setattr(sys, "argv", ["train.py", "env=isaaclab"])
        yield
    Episodes.open = 0
    for name in [name for name in gymnasium.registry if name.startswith("Isaac-Drift")]:
        del gymnasium.registry[name]
