"""Speed of the multirotor engine on one thread, beside the `l2f` package where it is installed.

    python -m scripts.bench physics l2f_python=/path/to/venv/bin/python

All contenders fly the same number of worlds and take turns, so that a busy machine slows all of
them; a figure is the median of the rounds. l2f steps its dynamics alone, as does the first row.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sim.physics.multirotor_engine import MultirotorEngine
from sim.physics.multirotor_model import (
    ANGULAR_VELOCITY,
    NOISE_WIDTH,
    ORIENTATION,
    PARAM_COLUMNS,
    ROTOR_SPEED,
    MultirotorModel,
)

STEPS = 500
"""Steps between resets: 5 s of flight."""
BATCHES = 5
"""Resets in one measurement."""

# Crazyflie with its measured thrust curve (Eschmann et al. 2024), noise of its flow deck.
CRAZYFLIE = MultirotorModel(
    mass=0.0306,
    inertia=[9.4166e-6, 9.6441e-6, 1.74595e-5],
    thrust_curve=[0.00352526, 0.01437313, 0.09223048],
    torque_per_thrust=4.665e-3,
    rotor_rise_time=0.05545,
    rotor_fall_time=0.24939,
    rotor_position=[[0.028, -0.028], [-0.028, -0.028], [-0.028, 0.028], [0.028, 0.028]],
    rotor_yaw_sign=[-1.0, 1.0, -1.0, 1.0],
    noise_position=0.001,
    noise_attitude=0.001,
    noise_velocity=0.002,
    noise_gyro=0.002,
)


class Flight:
    """N worlds from random states at constant random setpoints; measures seconds per step."""

    def __init__(self, num_worlds: int, device: str, delay: int, noise: str) -> None:
        self._engine = MultirotorEngine(
            num_worlds, physics_dt=0.01, max_action_delay=delay, max_latency=delay, device=device
        )
        self._engine.params[:] = CRAZYFLIE.row()
        self._engine.params[:, PARAM_COLUMNS["action_delay"]] = float(delay)
        self._engine.params[:, PARAM_COLUMNS["latency"]] = float(delay)
        # Alike for a world's rotors: who tumbles for seconds is taken out of service.
        self._setpoint = (0.8 + 0.1 * torch.rand(num_worlds, 1, device=device)).repeat(1, 4)
        self._normals = torch.randn(num_worlds, NOISE_WIDTH, device=device)
        self._noise = noise

    def seconds_per_step(self) -> float:
        """Mean over `STEPS` steps of flight."""
        self._reset()
        if self._engine.device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            if self._noise == "drawn":
                self._normals.normal_()
            self._engine.step(self._setpoint, None if self._noise == "none" else self._normals)
        if self._engine.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / STEPS
        if self._engine.fault.any():
            raise RuntimeError("a world became non-finite; the figures would not count")
        return seconds

    def _reset(self) -> None:
        engine = self._engine
        engine.state[:] = 0.1 * torch.randn(engine.num_worlds, 17, device=engine.device)
        engine.state[:, ORIENTATION] += torch.tensor([1.0, 0.0, 0.0, 0.0], device=engine.device)
        engine.state[:, ORIENTATION] /= engine.state[:, ORIENTATION].norm(dim=1, keepdim=True)
        engine.state[:, ANGULAR_VELOCITY] *= 10.0
        engine.state[:, ROTOR_SPEED] = 0.5
        everywhere = torch.ones(engine.num_worlds, dtype=torch.bool, device=engine.device)
        engine.settle(everywhere, self._setpoint, None)


class L2f:
    """The l2f package in an interpreter of its own, one thread."""

    def __init__(self, python: str, num_worlds: int) -> None:
        """Start the other interpreter; raises FileNotFoundError where it has no l2f."""
        script = Path(__file__).with_name("l2f_server.py")
        self._process = subprocess.Popen(
            [python, str(script), str(num_worlds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        if self._stdout.readline().strip() != "ready":
            self.close()
            raise FileNotFoundError(f"{python} cannot import l2f for {num_worlds} worlds")

    def seconds_per_step(self) -> float:
        """Mean over a flight of 500 steps."""
        self._stdin.write("\n")
        self._stdin.flush()
        return float(self._stdout.readline())

    def close(self) -> None:
        """End the other interpreter."""
        self._stdin.close()
        self._process.wait(timeout=10)


def run(
    num_worlds: int = 4096,
    *,
    rounds: int = 5,
    device: str = "cpu",
    l2f_python: str | None = None,
) -> dict[str, float]:
    """Measure all contenders in turn and print a table.

    Args:
        num_worlds: Worlds of every contender; l2f knows powers of two up to 8192.
        rounds: Measurements of each; the median counts.
        device: Device of our engine.
        l2f_python: Interpreter that has l2f; None tries the present one.

    Returns:
        Million world-steps per second, median, by contender.
    """
    torch.set_num_threads(1)
    contenders: dict[str, Callable[[], float]] = {
        "physics": Flight(num_worlds, device, 0, "none").seconds_per_step,
        "physics, noisy sensors": Flight(num_worlds, device, 0, "given").seconds_per_step,
        "physics, noisy sensors, delays of 2": Flight(
            num_worlds, device, 2, "given"
        ).seconds_per_step,
        "physics, noisy sensors, drawing normals": Flight(
            num_worlds, device, 0, "drawn"
        ).seconds_per_step,
    }
    try:
        l2f = L2f(l2f_python or sys.executable, num_worlds)
        contenders["l2f"] = l2f.seconds_per_step
    except FileNotFoundError as error:
        print(f"l2f is absent: {error}")
        l2f = None
    for measure in contenders.values():
        measure()  # warm caches
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            seconds = sum(measure() for _ in range(BATCHES)) / BATCHES
            samples[name].append(num_worlds / seconds * 1e-6)
    if l2f is not None:
        l2f.close()
    return _report(samples, num_worlds)


def _report(samples: dict[str, list[float]], num_worlds: int) -> dict[str, float]:
    print(f"{num_worlds} worlds, one thread, median of {len(next(iter(samples.values())))} rounds")
    for name, values in samples.items():
        line = f"{name:42s}{statistics.median(values):8.2f} M world-steps/s"
        line += f"  ({min(values):.2f} to {max(values):.2f})"
        if "l2f" in samples and name != "l2f":
            ratios = [a / b for a, b in zip(values, samples["l2f"], strict=True)]
            line += f"  {statistics.median(ratios):5.1f} times l2f"
        print(line)
    return {name: statistics.median(values) for name, values in samples.items()}
