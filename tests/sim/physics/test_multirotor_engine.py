"""Multirotor engine: physics against float64, independent envs, delays, noise, sensors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.testing import assert_close

from robot_rl.core.errors import DeviceError, ShapeError, SpecMismatchError
from sim.physics.multirotor_engine import MultirotorEngine
from sim.physics.multirotor_model import (
    ANGULAR_VELOCITY,
    ORIENTATION,
    PARAM_COLUMNS,
    ROTOR_SPEED,
    MultirotorModel,
)
from tests.matrices import some
from tests.sim.physics import reference_multirotor as reference
from tests.sim.physics.reference_multirotor import PLANT_A, PLANT_B

pytest.importorskip("warp", reason="needs the extra: pip install 'robot_rl[sim]'")


DT = 0.01
both_plants = pytest.mark.parametrize(
    "model", some([pytest.param(PLANT_B, id="identified")], [pytest.param(PLANT_A, id="paper")])
)
every_device = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
)


def build(
    num_worlds: int, model: MultirotorModel = PLANT_B, *, device: str = "cpu", **options: int
) -> MultirotorEngine:
    engine = MultirotorEngine(num_worlds, physics_dt=DT, device=device, **options)
    engine.params[:] = model.row().to(device)
    return engine


def scatter(engine: MultirotorEngine, seed: int = 0, attitude: float = 1.0) -> None:
    """Random states: position 1 m, velocity 1 m/s, rates 3 rad/s, rotors anywhere."""
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(engine.num_worlds, 17, generator=generator)
    upright = torch.tensor([1.0, 0.0, 0.0, 0.0])
    q = upright + attitude * state[:, ORIENTATION]
    state[:, ORIENTATION] = q / q.norm(dim=1, keepdim=True)
    state[:, ANGULAR_VELOCITY] *= 3.0
    state[:, ROTOR_SPEED] = torch.rand(engine.num_worlds, 4, generator=generator)
    engine.state[:] = state.to(engine.device)


def uniform(num_worlds: int, seed: int = 1) -> Tensor:
    return torch.rand(num_worlds, 4, generator=torch.Generator().manual_seed(seed))


def normals(num_worlds: int, seed: int = 2) -> Tensor:
    return torch.randn(num_worlds, 12, generator=torch.Generator().manual_seed(seed))


def all_worlds(engine: MultirotorEngine) -> Tensor:
    return torch.ones(engine.num_worlds, dtype=torch.bool, device=engine.device)


def hold(engine: MultirotorEngine, setpoint: float) -> Tensor:
    return torch.full((engine.num_worlds, 4), setpoint, device=engine.device)


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


@every_device
@pytest.mark.parametrize("column", [0, 4, 14])
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
    sick.state[17, column] = 1.0
    sick.step(uniform(40).to(device), normals(40).to(device))
    assert sick.fault[17], "until the caller lowers it"


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
    with pytest.raises(SpecMismatchError, match="measured_ring"):
        build(4, max_latency=1).load_state_dict(build(4).state_dict())


@every_device
@pytest.mark.parametrize("decimation", [1, 3])
@pytest.mark.parametrize("part", [0.0, 0.25])
def test_a_setpoint_reaches_the_rotors_after_exactly_its_delay(decimation, part, device):
    largest = 7 + part
    # World i has a delay of i physics steps, and of a part of one more.
    engine = build(8, decimation=decimation, max_action_delay=largest, device=device)
    delays = part + torch.arange(8.0, device=device)
    engine.params[:, PARAM_COLUMNS["action_delay"]] = delays[:, None]
    engine.settle(all_worlds(engine), hold(engine, 0.0), None)
    rotor = np.zeros(8)
    physics_step = 0
    for control_step in range(10):
        engine.step(hold(engine, 0.1 * (control_step + 1)), None)
        for _ in range(decimation):
            setpoint = np.zeros(8)
            for steps, share in ((np.arange(8), 1 - part), (np.arange(1, 9), part)):
                origin = (physics_step - steps) // decimation
                setpoint += share * np.where(origin < 0, 0.0, 0.1 * (origin + 1))
            tau = np.where(setpoint > rotor, PLANT_B.rotor_rise_time, PLANT_B.rotor_fall_time)
            z = DT / tau
            rotor += (setpoint - rotor) * (z - z**2 / 2 + z**3 / 6 - z**4 / 24)
            physics_step += 1
        assert_allclose(
            engine.state[:, ROTOR_SPEED].cpu().numpy(), np.tile(rotor[:, None], 4), atol=2e-6
        )


@every_device
def test_a_measurement_is_as_old_as_its_latency_rounded_and_at_most_the_longest(
    device: str,
) -> None:
    engine = build(4, max_latency=2, device=device)
    latency = torch.tensor([[0.4], [0.6], [1.6], [9.0]], device=device)
    engine.params[:, PARAM_COLUMNS["latency"]] = latency
    scatter(engine)
    engine.settle(all_worlds(engine), hold(engine, 0.5), None)
    past = [engine.state[:, :13].clone()] * 3
    for seed in range(6):
        engine.step(uniform(4, seed).to(device), None)
        past = [engine.state[:, :13].clone(), *past[:2]]
        expected = torch.stack([past[age][i] for i, age in enumerate([0, 1, 2, 2])])
        assert_close(engine.measured, expected, atol=3e-7, rtol=0)


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


def test_hover_setpoints_are_those_worked_out_by_hand() -> None:
    # Paper: hover at 14475.8 of 21702 rpm. Identified: 0.0922 u^2 + 0.0144 u + 0.0035 = m g / 4.
    assert pytest.approx(14475.8 / 21702.0, abs=1e-5) == PLANT_A.hover_setpoint
    u = PLANT_B.hover_setpoint
    assert 0.00352526 + 0.01437313 * u + 0.09223048 * u * u == pytest.approx(0.0306 * 9.81 / 4)
