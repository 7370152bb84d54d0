"""Makes a registered Gymnasium environment, and turns what can go wrong into sentences."""

import copy
import difflib
import importlib
import inspect
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import gymnasium
import torch
from gymnasium.envs.registration import EnvSpec as Registered
from gymnasium.vector import AutoresetMode

from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from sim.adapters.envpool_env import EnvpoolWorlds
from sim.adapters.gymnasium_config import GymnasiumConfig, WorldEngine
from sim.adapters.gymnasium_env import GymnasiumEnv
from sim.adapters.gymnasium_mujoco import can_make, make_mujoco_worlds

_GIVEN = "given/"
"""Namespace of environments that were given as objects."""
_SUCCESS_KEYS = ("success", "is_success")


def make_gymnasium_env(
    config: GymnasiumConfig, *, num_envs: int, device: torch.device, seed: int
) -> BatchEnv:
    """N worlds of a registered environment.

    Raises:
        ConfigError: The id is unknown, its arguments do not fit, or it cannot be learned from.
    """
    batch = config.engine is WorldEngine.batch
    if batch or (config.engine is WorldEngine.auto and can_make(config)):
        return make_mujoco_worlds(config, num_envs=num_envs, device=device, seed=seed)
    if config.engine is WorldEngine.envpool:
        return _make_envpool(config, num_envs=num_envs, device=device, seed=seed)
    registered = _find(config.id)
    if config.pixels:
        config = replace(config, kwargs={"render_mode": "rgb_array", **config.kwargs})
    with _clear_errors(config):
        if registered.entry_point is not None:
            config = _complete(config)
        vectorised = registered.vector_entry_point is not None and not config.processes
        if vectorised and not config.pixels:
            worlds = gymnasium.make_vec(config.id, num_envs, **config.kwargs)
        else:
            with _ignoring_ctrl_c() if config.processes else nullcontext():
                worlds = gymnasium.make_vec(
                    config.id,
                    num_envs,
                    vectorization_mode="async" if config.processes else "sync",
                    # Not SAME_STEP: the last observation of an environment that changes its array
                    # in place would be the first one of the next episode. Copies would be made
                    # twice: what the worlds return is read at once.
                    vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED, "copy": False},
                    wrappers=[with_pixels] if config.pixels else None,
                    **{"disable_env_checker": True, **config.kwargs},
                )
    return GymnasiumEnv(worlds, config, device=device, seed=seed)


