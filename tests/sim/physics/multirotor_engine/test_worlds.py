"""Worlds do not disturb each other; engines restore bit-equal; wrong inputs are refused."""

from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError, DeviceError, ShapeError, SpecMismatchError
from sim.physics.multirotor_model import PARAM_COLUMNS, ROTOR_SPEED
from tests.sim.physics.multirotor_engine.multirotor_worlds import (
    DT,
    MultirotorEngine,
    all_worlds,
    build,
    every_device,
    hold,
    normals,
    scatter,
    uniform,
)


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


def test_a_nan_setpoint_is_flagged_and_the_world_keeps_its_last_state() -> None:
    engine = build(20)
    scatter(engine)
    before = engine.state.clone()
    setpoint = uniform(20)
    setpoint[3, 1] = float("nan")
    engine.step(setpoint, None)
    assert engine.fault.nonzero().flatten().tolist() == [3]
    assert torch.equal(engine.state[3], before[3])
    assert engine.measured.isfinite().all()


def test_a_world_that_tumbles_faster_than_the_integrator_follows_is_flagged() -> None:
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


def test_the_number_of_worlds_does_not_change_a_world() -> None:
    many, few = build(100), build(7)
    scatter(many)
    few.state[:] = many.state[:7]
    many.step(uniform(100), normals(100))
    few.step(uniform(100)[:7], normals(100)[:7])
    assert torch.equal(few.state, many.state[:7])
    assert torch.equal(few.measured, many.measured[:7])


def test_inputs_may_have_any_memory_layout() -> None:
    rows, columns = build(20), build(20)
    for engine in (rows, columns):
        scatter(engine)
    rows.step(uniform(20), normals(20))
    columns.step(uniform(20).T.contiguous().T, normals(20).T.contiguous().T)
    assert torch.equal(rows.state, columns.state)
    assert torch.equal(rows.measured, columns.measured)


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
            torch.testing.assert_close(
                after[name], expected[name], atol=0, rtol=0, equal_nan=True, msg=name
            )


def test_a_checkpoint_of_other_delays_is_refused() -> None:
    with pytest.raises(SpecMismatchError, match="measured_ring"):
        build(4, max_latency=1).load_state_dict(build(4).state_dict())


def test_state_views_are_the_memory_of_the_engine() -> None:
    engine = build(5)
    view = engine.state
    engine.step(hold(engine, 1.0), None)
    assert view[0, ROTOR_SPEED.start] > 0.0
    assert view.data_ptr() == engine.state.data_ptr()


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


def test_a_missing_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="mps"):
        MultirotorEngine(1, physics_dt=DT, device="mps")


def test_inputs_of_the_wrong_shape_or_type_are_refused() -> None:
    engine = build(4)
    with pytest.raises(ShapeError, match="setpoint"):
        engine.step(torch.zeros(4, 3), None)
    with pytest.raises(ShapeError, match="float64"):
        engine.step(torch.zeros(4, 4, dtype=torch.float64), None)
    with pytest.raises(ShapeError, match="noise"):
        engine.step(torch.zeros(4, 4), torch.zeros(3, 12))
    with pytest.raises(ShapeError, match="mask"):
        engine.settle(torch.zeros(4), torch.zeros(4, 4), None)
