"""Speed of the hover task with everything: observation, reward, noise, history, resets."""

import time
from collections.abc import Sequence
from functools import partial

import torch

from scripts.bench.tasks import task_env
from scripts.bench.timing import Section, interleave
from sim.env import SimEnv
from sim.robots.multirotor_expert import MultirotorExpert
from sim.robots.multirotor_simulation import MultirotorSimulation

BAR, BAR_SIZE = 1.5, 4096
"""Million world-steps/s with full task logic that are asked for, and in how many worlds."""


def measure_worlds(sizes: Sequence[int], *, rounds: int, world_steps: int) -> list[Section]:
    """Physics alone, and the task with an action that crashes and a controller that does not.

    Only the worlds' own time counts, not that of whoever requests.

    Args:
        sizes: Numbers of worlds.
        rounds: Turns of each contender.
        world_steps: Steps of all worlds in one turn.
    """
    sections = []
    for size in sizes:
        steps = max(10, world_steps // size)
        crashing, flying = Flight(size, expert=False), Flight(size, expert=True)
        contenders = {
            "physics and sensors alone": partial(
                physics_alone, task_env(["task=hover"], size), steps
            ),
            "task, zero action, many resets": partial(crashing.measure, steps),
            "task, hovering, few resets": partial(flying.measure, steps),
        }
        notes = {
            "task, zero action, many resets": crashing.note,
            "task, hovering, few resets": flying.note,
        }
        sections.append(
            interleave(
                f"hover, {size} worlds, one thread",
                "M world-steps/s",
                contenders,
                rounds=rounds,
                notes=notes,
            )
        )
    return sections


def physics_alone(env: SimEnv, steps: int) -> float:
    """Million world-steps/s of the engine with noisy sensors, rotors at half speed."""
    simulation = env.simulation
    env.reset(seed=0)
    command = env.action_map.to_command(torch.zeros(simulation.num_worlds, 4))
    start = time.perf_counter()
    for _ in range(steps):
        simulation.step(command)
    return steps * simulation.num_worlds / (time.perf_counter() - start) * 1e-6


class Flight:
    """The task, acted on by zeros or by the controller with full knowledge."""

    def __init__(self, size: int, *, expert: bool) -> None:
        """Make N worlds."""
        self._env = task_env(["task=hover"], size)
        simulation = self._env.simulation
        assert isinstance(simulation, MultirotorSimulation)
        self._expert = MultirotorExpert(simulation) if expert else None
        self._zero = torch.zeros(size, 4)
        self._steps, self._ended = 0, torch.zeros(())

    def measure(self, steps: int) -> float:
        """Million world-steps/s of `env.step` alone."""
        env, seconds = self._env, 0.0
        for _ in range(steps):
            action = self._zero if self._expert is None else self._expert.act()
            start = time.perf_counter()
            step = env.step(action)
            seconds += time.perf_counter() - start
            self._ended += step.ended.sum()
        env.check()
        self._steps += steps
        return steps * env.spec.num_envs / seconds * 1e-6

    def note(self, median: float) -> str:
        """Number of resets, and whether the bar is reached."""
        env = self._env
        share = float(self._ended) / max(1, self._steps * env.spec.num_envs)
        resets = f"a reset in every {1 / share:.0f} world-steps" if share else "no resets"
        if env.spec.num_envs < BAR_SIZE:
            return resets
        return f"{resets}; bar {BAR}: {'reached' if median >= BAR else 'missed'}"
