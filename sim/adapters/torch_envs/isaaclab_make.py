"""Starts Isaac Lab (Mittal et al. 2023, "Orbit") and makes its tasks, whichever release is there.

2.x runs inside Isaac Sim, which must be started before anything else of it is imported. 3.x says
itself what a task needs: with Newton it runs without Isaac Sim. Either keeps one simulation in a
process, so training and evaluation share it.
"""

import contextlib
import difflib
import importlib
import importlib.util
import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch

from robot_rl.core.errors import ConfigError, unknown_name
from sim.adapters.torch_envs.config import FinalObs, IsaacLabConfig, import_tasks, put_settings
from sim.adapters.torch_envs.env import RandomStreams, TorchLayout, TorchWorldsEnv
from sim.adapters.torch_envs.isaaclab import IsaacLabWorlds, Release, SharedSimulation


def quaternion_orders(env: Any, named: Sequence[str], *, scalar_last: bool) -> dict[str, list[int]]:
    """Order of columns that brings the scalar of every quaternion to the front.

    Args:
        named: Quaternions as group/term, group/term:column or group:column; besides them, terms
            with `quat` in their name or their function's are found, if a multiple of four wide.
        scalar_last: Whether the version has them as x, y, z, w; else nothing is changed.

    Returns:
        Part of the observation (group, or group/term where a group is not joined) -> columns.

    Raises:
        ConfigError: A name or a column does not exist.
    """
    terms = {term.path: term for term in _terms(env)}
    firsts: dict[str, set[int]] = {}
    for term in terms.values():
        if term.is_called_quaternion and term.width % 4 == 0:
            found = range(term.first, term.first + term.width, 4)
            firsts.setdefault(term.part, set()).update(found)
    spaces = env.single_observation_space.spaces
    for entry in named:
        path, _, column = entry.partition(":")
        if not (column or "0").isdigit() or (not column and "/" not in path):
            raise ConfigError(
                f"env.quaternions has '{entry}'; expected group/term, group/term:column or "
                "group:column"
            )
        first = int(column or 0)
        if path in terms:
            term = terms[path]
            part, first, end = term.part, first + term.first, term.first + term.width
        elif path in spaces and hasattr(spaces[path], "low"):
            part, end = path, math.prod(spaces[path].shape)
        else:
            raise ConfigError(unknown_name("part of env.quaternions", path, {*terms, *spaces}))
        if first + 4 > end:
            raise ConfigError(f"env.quaternions has '{entry}', which ends at column {end}")
        firsts.setdefault(part, set()).add(first)
    if not scalar_last:
        return {}
    widths = {term.part: term.part_width for term in terms.values()}
    return {
        part: _order(columns, widths.get(part) or math.prod(spaces[part].shape))
        for part, columns in firsts.items()
    }


class _Term(NamedTuple):
    """A term of a manager-based environment, and where it lies."""

    path: str
    """Group/term."""
    part: str
    """Part of the observation: the group, or the path where a group is not joined."""
    part_width: int
    first: int
    """First column in the part."""
    width: int
    is_called_quaternion: bool


def _terms(env: Any) -> Iterator[_Term]:
    manager: Any = getattr(env, "observation_manager", None)
    for group, names in manager.active_terms.items() if manager else ():
        joined, first = manager.group_obs_concatenate[group], 0
        widths = [math.prod(shape) for shape in manager.group_obs_term_dim[group]]
        for name, width in zip(names, widths, strict=True):
            path, called = f"{group}/{name}", f"{name} {_function(env, group, name)}"
            if joined:
                yield _Term(path, group, sum(widths), first, width, "quat" in called)
            else:
                yield _Term(path, path, width, 0, width, "quat" in called)
            first += width


def _function(env: Any, group: str, name: str) -> str:
    """Name of a term's function, where the configuration says it."""
    observations: Any = getattr(env.cfg, "observations", None)
    for key in (group, name):
        if isinstance(observations, Mapping):
            observations = observations.get(key)
        else:
            observations = getattr(observations, key, None)
    function = getattr(observations, "func", None)
    return str(getattr(function, "__name__", function or ""))


def _order(firsts: set[int], width: int) -> list[int]:
    order = list(range(width))
    for first in firsts:
        order[first : first + 4] = [first + 3, first, first + 1, first + 2]
    return order


_logger = logging.getLogger(__name__)
_open: list[SharedSimulation] = []
"""The simulation of this process, if there is one: Isaac Lab's own rule, not ours."""
_started: list[Any] = []
"""Handle that keeps Isaac Sim running; it cannot be started twice."""


