"""Multirotor engine: physics against float64, independent envs, delays, noise, sensors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.testing import assert_close

from robot_rl.core.errors import ConfigError, DeviceError, ShapeError, SpecMismatchError
from sim.physics.multirotor_model import (
    ANGULAR_VELOCITY,
    LINEAR_VELOCITY,
    ORIENTATION,
    PARAM_COLUMNS,
    POSITION,
    ROTOR_SPEED,
    MultirotorModel,
)
from tests.sim.physics import reference_multirotor as reference
from tests.sim.physics.multirotor_envs import (
    DT,
    MultirotorEngine,
    all_worlds,
    both_plants,
    build,
    every_device,
    hold,
    normals,
    scatter,
    uniform,
)
from tests.sim.physics.reference_multirotor import PLANT_A, PLANT_B


def test_a_world_without_thrust_falls_as_half_g_t_squared_in_the_memory_of_the_engine():
    engine = build(3, PLANT_A)
    for _ in range(50):
        engine.step(torch.zeros(3, 4), None)
    t = 50 * DT
    expected = torch.tensor([0.0, 0.0, -0.5 * 9.81 * t * t]).expand(3, 3)
    assert_close(engine.state[:, POSITION], expected, atol=1e-5, rtol=0)
    assert_close(
        engine.state[:, LINEAR_VELOCITY][:, 2], torch.full((3,), -9.81 * t), atol=1e-5, rtol=0
    )
    engine = build(5)
    view = engine.state
    engine.step(hold(engine, 1.0), None)
    assert view[0, ROTOR_SPEED.start] > 0.0
    assert view.data_ptr() == engine.state.data_ptr()


@both_plants
def test_hover_setpoint_is_an_equilibrium(model: MultirotorModel) -> None:
    engine = build(2, model)
    engine.state[:, ROTOR_SPEED] = model.hover_setpoint
    start = engine.state.clone()
    for _ in range(100):
        engine.step(hold(engine, model.hover_setpoint), None)
    # Rotor torques of 2 mN m cancel to 1e-10 N m in float32: the inertia makes 3e-5 rad/s^2 of it.
    assert_close(engine.state, start, atol=1e-4, rtol=0)


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
    assert_close(engine.state[:, ANGULAR_VELOCITY], expected, atol=1e-5, rtol=1e-5)


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
    assert_close(engine.state[:, LINEAR_VELOCITY], velocity)
    assert_close(engine.state[:, ANGULAR_VELOCITY], rate)


def test_rotors_rise_with_one_time_constant_and_fall_with_the_other() -> None:
    engine = build(1, PLANT_B)
    engine.state[:, ROTOR_SPEED] = 0.5
    engine.step(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), None)
    up = 1.0 - 0.5 * np.exp(-DT / 0.05545)
    down = 0.5 * np.exp(-DT / 0.24939)
    expected = torch.tensor([[up, down, up, down]], dtype=torch.float32)
    # A Runge-Kutta step of z = dt / tau = 0.18 misses the exponential by z^5 / 120.
    assert_close(engine.state[:, ROTOR_SPEED], expected, atol=2e-6, rtol=0)


def test_rotor_speed_and_quaternions_stay_within_their_limits():
    engine = build(2)
    for setpoint in (1.5, -0.5):
        for _ in range(100):
            engine.step(hold(engine, setpoint), None)
            assert engine.state[:, ROTOR_SPEED].min() >= 0.0
            assert engine.state[:, ROTOR_SPEED].max() <= 1.0
    engine = build(100)
    scatter(engine)
    for seed in range(100):
        engine.step(uniform(100, seed), normals(100, seed))
    for q in (engine.state[:, ORIENTATION], engine.measured[:, ORIENTATION]):
        assert_close(q.norm(dim=1), torch.ones(100), atol=1e-6, rtol=0)


@every_device
@both_plants
@pytest.mark.parametrize("decimation", [1, 3])
def test_one_step_from_random_states_agrees_with_float64(model, decimation, device):
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
        assert_allclose(engine.state[world].cpu().numpy(), x, atol=1e-4)


@pytest.mark.slow
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
    assert_allclose(engine.state.cpu().numpy(), x, atol=1e-4)


@every_device
@pytest.mark.parametrize("column", [0, 4, 8, 11, 14])
def test_a_world_with_nan_is_flagged_and_disturbs_no_other(column: int, device: str) -> None:
    healthy, sick = (build(40, max_latency=1, device=device) for _ in range(2))
    for engine in (healthy, sick):
        scatter(engine)
    sick.state[17, column] = float("nan")
    for seed in range(3):
        for engine in (healthy, sick):
            engine.step(uniform(40, seed).to(device), normals(40, seed).to(device))
    others = torch.arange(40, device=device) != 17
    assert torch.equal(sick.fault, ~others)
    assert not healthy.fault.any()
    assert torch.equal(sick.state[others], healthy.state[others])
    assert torch.equal(sick.measured[others], healthy.measured[others])


def test_a_nan_setpoint_or_too_fast_a_tumble_is_flagged_and_the_world_keeps_its_last_state():
    engine = build(20)
    scatter(engine)
    before = engine.state.clone()
    setpoint = uniform(20)
    setpoint[3, 1] = float("nan")
    engine.step(setpoint, None)
    assert engine.fault.nonzero().flatten().tolist() == [3]
    assert torch.equal(engine.state[3], before[3])
    assert engine.measured.isfinite().all()
    engine = build(4)
    for world, rate in enumerate((0.0, 50.0, 98.0, 102.0)):  # about one axis: nothing slows it
        engine.state[world, 10] = rate
    before = engine.state.clone()
    engine.step(hold(engine, 0.0), None)
    assert engine.fault.tolist() == [False, False, False, True]  # 1.02 rad in a step of 0.01 s
    assert torch.equal(engine.state[3], before[3])


def test_a_fault_stays_until_it_is_lowered() -> None:
    engine = build(2)
    engine.state[0, 0] = float("inf")
    engine.step(hold(engine, 0.5), None)
    engine.state[0, 0] = 0.0
    engine.settle(all_worlds(engine), hold(engine, 0.5), None)
    engine.step(hold(engine, 0.5), None)
    assert engine.fault.tolist() == [True, False]
    engine.fault[:] = False
    engine.step(hold(engine, 0.5), None)
    assert engine.fault.tolist() == [False, False]


@every_device
def test_permuting_worlds_permutes_results(device: str) -> None:
    generator = torch.Generator().manual_seed(5)
    order = torch.randperm(50, generator=generator).to(device)
    plain, shuffled = (build(50, max_action_delay=2, max_latency=2, device=device) for _ in "ab")
    scatter(plain)
    plain.params[:, PARAM_COLUMNS["action_delay"]] = (torch.arange(50.0) % 3)[:, None].to(device)
    plain.params[:, PARAM_COLUMNS["latency"]] = (torch.arange(50.0) % 2)[:, None].to(device)
    plain.params[:, PARAM_COLUMNS["noise_gyro"]] = 0.1
    shuffled.state[:] = plain.state[order]
    shuffled.params[:] = plain.params[order]
    for engine in (plain, shuffled):
        engine.settle(all_worlds(engine), hold(engine, 0.5), None)
    for seed in range(5):
        setpoint, noise = uniform(50, seed).to(device), normals(50, seed).to(device)
        plain.step(setpoint, noise)
        shuffled.step(setpoint[order], noise[order])
    assert torch.equal(shuffled.state, plain.state[order])
    assert torch.equal(shuffled.measured, plain.measured[order])


def test_neither_the_number_of_worlds_nor_the_layout_of_inputs_changes_a_world():
    many, few = build(100), build(7)
    scatter(many)
    few.state[:] = many.state[:7]
    many.step(uniform(100), normals(100))
    few.step(uniform(100)[:7], normals(100)[:7])
    assert torch.equal(few.state, many.state[:7])
    assert torch.equal(few.measured, many.measured[:7])
    rows, columns = build(20), build(20)
    for engine in (rows, columns):
        scatter(engine)
    rows.step(uniform(20), normals(20))
    columns.step(uniform(20).T.contiguous().T, normals(20).T.contiguous().T)
    assert torch.equal(rows.state, columns.state)
    assert torch.equal(rows.measured, columns.measured)
    silent, zero = build(20), build(20)
    for engine, noise in ((silent, None), (zero, torch.zeros(20, 12))):
        scatter(engine)
        engine.step(uniform(20), noise)
    assert_close(silent.measured, zero.measured, atol=3e-7, rtol=0)


@every_device
def test_a_restored_engine_continues_bit_equal(device: str) -> None:
    options = {"max_action_delay": 3, "max_latency": 2, "decimation": 2, "device": device}
    first = build(19, **options)
    scatter(first)
    first.params[:, PARAM_COLUMNS["action_delay"]] = 3.0
    first.params[:, PARAM_COLUMNS["latency"]] = 2.0
    first.params[:, PARAM_COLUMNS["noise_velocity"]] = 0.1
    first.state[4, 2] = float("inf")
    for seed in range(4):
        first.step(uniform(19, seed).to(device), normals(19, seed).to(device))
    saved = first.state_dict()
    second = build(19, **options)
    second.load_state_dict(saved)
    for seed in range(4, 9):
        for engine in (first, second):
            engine.step(uniform(19, seed).to(device), normals(19, seed).to(device))
        after, expected = second.state_dict(), first.state_dict()
        for name in expected:
            assert_close(after[name], expected[name], atol=0, rtol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize(
    "change",
    [
        {"num_worlds": 0},
        {"num_worlds": 2.5},
        {"decimation": 0},
        {"max_latency": -1},
        {"max_action_delay": -1},
        {"physics_dt": 0.0},
        {"physics_dt": float("nan")},
    ],
)
def test_engine_arguments_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        MultirotorEngine(**({"num_worlds": 2, "physics_dt": DT} | change))


def test_missing_devices_inputs_of_the_wrong_shape_and_checkpoints_of_other_delays_are_refused():
    with pytest.raises(DeviceError, match="mps"):
        MultirotorEngine(1, physics_dt=DT, device="mps")
    engine = build(4)
    with pytest.raises(ShapeError, match="setpoint"):
        engine.step(torch.zeros(4, 3), None)
    with pytest.raises(ShapeError, match="float64"):
        engine.step(torch.zeros(4, 4, dtype=torch.float64), None)
    with pytest.raises(ShapeError, match="noise"):
        engine.step(torch.zeros(4, 4), torch.zeros(3, 12))
    with pytest.raises(ShapeError, match="mask"):
        engine.settle(torch.zeros(4), torch.zeros(4, 4), None)
    with pytest.raises(SpecMismatchError, match="measured_ring"):
        build(4, max_latency=1).load_state_dict(build(4).state_dict())


@every_device
@pytest.mark.parametrize("decimation", [1, 3])
def test_a_setpoint_reaches_the_rotors_after_exactly_its_delay(decimation, device):
    largest = 7
    # World i has a delay of i physics steps.
    engine = build(largest + 1, decimation=decimation, max_action_delay=largest, device=device)
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
        assert_allclose(
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
        assert_close(engine.measured, expected, atol=3e-7, rtol=0)


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
    assert_close(engine.measured, expected, atol=3e-7, rtol=0)


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
    assert_close(engine.measured[:, ORIENTATION], expected, atol=1e-4, rtol=0)


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
        assert_close(after[name][~mask], before[name][~mask], atol=0, rtol=0)
    for name in ("setpoint_ring", "measured_ring"):
        assert_close(after[name][..., ~mask], before[name][..., ~mask], atol=0, rtol=0)
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
