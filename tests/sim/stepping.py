"""Contexts of tasks that stand alone, and their outcomes as numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot import RobotSpec
from sim.task import StepOutcome, TaskContext

TASKS = Path(__file__).resolve().parents[2] / "configs" / "task"


def context(num_envs: int, control_dt: float, **given: Any) -> TaskContext:
    """Envs of a task on the CPU, in evaluation unless the test says otherwise."""
    values = {"device": torch.device("cpu"), "evaluation": True, "robot": RobotSpec(name="robot")}
    return TaskContext(num_envs=num_envs, control_dt=control_dt, **(values | given))


def terms_of(outcome: StepOutcome, env: int = 0) -> dict[str, float]:
    """Reward terms of one env."""
    return {name: float(values[env]) for name, values in outcome.reward_terms.items()}


def term(outcome: StepOutcome, name: str) -> float:
    """One reward term of the first env."""
    return float(outcome.reward_terms[name][0])


def everyone(num_envs: int) -> EnvSelection:
    """All envs."""
    return EnvSelection(torch.ones(num_envs, dtype=torch.bool))


def weights(task: str, **given: float) -> dict[str, float]:
    """Weights of a task: those given, and 0 for every other term that its YAML file weighs."""
    reward = yaml.safe_load((TASKS / f"{task}.yaml").read_text())["reward"]
    names = {**reward["initial"], **reward.get("final", {})} if "initial" in reward else reward
    return dict.fromkeys(names, 0.0) | given


def made(make: Callable[..., Any], **arguments: Any) -> Callable[[int, int, torch.device], Any]:
    """A maker for `EnvCase.make`."""
    return lambda count, seed, device: make(count, seed=seed, device=device, **arguments)


def endless(make: Callable[..., Any], **arguments: Any) -> Callable[[int, torch.device], Any]:
    """A maker for `EnvCase.endless`; the arguments let no episode end but by its time limit."""
    return lambda count, device: make(count, device=device, **arguments)
