"""Worlds of mjlab (Zakka et al., mjlab: MuJoCo Warp behind Isaac Lab's manager API), 1.6.

By itself mjlab begins new episodes in the step that ends them and loses the last observation. With
`auto_reset` off it returns that observation and waits to be asked, which is done in the same step.
A reset of some worlds draws the others' noise anew, so only its own rows are used.
"""

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, MissingExtraError, SpecMismatchError, unknown_name
from sim.adapters.torch_envs.config import MjlabConfig, import_tasks, put_settings
from sim.adapters.torch_envs.env import RandomStreams, TorchLayout, TorchWorldsEnv, WorldStep
from sim.physics import warp_start

_logger = logging.getLogger(__name__)


class MjlabWorlds:
    """An environment of mjlab that does not reset by itself."""

    def __init__(self, env: Any) -> None:
        """Take the environment over.

        Args:
            env: A `ManagerBasedRlEnv` whose `cfg.auto_reset` is False.

        Raises:
            SpecMismatchError: It would reset by itself, and lose last observations.
        """
        if getattr(env.cfg, "auto_reset", True):
            raise SpecMismatchError(
                f"{type(env).__name__} resets by itself and loses the last observation of an "
                "episode; expected cfg.auto_reset=False, which mjlab has since 1.6"
            )
        self.env, self.num_envs = env, int(env.num_envs)

    @property
    def steps(self) -> int:
        """Steps since the run began, which curricula follow."""
        return int(self.env.common_step_counter)

    @steps.setter
    def steps(self, value: int) -> None:
        self.env.common_step_counter = value

    def reset(self, seed: int | None, ids: Tensor | None) -> Mapping[str, Any]:
        """Begin new episodes; with a seed, parameters drawn at start-up are drawn anew too."""
        with _quiet():
            if seed is not None:
                self.env.seed(seed)
                if "startup" in self.env.event_manager.available_modes:
                    self.env.event_manager.apply(mode="startup")
            return self.env.reset(env_ids=ids)[0]

    def step(self, action: Tensor) -> WorldStep:
        """Step, and begin anew at once where an episode ended."""
        last, reward, terminated, truncated, extras = self.env.step(action)
        log = dict(extras["log"])
        ended = (terminated | truncated).nonzero()[:, 0]
        begun = last
        if len(ended):
            begun, extras = self.env.reset(env_ids=ended)
            log |= extras["log"]
        return WorldStep(
            stayed=last, final=last, begun=begun, reward=reward, terminated=terminated,
            truncated=truncated, log=log,
        )  # fmt: skip

    def term(self, name: str) -> Tensor | None:
        """(N,) bool: a termination term in the last step."""
        return self.env.termination_manager.get_term(name)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def make_mjlab_env(
    config: MjlabConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> TorchWorldsEnv:
    """N worlds of a registered task.

    Args:
        evaluation: All episodes begin together.

    Raises:
        ConfigError: The task or a setting is unknown, or it cannot be learned from.
        MissingExtraError: mjlab is not installed.
    """
    if not config.id:
        raise ConfigError("env.id is empty; say which task: env.id=Mjlab-Velocity-Flat-Unitree-Go1")
    warp_start.start()
    streams = RandomStreams(device)
    with streams.entered(), _quiet(), _without_gl():
        make, registry = _mjlab()
        module, _, task = config.id.rpartition(":")
        import_tasks(module)
        if task not in registry.list_tasks():
            raise ConfigError(unknown_name("task of mjlab", task, registry.list_tasks()))
        cfg = registry.load_env_cfg(task)
        cfg.auto_reset = False
        put_settings(cfg, config.settings)
        cfg.scene.num_envs, cfg.seed = num_envs, seed % 2**31
        _logger.info("mjlab compiles its kernels: up to a minute the first time")
        env = make(cfg, device=str(device))
    worlds = MjlabWorlds(env)
    layout = TorchLayout(env.single_observation_space, config.groups)
    return TorchWorldsEnv(
        worlds, layout, config, device=device, seed=seed, stagger=not evaluation, streams=streams
    )


@contextlib.contextmanager
def _without_gl() -> Iterator[None]:
    """Nothing is drawn here, and GL may be missing; whoever draws later finds what was said."""
    before = os.environ.get("MUJOCO_GL")
    os.environ.setdefault("MUJOCO_GL", "disabled")
    try:
        yield
    finally:
        if before is None:
            del os.environ["MUJOCO_GL"]


def _mjlab() -> tuple[Any, Any]:
    """The class of environments, and the registry with all tasks."""
    try:
        from mjlab.envs import ManagerBasedRlEnv  # pyright: ignore[reportMissingImports]  an extra
        from mjlab.tasks import registry  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "mjlab", "mjlab", "env=mjlab (in a Python environment of its own)"
        ) from error
    return ManagerBasedRlEnv, registry


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the tables of every manager and the line for every seed that mjlab prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
