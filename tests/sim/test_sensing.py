"""Simulated sensors by hand: rate, loss, latency, jitter, bias, noise, resolution, attitudes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot import SensorSpec
from sim.robots.joint_robot import JointRandomization
from sim.sensing import SimulatedSensors
from tests.fakes import CPU
from tests.sim.arms import arms, hold, panda

DT = 0.01


def sensors(
    count: int, *, specs: dict[str, SensorSpec] | None = None, widths: dict[str, int] | None = None,
    extra: float = 0.0, jitter_factor: float = 1.0, seed: int = 0, **spec: Any,
) -> SimulatedSensors:  # fmt: skip
    """One sensor `x` of width 1 with the given fields, or those of `specs`."""
    specs = specs or {"x": SensorSpec(**({"rate_hz": 1 / DT} | spec))}
    return SimulatedSensors(
        specs, widths or dict.fromkeys(specs, 1), attitudes={"attitude": [0]}, num_worlds=count,
        control_dt=DT, longest_extra_latency=extra, largest_jitter_factor=jitter_factor,
        device=CPU, seed=seed,
    )  # fmt: skip


def start(measured: SimulatedSensors, *truth: Tensor, mask: Tensor | None = None) -> None:
    every = torch.ones(len(measured.values), dtype=torch.bool)
    measured.reset(EnvSelection(every if mask is None else mask), truth)


def count_up(measured: SimulatedSensors, steps: int) -> Tensor:
    """What is seen of a truth that counts control periods from 0 at the start, (N, steps)."""
    count = len(measured.values)
    start(measured, torch.zeros(count, 1))
    seen = []
    for step in range(1, steps + 1):
        measured.measure([torch.full((count, 1), float(step))])
        seen.append(measured.values[:, 0].clone())
    return torch.stack(seen, dim=-1)


@pytest.mark.parametrize(
    ("rate_hz", "expected"),
    [
        (500.0, [1, 2, 3, 4, 5, 6, 7]),
        (100.0, [1, 2, 3, 4, 5, 6, 7]),
        (50.0, [0, 2, 2, 4, 4, 6, 6]),
        (100 / 3, [0, 0, 3, 3, 3, 6, 6]),
        (40.0, [0, 0, 3, 3, 5, 5, 5]),  # due every 2.5 periods, at the first look after it
    ],
)
def test_a_slow_sensor_holds_its_sample(rate_hz: float, expected: list[int]) -> None:
    assert count_up(sensors(1, rate_hz=rate_hz), 7)[0].tolist() == expected


@pytest.mark.parametrize(
    ("latency", "steps"), [(0.0, 0), (0.004, 0), (0.006, 1), (0.02, 2), (0.027, 3)]
)
def test_latency_is_rounded_to_whole_control_periods(latency: float, steps: int) -> None:
    seen = count_up(sensors(1, latency=latency), 6)[0].tolist()
    assert seen == [max(0, step - steps) for step in range(1, 7)]


def test_a_worlds_further_latency_counts_before_rounding() -> None:
    measured = sensors(3, latency=0.004, extra=0.02)
    measured.extra_latency.copy_(torch.tensor([0.0, 0.004, 0.02]))
    assert count_up(measured, 5)[:, -1].tolist() == [5, 4, 3]


def test_lost_samples_leave_the_one_before() -> None:
    seen = count_up(sensors(400, dropout=0.3), 100)
    steps = torch.arange(1.0, 101.0)
    lost = seen != steps
    before = torch.cat([torch.zeros(400, 1), seen[:, :-1]], dim=-1)
    assert torch.equal(seen[lost], before[lost])
    # 40,000 draws: the standard error of the share is 0.0023.
    assert float(lost.float().mean()) == pytest.approx(0.3, abs=0.01)


def test_jitter_spreads_the_age_evenly_and_never_goes_back_in_time() -> None:
    seen = count_up(sensors(400, latency=0.02, jitter=0.015), 60)
    age = torch.arange(1.0, 61.0) - seen
    assert bool((seen.diff(dim=-1) >= 0).all())
    ages = age[:, 10:].flatten()
    # 0.02 +- 0.015 rounds to 1 (5..15 ms), 2 (15..25 ms) and 3 (25..35 ms); 0.5 ms are none else's.
    assert sorted(set(ages.tolist())) == [1, 2, 3]
    shares = [float((ages == value).float().mean()) for value in (1, 2, 3)]
    # An age drawn as 3 after a 1 is seen as 2: the share of 3 is 1/3 - 1/3 * 1/3, that of 2 more.
    assert shares == pytest.approx([1 / 3, 4 / 9, 2 / 9], abs=0.02)


def test_a_bias_is_drawn_per_episode_and_stays() -> None:
    measured = sensors(4000, bias=0.5)
    measured.bias_factor[2000:] = 2.0
    first = count_up(measured, 3)
    torch.testing.assert_close(first.diff(dim=-1), torch.ones(4000, 2))
    bias = first[:, 0] - 1
    # 2,000 draws each: the standard error of a deviation is 1.6 %.
    assert float(bias[:2000].std()) == pytest.approx(0.5, rel=0.06)
    assert float(bias[2000:].std()) == pytest.approx(1.0, rel=0.06)
    torch.testing.assert_close(measured.biases()["x"][:, 0], bias)
    mask = torch.arange(4000) % 2 == 0
    start(measured, torch.zeros(4000, 1), mask=mask)
    again = measured.biases()["x"][:, 0]
    assert torch.equal(again[~mask], measured.bias[~mask, 0])
    assert not bool((again[mask] == bias[mask]).any())
    torch.testing.assert_close(again[~mask], bias[~mask])


def test_a_bias_walks_with_the_square_root_of_time() -> None:
    measured = sensors(4000, bias_walk=0.2)
    seen = count_up(measured, 100) - torch.arange(1.0, 101.0)
    for steps in (25, 100):
        expected = 0.2 * (steps * DT) ** 0.5
        assert float(seen[:, steps - 1].std()) == pytest.approx(expected, rel=0.05)


def test_values_come_in_steps_of_the_resolution() -> None:
    measured = sensors(1, specs={"x": SensorSpec(resolution=0.25), "y": SensorSpec()})
    truth = [torch.tensor([[0.9]]), torch.tensor([[0.9]])]
    start(measured, *truth)
    measured.measure(truth)
    torch.testing.assert_close(measured.values, torch.tensor([[1.0, 0.9]]))


def test_attitudes_that_come_in_steps_stay_of_length_one() -> None:
    measured, truth = attitudes(100, resolution=0.05)
    torch.testing.assert_close(measured.values.norm(dim=-1), torch.ones(100))
    assert float((measured.values - truth).abs().max()) < 0.08


def test_a_slow_sensor_goes_on_however_long_its_robot_runs() -> None:
    measured = sensors(1, specs={"x": SensorSpec(rate_hz=0.25 / DT)})
    start(measured, torch.zeros(1, 1))
    measured.load_state_dict({**measured.state_dict(), "_taken": torch.tensor([[2**24 - 10]])})
    seen = set[float]()
    for i in range(60):
        measured.measure([torch.full((1, 1), float(i))])
        seen.add(float(measured.values[0, 0]))
    assert len(seen) > 10


def attitudes(count: int, **spec: float) -> tuple[SimulatedSensors, Tensor]:
    measured = sensors(count, specs={"attitude": SensorSpec(**spec)}, widths={"attitude": 4})
    generator = torch.Generator().manual_seed(3)
    truth = quaternion.normalize(torch.randn(count, 4, generator=generator))
    start(measured, truth)
    measured.measure([truth])
    return measured, truth


def turned_by(measured: SimulatedSensors, truth: Tensor) -> Tensor:
    """Rotation vectors from truth to measurement, body axes, (N, 3), small angles."""
    between = quaternion.multiply(quaternion.conjugate(truth), measured.values)
    return 2 * between[:, 1:] * between[:, :1].sign()


@pytest.mark.parametrize("name", ["noise", "bias"])
def test_an_attitude_is_turned_and_stays_a_unit_quaternion(name: str) -> None:
    measured, truth = attitudes(4000, **{name: 0.05})
    torch.testing.assert_close(measured.values.norm(dim=-1), torch.ones(4000))
    turn = turned_by(measured, truth)
    for axis in range(3):  # about each axis alike, [rad]
        assert float(turn[:, axis].std()) == pytest.approx(0.05, rel=0.05)


def test_the_bias_of_an_attitude_is_told_as_a_rotation_vector() -> None:
    measured, truth = attitudes(50, bias=0.01)
    torch.testing.assert_close(
        measured.biases()["attitude"], turned_by(measured, truth), atol=1e-5, rtol=1e-3
    )


def test_latency_delays_what_is_measured_and_differs_between_worlds() -> None:
    late = JointRandomization(latency=[0.0, 0.12])
    simulation = arms(60, robot=panda(noise=False, latency=0.04), randomization=late)
    truth = []
    for i in range(6):
        truth.append(simulation.true_state.joint_position.clone())
        simulation.step(hold(simulation, tau=2.0 * i))
    measured, delays = simulation.measured.joint_position, []
    for world in range(60):
        same = [t for t in range(6) if torch.equal(truth[t][world], measured[world])]
        delays += [6 - t for t in same[-1:]]
    assert sorted(set(delays)) == [1, 2, 3, 4]
    assert len(delays) == 60


def test_sensor_noise_has_the_declared_deviation_and_its_drawn_factor() -> None:
    twice = JointRandomization(sensor_noise=[2.0, 2.0])
    for randomization, factor in ((JointRandomization(), 1.0), (twice, 2.0)):
        simulation = arms(2000, robot=panda(), randomization=randomization)
        for name, sensor in simulation.robot.sensors.items():
            error = simulation.measured.fields[name] - simulation.true_state.fields[name]
            # 6,000 draws or more: the standard error of a deviation is below 1 %.
            assert float(error.std()) == pytest.approx(factor * sensor.noise, rel=0.04)
