"""The multirotor obeys the laws of motion and agrees with float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sim.physics.multirotor_model import (
    ANGULAR_VELOCITY,
    LINEAR_VELOCITY,
    ORIENTATION,
    PARAM_COLUMNS,
    POSITION,
    ROTOR_SPEED,
    MultirotorModel,
)
from tests.sim.physics.multirotor_engine import reference_multirotor as reference
from tests.sim.physics.multirotor_engine.multirotor_worlds import (
    DT,
    both_plants,
    build,
    every_device,
    hold,
    normals,
    scatter,
    uniform,
)
from tests.sim.physics.multirotor_engine.reference_multirotor import PLANT_A, PLANT_B


def test_a_world_without_thrust_falls_as_half_g_t_squared() -> None:
    engine = build(3, PLANT_A)
    for _ in range(50):
        engine.step(torch.zeros(3, 4), None)
    t = 50 * DT
    expected = torch.tensor([0.0, 0.0, -0.5 * 9.81 * t * t]).expand(3, 3)
    torch.testing.assert_close(engine.state[:, POSITION], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        engine.state[:, LINEAR_VELOCITY][:, 2], torch.full((3,), -9.81 * t), atol=1e-5, rtol=0
    )


@both_plants
def test_hover_setpoint_is_an_equilibrium(model: MultirotorModel) -> None:
    engine = build(2, model)
    engine.state[:, ROTOR_SPEED] = model.hover_setpoint
    start = engine.state.clone()
    for _ in range(100):
        engine.step(hold(engine, model.hover_setpoint), None)
    # Rotor torques of 2 mN m cancel to 1e-10 N m in float32: the inertia makes 3e-5 rad/s^2 of it.
    torch.testing.assert_close(engine.state, start, atol=1e-4, rtol=0)


def test_angular_momentum_is_conserved_without_torque() -> None:
    engine = build(64, PLANT_B)
    engine.params[:, PARAM_COLUMNS["thrust_curve"]] = 0.0
    scatter(engine)
    inertia = torch.tensor(PLANT_B.inertia, dtype=torch.float64)

    def momentum_w() -> Tensor:
        q = engine.state[:, ORIENTATION].double().numpy()
        body = (engine.state[:, ANGULAR_VELOCITY].double() * inertia).numpy()
        return torch.tensor(
            np.stack([reference.rotation(a) @ b for a, b in zip(q, body, strict=True)])
        )

    before = momentum_w()
    for _ in range(100):
        engine.step(torch.zeros(64, 4), None)
    error = (momentum_w() - before).norm(dim=1) / before.norm(dim=1)
    assert error.max() < 1e-4


def test_rotors_with_positive_yaw_sign_turn_the_body_to_the_left() -> None:
    engine = build(1, PLANT_A)
    speed = torch.tensor([[0.6, 0.7, 0.6, 0.7]])  # signs -, +, -, +
    engine.state[:, ROTOR_SPEED] = speed
    engine.step(speed, None)
    c2 = PLANT_A.thrust_curve[2]
    torque = PLANT_A.torque_per_thrust * 2.0 * c2 * (0.7**2 - 0.6**2)
    expected = torch.tensor([[0.0, 0.0, torque / PLANT_A.inertia[2] * DT]])
    torch.testing.assert_close(engine.state[:, ANGULAR_VELOCITY], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("strong", "axis", "sign"),
    [([2, 3], 0, 1.0), ([0, 1], 0, -1.0), ([1, 2], 1, 1.0), ([0, 3], 1, -1.0)],
    ids=["left rolls right", "right rolls left", "rear pitches down", "front pitches up"],
)
def test_stronger_rotors_on_one_side_lift_it(strong: list[int], axis: int, sign: float) -> None:
    engine = build(1, PLANT_A)
    speed = hold(engine, 0.6)
    speed[:, strong] = 0.7
    engine.state[:, ROTOR_SPEED] = speed
    engine.step(speed, None)
    c2 = PLANT_A.thrust_curve[2]
    size = 0.028 * 2.0 * c2 * (0.7**2 - 0.6**2) / PLANT_A.inertia[axis] * DT
    rate = engine.state[0, ANGULAR_VELOCITY]
    assert rate[axis].item() == pytest.approx(sign * size, rel=1e-4)
    assert rate[1 - axis].abs() < 1e-5 * size


def test_disturbances_act_as_force_in_the_world_and_torque_in_the_body() -> None:
    engine = build(1, replace(PLANT_A, gravity=0.0))
    engine.params[:, PARAM_COLUMNS["disturbance_force"]] = torch.tensor([1.0, 2.0, 3.0]) * 1e-2
    engine.params[:, PARAM_COLUMNS["disturbance_torque"]] = torch.tensor([0.0, 0.0, 1e-6])
    engine.state[:, ORIENTATION] = torch.tensor([[0.6, 0.8, 0.0, 0.0]])
    engine.step(torch.zeros(1, 4), None)
    velocity = torch.tensor([[1.0, 2.0, 3.0]]) * 1e-2 / 0.027 * DT
    rate = torch.tensor([[0.0, 0.0, 1e-6 / 5.9675e-6 * DT]])
    torch.testing.assert_close(engine.state[:, LINEAR_VELOCITY], velocity)
    torch.testing.assert_close(engine.state[:, ANGULAR_VELOCITY], rate)


def test_rotors_rise_with_one_time_constant_and_fall_with_the_other() -> None:
    engine = build(1, PLANT_B)
    engine.state[:, ROTOR_SPEED] = 0.5
    engine.step(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), None)
    up = 1.0 - 0.5 * np.exp(-DT / 0.05545)
    down = 0.5 * np.exp(-DT / 0.24939)
    expected = torch.tensor([[up, down, up, down]], dtype=torch.float32)
    # A Runge-Kutta step of z = dt / tau = 0.18 misses the exponential by z^5 / 120.
    torch.testing.assert_close(engine.state[:, ROTOR_SPEED], expected, atol=2e-6, rtol=0)


def test_rotor_speed_stays_within_its_limits() -> None:
    engine = build(2)
    for setpoint in (1.5, -0.5):
        for _ in range(100):
            engine.step(hold(engine, setpoint), None)
            assert engine.state[:, ROTOR_SPEED].min() >= 0.0
            assert engine.state[:, ROTOR_SPEED].max() <= 1.0


def test_quaternions_keep_unit_length() -> None:
    engine = build(100)
    scatter(engine)
    for seed in range(100):
        engine.step(uniform(100, seed), normals(100, seed))
    for q in (engine.state[:, ORIENTATION], engine.measured[:, ORIENTATION]):
        torch.testing.assert_close(q.norm(dim=1), torch.ones(100), atol=1e-6, rtol=0)


@every_device
@both_plants
@pytest.mark.parametrize("decimation", [1, 3])
def test_one_step_from_random_states_agrees_with_float64(
    model: MultirotorModel, decimation: int, device: str
) -> None:
    model = replace(model, disturbance_force=[0.01, -0.02, 0.005], disturbance_torque=[1e-6] * 3)
    engine = build(64, model, decimation=decimation, device=device)
    scatter(engine)
    setpoint = uniform(64).to(device)
    start = engine.state.double().cpu().numpy()
    engine.step(setpoint, None)
    for world in range(64):
        x = start[world]
        for _ in range(decimation):
            x = reference.step(x, setpoint[world].double().cpu().numpy(), model, DT)
        np.testing.assert_allclose(engine.state[world].cpu().numpy(), x, atol=1e-4)


@every_device
@both_plants
def test_fifty_steps_near_hover_agree_with_float64(model: MultirotorModel, device: str) -> None:
    engine = build(8, model, device=device)
    scatter(engine, attitude=0.05)
    engine.state[:, ANGULAR_VELOCITY] *= 0.1
    engine.state[:, ROTOR_SPEED] = model.hover_setpoint
    x = engine.state.double().cpu().numpy()
    for seed in range(50):
        setpoint = model.hover_setpoint + 0.02 * (uniform(8, seed) - 0.5)
        engine.step(setpoint.to(device), None)
        commands = setpoint.double().numpy()
        x = np.stack([reference.step(x[i], commands[i], model, DT) for i in range(8)])
    np.testing.assert_allclose(engine.state.cpu().numpy(), x, atol=1e-4)
