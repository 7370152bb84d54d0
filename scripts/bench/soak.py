"""A million random world-steps of every task and robot: is all of it a number, does it go on?"""

import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.catalog import CONFIGS, choices
from configs.compose import compose
from robot_rl.core.env import BatchEnv, EnvStep
from robot_rl.core.errors import ConfigError, NonFiniteError, unknown_name
from robot_rl.training.runs.provenance import git_state, short_commit
from scripts.bench.tasks import task_env
from scripts.proofs.pages.results import write_json

SIZE = 256
"""Worlds of each."""
_CHECKED_EVERY = 1_000
"""Steps between two looks at what the environment itself has noticed."""
_STYLE_STEPS, _HELD_STEPS = 100, 10
"""Before the kind of random actions changes; that an action is held in one of the kinds."""
_FURTHER = (("reach", "ur5e"), ("velocity", "go1"))
"""Robots for which a task needs no fitting."""


def subjects(named: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Overrides of each task with its own robot, and with every other that it is fitted to.

    Args:
        named: Tasks; all where there are none.

    Raises:
        ConfigError: There is no such task.
    """
    for task in named:
        if task not in choices("task"):
            raise ConfigError(unknown_name("task", task, choices("task")))
    fitted = [
        (task, robot)
        for path in sorted((CONFIGS / "fitted").glob("*.yaml"))
        for task, robot in product(choices("task"), choices("robot"))
        if path.stem == f"{task}_{robot}"
    ]
    tasks = [task for task in choices("task") if not named or task in named]
    own = {task: compose([f"task={task}"]).chosen["robot"] for task in tasks}
    others = [
        (f"task={task}", f"robot={robot}")
        for task, robot in (*_FURTHER, *fitted)
        if task in own and robot != own[task]
    ]
    return [*((f"task={task}",) for task in tasks), *others]


def soak_all(
    named: Sequence[str], world_steps: int, path: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Play all subjects; those that the file has of this commit are not played again.

    Args:
        named: Tasks; all where there are none.
        world_steps: Of each, over all its worlds.
        path: Takes what was found, after each subject.
        say: Takes a line for each.
    """
    commit = short_commit(git_state(Path(__file__).parent))
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for overrides in subjects(named):
        name = " ".join(overrides)
        before = found.get(name, {})
        if before.get("world_steps", 0) < world_steps or before.get("commit") != commit:
            found[name] = {**soak(overrides, world_steps), "commit": commit}
            write_json(path, found, what="what was found")
        one = found[name]
        say(
            f"{name}: {one['world_steps']:,} world-steps in {one['seconds']:.0f} s, "
            f"{one['ended']:,} episodes ended, {one['invalid']:,} steps invalid, "
            f"{one['not_finite']:,} not finite{one['first'] and ': ' + one['first']}"
        )
    return found


def soak(overrides: Sequence[str], world_steps: int) -> dict[str, Any]:
    """Play one subject with random actions: drawn anew, held, and at their limits by turns."""
    env = task_env(list(overrides), SIZE)
    generator = torch.Generator().manual_seed(0)
    start, steps = time.perf_counter(), -(-world_steps // SIZE)
    ended = invalid = not_finite = 0
    first, action = "", torch.zeros(SIZE, env.spec.action_size)
    for i in range(steps):
        action = _action(env, action, i, generator)
        step = env.step(action)
        ended += int(step.ended.sum())
        invalid += int((~step.valid).sum())
        bad = _not_finite(step)
        not_finite += len(bad)
        first = first or (f"step {i}, {bad[0]}" if bad else "")
        if i % _CHECKED_EVERY == 0 or i == steps - 1:
            try:
                env.check()
            except NonFiniteError as error:
                not_finite += 1
                first = first or str(error)
    env.close()
    return {
        "world_steps": steps * SIZE, "seconds": time.perf_counter() - start, "ended": ended,
        "invalid": invalid, "not_finite": not_finite, "first": first,
    }  # fmt: skip


def _action(env: BatchEnv, before: Tensor, i: int, generator: torch.Generator) -> Tensor:
    style = i // _STYLE_STEPS % 3
    if style == 1 and i % _HELD_STEPS:
        return before
    unit = 2 * torch.rand(env.spec.num_envs, env.spec.action_size, generator=generator) - 1
    return unit.sign() if style == 2 else unit


def _not_finite(step: EnvStep) -> list[str]:
    """Names of what is not a number somewhere in a step."""
    parts = {"reward": step.reward}
    for kind, groups in (("observation", step.obs), ("successor", step.next_obs)):
        parts |= {f"{kind} {name}": values for name, values in groups.items()}
    return [name for name, values in parts.items() if not bool(values.isfinite().all())]
