"""Plays trained policies, and controllers that were not learned, under named conditions."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.builders import run_device
from configs.compose import from_plain, to_plain
from configs.schema import RunConfig
from robot_rl.cli.components import load_policy, make_sim_env
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError
from robot_rl.training.evaluation import evaluate
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.runs.run_folder import RunFolder
from scripts.proofs.pages.record import TrialResult
from sim.env import SimEnv
from sim.robots.multirotor_expert import MultirotorExpert, NominalController
from sim.robots.multirotor_simulation import MultirotorSimulation

TEST_SEED = 2_000_003
"""Starts of every trial: those of `robot-rl evaluate`, never those of validation."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Where, and on which robot, policies are flown."""

    name: str
    about: str
    """For the page, one sentence or two."""
    overrides: tuple[str, ...] = ()
    """Fields of task and robot that differ from the training's."""
    box: float | None = None
    """Half-width of a box around the goal that a successful flight never leaves [m]."""
    lost: tuple[tuple[str, str | float], ...] = ()
    """Pairs: a metric, and what an episode that was ended counts with in `<metric>_all`, which is
    over all episodes: a number, or another metric's value in its last step."""


def fly_policy(run: RunFolder, condition: Condition, *, episodes: int) -> tuple[TrialResult, int]:
    """Fly a run's best policy; returns the outcome and the world-step it was saved at."""
    config = from_plain(run.config(), condition.overrides)
    env = _worlds(config, episodes)
    policy = load_policy(run, config, env.spec, "best")
    return _fly(env, policy.module, condition), policy.step


@dataclass(frozen=True, kw_only=True)
class Controller:
    """A controller of multirotors that was not learned, to compare with."""

    name: str
    about: str
    """For the page."""
    make: Callable[[MultirotorSimulation], MultirotorExpert | NominalController]


FULL_KNOWLEDGE = Controller(
    name="controller with full knowledge",
    about="`sim/robots/multirotor_expert.py` on the true state, with the mass, inertia, rotor lag "
    "and disturbances of its own world, which no policy sees.",
    make=MultirotorExpert,
)
GEOMETRIC = Controller(
    name="geometric controller",
    about="`agent=geometric`: the same law on what is measured, with integrals of position and "
    "lean. It knows the numbers of the condition's plant as described, and nothing of what a "
    "world draws.",
    make=NominalController,
)


def fly_controller(
    controller: Controller, config: RunConfig, condition: Condition, *, episodes: int
) -> TrialResult:
    """Fly a controller that was not learned, in the worlds of a policy.

    Raises:
        ConfigError: The robot is not a multirotor.
    """
    env = _worlds(from_plain(to_plain(config), condition.overrides), episodes)
    if not isinstance(env.simulation, MultirotorSimulation):
        raise ConfigError(f"the {controller.name} flies multirotors alone")
    expert = controller.make(env.simulation)
    return _fly(env, lambda obs: expert.act(env.task.goal), condition)


def _worlds(config: RunConfig, episodes: int) -> SimEnv:
    return make_sim_env(
        config,
        num_envs=episodes,
        device=run_device(config),
        seed=TEST_SEED,
        evaluation=True,
    )


def _fly(env: SimEnv, act: Callable[[Obs], Tensor], condition: Condition) -> TrialResult:
    fence = _Fence(env, act, condition.box)
    result = evaluate(env, fence, seed=TEST_SEED)
    ended = result.lost | fence.left
    success = result.success & ~fence.left
    count = int(success.sum())
    low, high = wilson_interval(count, success.numel())
    metrics = {name: _describe(values[~ended]) for name, values in result.metrics.items()}
    for name, instead in condition.lost:
        # Who was lost counts with the loss, not with the good part before it.
        loss = result.metrics[instead] if isinstance(instead, str) else instead
        metrics[f"{name}_all"] = _describe(torch.where(ended, loss, result.metrics[name]))
    metrics["return"] = _describe(result.returns)
    return TrialResult(
        episodes=success.numel(),
        success=count / success.numel(),
        low=low,
        high=high,
        ended=float(ended.float().mean()),
        metrics=metrics,
    )


class _Fence:
    """Watches the true positions of the first episodes while a policy acts."""

    def __init__(self, env: SimEnv, act: Callable[[Obs], Tensor], box: float | None) -> None:
        self._env, self._act, self._box = env, act, box
        self._steps = 0
        self.left = torch.zeros(env.spec.num_envs, dtype=torch.bool, device=env.spec.device)
        """(N,): has been outside the box."""

    def __call__(self, obs: Obs) -> Tensor:
        if self._box is not None and self._steps < self._env.task.episode_steps:
            offset = self._env.simulation.true_state.position_w - self._env.task.goal["position_w"]
            self.left |= (offset.abs() > self._box).any(-1)
        self._steps += 1
        return self._act(obs)


def _describe(values: Tensor) -> dict[str, float | None]:
    values = values[values.isfinite()].double()
    if values.numel() == 0:
        return dict.fromkeys(("mean", "median", "p95", "max"))
    return {
        "mean": float(values.mean()),
        "median": float(values.median()),
        "p95": float(values.quantile(0.95)),
        "max": float(values.max()),
    }