def make_isaaclab_env(
    config: IsaacLabConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> TorchWorldsEnv:
    """N worlds of a registered task.

    Args:
        evaluation: All episodes begin together.

    Raises:
        ConfigError: Isaac Lab is missing, the task or a setting is unknown, there is a simulation
            of another task already, or it cannot be learned from.
    """
    if not config.id:
        raise ConfigError("env.id is empty; say which task: env.id=Isaac-Velocity-Flat-Anymal-C-v0")
    streams = RandomStreams(device)
    key = (asdict(config), str(device))
    _open[:] = [simulation for simulation in _open if not simulation.closed]
    with streams.entered():
        if not _open:
            _open.append(SharedSimulation(_make(config, num_envs, device, seed), key))
    (simulation,) = _open
    if simulation.key != key:
        raise ConfigError(
            f"the task '{config.id}' was asked for beside '{simulation.key[0]['id']}', but Isaac "
            "Lab keeps one simulation in a process: close that one first"
        )
    worlds = simulation.share(num_envs)
    try:
        orders = quaternion_orders(
            worlds.env, config.quaternions, scalar_last=_release().scalar_last
        )
        layout = TorchLayout(worlds.env.single_observation_space, config.groups, orders)
        return TorchWorldsEnv(
            worlds, layout, config, device=device, seed=seed, stagger=not evaluation,
            streams=streams,
        )  # fmt: skip
    except BaseException:
        worlds.close()
        raise


def _make(config: IsaacLabConfig, num_envs: int, device: torch.device, seed: int) -> IsaacLabWorlds:
    package = importlib.util.find_spec("isaaclab_tasks")
    if importlib.util.find_spec("isaaclab") is None or package is None or not package.origin:
        raise ConfigError(
            "env=isaaclab needs the packages isaaclab and isaaclab_tasks, which are not installed "
            "for this Python; install Isaac Lab 2.x or 3.x by its own guide, then this package "
            'beside it (see "Adapters"), and start with that Python'
        )
    module, _, task = config.id.rpartition(":")
    launcher = Path(package.origin).parent / "utils" / "sim_launcher.py"
    with _bare_command_line():
        if not launcher.exists():  # 2.x
            if config.presets:
                raise ConfigError("env.presets has no meaning in Isaac Lab 2.x; leave it out")
            _start_isaac_sim(device)
        utils = _load("isaaclab_tasks.utils")
        import_tasks(module)
        _check_task(task)
        cfg = utils.load_cfg_from_registry(task, "env_cfg_entry_point")
        if hasattr(utils, "resolve_presets"):
            cfg = utils.resolve_presets(cfg, set(config.presets))
        put_settings(cfg, config.settings)
        cfg.scene.num_envs, cfg.sim.device, cfg.seed = num_envs, str(device), seed % 2**31
        if hasattr(cfg, "compute_final_obs"):
            cfg.compute_final_obs = config.final_obs is FinalObs.exact
        if launcher.exists():
            _logger.info("Isaac Lab starts; the first time it compiles for a minute")
            runtime = utils.launch_simulation(cfg, {"headless": True, "device": str(device)})
            runtime.__enter__()
            _started.append(runtime)
        env = gymnasium.make(task, cfg=cfg, disable_env_checker=True).unwrapped
    return IsaacLabWorlds(env, _release(), config.final_obs)


def _load(name: str) -> Any:
    """A module of Isaac Lab.

    Raises:
        ConfigError: Isaac Lab lacks something itself.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Isaac Lab is there, but its {name} cannot be imported: {error}; expected that its "
            "own scripts run with this Python: finish its installation first"
        ) from error


def _start_isaac_sim(device: torch.device) -> None:
    if not _started:
        app = _load("isaaclab.app")
        _started.append(app.AppLauncher(headless=True, device=str(device)))


def _release() -> Release:
    """Conventions of the installed version, read from its identity rotation."""
    zero = torch.zeros(1)
    maths = _load("isaaclab.utils.math")
    return Release.of(maths.quat_from_euler_xyz(zero, zero, zero)[0])


def _check_task(task: str) -> None:
    _load("isaaclab_tasks")
    if task not in gymnasium.registry:
        known = [name for name in gymnasium.registry if name.startswith("Isaac")]
        near = difflib.get_close_matches(task, known, n=3, cutoff=0.5)
        raise ConfigError(
            f"task of Isaac Lab '{task}' is unknown; "
            + (f"nearest: {', '.join(near)}" if near else f"{len(known)} others are known")
            + "; tasks of other packages are known after their module is named: "
            "env.id=module:Task"
        )


@contextlib.contextmanager
def _bare_command_line() -> Iterator[None]:
    """Isaac Sim and Isaac Lab read sys.argv, where our own overrides mean nothing to them."""
    arguments, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = arguments
