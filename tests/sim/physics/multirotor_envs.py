"""Builders of multirotor worlds that several test files share."""

import pytest
import torch
from torch import Tensor

from sim.physics.multirotor_model import ANGULAR_VELOCITY, ORIENTATION, ROTOR_SPEED, MultirotorModel
from tests.matrices import some
from tests.sim.physics.reference_multirotor import PLANT_A, PLANT_B

pytest.importorskip("warp", reason="needs the extra: pip install 'robot_rl[sim]'")

from sim.physics.multirotor_engine import MultirotorEngine

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