def make_single(config: GymnasiumConfig, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """One environment as Gymnasium makes it.

    Args:
        arguments: Of `gymnasium.make` beside `config.kwargs`, such as `render_mode`.

    Raises:
        ConfigError: The id is unknown, or the arguments do not fit.
    """
    _find(config.id)
    with _clear_errors(config):
        return gymnasium.make(config.id, **{**config.kwargs, **arguments})


def register(env: Any) -> str:
    """Id of an environment that was given as an object, in this process.

    Args:
        env: A function that makes an environment, or an environment; the latter is found by its own
            id where it has one, and copied otherwise.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(env, gymnasium.Env):
        made: Any = env  # unparametrised
        if _as_registered(made.spec):
            return made.spec.id
        name, make = type(made.unwrapped).__name__, lambda **_: copy.deepcopy(made)
    elif callable(env):
        name, make = getattr(env, "__name__", "made"), _with_render_mode(env)
    else:
        raise ConfigError(
            f"env is a {type(env).__name__}; expected an id such as 'Pendulum-v1', a Gymnasium "
            "environment, or a function that makes one"
        )
    source = type(env.unwrapped) if isinstance(env, gymnasium.Env) else env
    home = f"{getattr(source, '__module__', '')}.{getattr(source, '__qualname__', name)}"
    # Of its home, so that a run never goes on in another class of the same name.
    word = "".join(c if c.isalnum() else "_" for c in name).strip("_") or "made"
    word = f"{_GIVEN}{word}_{zlib.crc32(home.encode()):08x}"
    number = sum(one.startswith(f"{word}-v") for one in gymnasium.registry)
    gymnasium.register(id=(new := f"{word}-v{number}"), entry_point=make)
    return new


def _as_registered(spec: Registered | None) -> bool:
    """True for an environment that its id alone makes again: no wrapper, no argument, no limit."""
    if spec is None or spec.id not in gymnasium.registry or spec.additional_wrappers:
        return False
    plain = gymnasium.registry[spec.id]
    return spec.kwargs == plain.kwargs and spec.max_episode_steps == plain.max_episode_steps


def _with_render_mode(make: Callable[..., Any]) -> Callable[..., Any]:
    """A maker of environments that is given a render mode only where it takes one."""
    takes = inspect.signature(make).parameters
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())

    def made(**arguments: Any) -> Any:
        if not anything and "render_mode" not in takes:
            arguments.pop("render_mode", None)
        return make(**arguments)

    return made


def with_pixels(world: gymnasium.Env[Any, Any]) -> gymnasium.Wrapper[Any, Any, Any, Any]:
    """The same world, whose observation has the picture that it renders, `pixels`.

    Raises:
        ConfigError: It renders nothing here.
    """
    try:
        return gymnasium.wrappers.AddRenderObservation(
            world, render_only=False, render_key="pixels", obs_key="observation"
        )
    except Exception as error:  # renderers raise errors of many types
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"env.pixels: {world} renders nothing here ({type(error).__name__}: {reason}); "
            "MuJoCo's environments need MUJOCO_GL=egl or MUJOCO_GL=osmesa where there is no screen"
        ) from error


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Processes that are started within never hear of it: a terminal sends it to all of them.

    They would end at once, in the middle of the step that is to be finished and saved.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _make_envpool(
    config: GymnasiumConfig, *, num_envs: int, device: torch.device, seed: int
) -> GymnasiumEnv:
    for name in ("processes", "pixels"):
        if getattr(config, name):
            raise ConfigError(
                f"env.{name} has no meaning with env.engine=envpool, which has threads and draws "
                "nothing; choose env.engine=gymnasium"
            )
    worlds = EnvpoolWorlds(
        config.id, num_envs, threads=config.physics_threads, kwargs=config.kwargs
    )
    told = [key for key in _SUCCESS_KEYS if key in worlds.first_info]
    config = replace(config, success=config.success or told)
    return GymnasiumEnv(worlds, config, device=device, seed=seed)


def _complete(config: GymnasiumConfig) -> GymnasiumConfig:
    """Settings completed by what one step of one env tells."""
    single: Any = make_single(config)
    try:
        single.reset(seed=0)
        told = {}
        known = (gymnasium.spaces.Box, gymnasium.spaces.Discrete)
        if isinstance(single.action_space, known):  # others are refused later
            single.action_space.seed(0)
            told = single.step(single.action_space.sample())[-1]
        return replace(
            config,
            success=config.success or [key for key in _SUCCESS_KEYS if key in told],
            control_dt=config.control_dt or float(getattr(single.unwrapped, "dt", 0.0)),
        )
    finally:
        single.close()


def _find(name: str) -> Registered:
    if not name:
        raise ConfigError("env.id is empty; say which environment: env.id=Hopper-v5")
    module, _, registered = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)  # its ids are known only then
        return gymnasium.spec(registered)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"environment id '{name}' names a module that cannot be imported: {error}"
        ) from error
    except gymnasium.error.Error as error:
        if name.startswith(_GIVEN):
            raise ConfigError(
                f"the environment '{name}' was given to Python as an object, and is known in that "
                "program alone: register it with Gymnasium and name its id, env.id=module:Name-v0"
            ) from error
        near = difflib.get_close_matches(registered, gymnasium.registry, n=3, cutoff=0.5)
        near = [f"{module}:{one}" if module else one for one in near]
        hint = f"nearest: {', '.join(near)}" if near else "none has a similar name"
        raise ConfigError(
            f"environment id '{name}' is unknown to Gymnasium; {hint}; ids of other packages are "
            "known after their module is named: env.id=module:Name-v0"
        ) from error


@contextmanager
def _clear_errors(config: GymnasiumConfig) -> Iterator[None]:
    """Turn refusals of a maker (unknown arguments, missing packages) into our errors."""
    try:
        yield
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"the environment '{config.id}' cannot be made with env.kwargs={config.kwargs}: "
            f"{reason}"
        ) from error
