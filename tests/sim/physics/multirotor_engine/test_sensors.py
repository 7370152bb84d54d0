"""Delayed setpoints, late and noisy measurements, and settling, which forgets the past."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sim.physics.multirotor_model import (
    ANGULAR_VELOCITY,
    LINEAR_VELOCITY,
    ORIENTATION,
    PARAM_COLUMNS,
    POSITION,
    ROTOR_SPEED,
)
from tests.sim.physics.multirotor_engine.multirotor_worlds import (
    DT,
    all_worlds,
    build,
    every_device,
    hold,
    normals,
    scatter,
    uniform,
)
from tests.sim.physics.multirotor_engine.reference_multirotor import PLANT_B


@every_device
@pytest.mark.parametrize("decimation", [1, 3])
def test_a_setpoint_reaches_the_rotors_after_exactly_its_delay(
    decimation: int, device: str
) -> None:
    largest = 7
    engine = build(
        largest + 1, decimation=decimation, max_action_delay=largest, device=device
    )  # world i has a delay of i physics steps
    engine.params[:, PARAM_COLUMNS["action_delay"]] = torch.arange(8.0, device=device)[:, None]
    engine.settle(all_worlds(engine), hold(engine, 0.0), None)
    rotor = np.zeros(8)
    physics_step = 0
    for control_step in range(10):
        engine.step(hold(engine, 0.1 * (control_step + 1)), None)
        for _ in range(decimation):
            origin = (physics_step - np.arange(8)) // decimation
            setpoint = np.where(origin < 0, 0.0, 0.1 * (origin + 1))
            tau = np.where(setpoint > rotor, PLANT_B.rotor_rise_time, PLANT_B.rotor_fall_time)
            z = DT / tau
            rotor += (setpoint - rotor) * (z - z**2 / 2 + z**3 / 6 - z**4 / 24)
            physics_step += 1
        np.testing.assert_allclose(
            engine.state[:, ROTOR_SPEED].cpu().numpy(), np.tile(rotor[:, None], 4), atol=2e-6
        )


@every_device
def test_a_measurement_is_exactly_as_old_as_its_latency(device: str) -> None:
    engine = build(4, max_latency=3, device=device)
    engine.params[:, PARAM_COLUMNS["latency"]] = torch.arange(4.0, device=device)[:, None]
    scatter(engine)
    engine.settle(all_worlds(engine), hold(engine, 0.5), None)
    past = [engine.state[:, :13].clone()] * 4
    for seed in range(6):
        engine.step(uniform(4, seed).to(device), None)
        past = [engine.state[:, :13].clone(), *past[:3]]
        expected = torch.stack([past[age][age] for age in range(4)])
        torch.testing.assert_close(engine.measured, expected, atol=3e-7, rtol=0)


def test_a_fraction_of_a_delay_is_rounded_and_too_long_a_delay_acts_as_the_longest() -> None:
    engine = build(4, max_latency=2)
    engine.params[:, PARAM_COLUMNS["latency"]] = torch.tensor([[0.4], [0.6], [1.6], [9.0]])
    scatter(engine)
    engine.settle(all_worlds(engine), hold(engine, 0.5), None)
    past = [engine.state[:, :13].clone()] * 3
    for _ in range(3):
        engine.step(hold(engine, 0.5), None)
        past = [engine.state[:, :13].clone(), *past[:2]]
    expected = torch.stack([past[age][i] for i, age in enumerate([0, 1, 2, 2])])
    torch.testing.assert_close(engine.measured, expected, atol=3e-7, rtol=0)


def test_measurement_noise_has_the_standard_deviations_asked_for() -> None:
    model = replace(
        PLANT_B, noise_position=0.001, noise_attitude=0.01, noise_velocity=0.002, noise_gyro=0.02
    )
    engine = build(20_000, model)
    engine.step(hold(engine, 0.5), normals(20_000))
    error = engine.measured - engine.state[:, :13]
    turn = 2.0 * error[:, 4:7]  # true attitude is the identity
    for noise, sd in (
        (error[:, POSITION], 0.001),
        (turn, 0.01),
        (error[:, LINEAR_VELOCITY], 0.002),
        (error[:, ANGULAR_VELOCITY], 0.02),
    ):
        assert noise.std().item() == pytest.approx(sd, rel=0.02)
        assert noise.mean().abs().item() < 4 * sd / 60_000**0.5


def test_attitude_noise_turns_about_body_axes() -> None:
    engine = build(1, replace(PLANT_B, noise_attitude=0.1))
    half = 0.5**0.5
    engine.state[:, ORIENTATION] = torch.tensor([[half, 0.0, half, 0.0]])  # 90 deg about y
    noise = torch.zeros(1, 12)
    noise[:, 3] = 1.0
    engine.settle(all_worlds(engine), hold(engine, 0.0), noise)
    c, s = np.cos(0.05), np.sin(0.05)  # q * (c, s, 0, 0)
    expected = torch.tensor([[half * c, half * s, half * c, -half * s]], dtype=torch.float32)
    torch.testing.assert_close(engine.measured[:, ORIENTATION], expected, atol=1e-4, rtol=0)


def test_no_noise_equals_noise_of_zero() -> None:
    silent, zero = build(20), build(20)
    for engine, noise in ((silent, None), (zero, torch.zeros(20, 12))):
        scatter(engine)
        engine.step(uniform(20), noise)
    torch.testing.assert_close(silent.measured, zero.measured, atol=3e-7, rtol=0)


@every_device
def test_settle_touches_only_the_masked_worlds(device: str) -> None:
    engine = build(33, max_action_delay=2, max_latency=2, device=device)
    engine.params[:, PARAM_COLUMNS["noise_position"]] = 0.01
    scatter(engine)
    for seed in range(4):
        engine.step(uniform(33, seed).to(device), normals(33, seed).to(device))
    before = engine.state_dict()
    mask = torch.zeros(33, dtype=torch.bool, device=device)
    mask[::3] = True
    engine.settle(mask, hold(engine, 0.3), normals(33, 9).to(device))
    after = engine.state_dict()
    for name in ("state", "params", "measured", "fault"):
        torch.testing.assert_close(after[name][~mask], before[name][~mask], atol=0, rtol=0)
    for name in ("setpoint_ring", "measured_ring"):
        torch.testing.assert_close(
            after[name][..., ~mask], before[name][..., ~mask], atol=0, rtol=0
        )
        assert not torch.equal(after[name][..., mask], before[name][..., mask])
    assert not torch.equal(after["measured"][mask], before["measured"][mask])


def test_a_settled_world_has_no_past() -> None:
    fresh, used = (build(5, max_action_delay=3, max_latency=3) for _ in range(2))
    for engine in (fresh, used):
        engine.params[:, PARAM_COLUMNS["action_delay"]] = 3.0
        engine.params[:, PARAM_COLUMNS["latency"]] = 3.0
    for seed in range(5):
        used.step(uniform(5, seed), None)
    for engine in (fresh, used):
        scatter(engine)
        engine.settle(all_worlds(engine), hold(engine, 0.5), None)
    for seed in range(5):
        for engine in (fresh, used):
            engine.step(uniform(5, seed), None)
        assert torch.equal(fresh.state, used.state)
        assert torch.equal(fresh.measured, used.measured)
