"""MuJoCo Warp on this processor: what capturing a control period as a graph saves."""

import itertools
from collections.abc import Callable, Iterator

from scripts.bench.simulation import environment_speed, in_words, speed_of
from scripts.bench.tasks import ROBOTS, task_env
from scripts.bench.timing import Section, interleave
from sim.env import SimEnv
from sim.physics.warp_engine import MujocoWarpEngine
from sim.robots.joint_simulation import MujocoSimulation

SIZE = 16
"""Worlds of each contender: on a processor Warp steps them one after another."""
STEPS = 10
"""Of all worlds in one turn."""


def measure_captured(*, rounds: int, quick: bool) -> Iterator[Section]:
    """Each robot's table.

    Args:
        rounds: Turns of each contender.
        quick: Tiny sizes.
    """
    size, steps = (2, 2) if quick else (SIZE, STEPS)
    for robot, task in itertools.islice(ROBOTS.items(), 1 if quick else None):
        told = [f"task={task}", f"robot={robot}"]
        # Each in worlds of its own: whoever steps without graphs drops them.
        captured, eager, whole, in_c = (
            task_env([*told, f"robot.engine={kind}"], size)
            for kind in ("warp", "warp", "warp", "batch")
        )
        yield interleave(
            f"{task} with {robot}, {size} worlds, {in_words(1)}", "control steps/s",
            {
                "Warp, captured": _engine_speed(captured, steps),
                "Warp, kernel by kernel": _engine_speed(eager, steps, captured=False),
                "MuJoCo in C": _engine_speed(in_c, steps),
                "Warp, the whole task": environment_speed(whole, steps),
            },
            rounds=rounds,
        )  # fmt: skip


def _engine_speed(env: SimEnv, steps: int, *, captured: bool = True) -> Callable[[], float]:
    """Control steps per second, of all worlds together, of an engine alone; its controls stand."""
    simulation = env.simulation
    assert isinstance(simulation, MujocoSimulation)
    engine = simulation.engine
    start = engine.state_dict()

    def step(i: int) -> None:
        if i == 0:
            engine.load_state_dict(start)
        if not captured:
            assert isinstance(engine, MujocoWarpEngine)
            engine.forget_graphs()
        engine.step()

    return speed_of(step, engine.num_worlds, steps)
