"""Laws of every simulation: what begins anew, what is restored, what is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot_command import BodyRateCommand, RotorCommand
from tests.equality import assert_same
from tests.sim import arms, resting


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A simulation of a robot at rest, whose parameters are all drawn."""

    make: Callable[[int, int], Any]
    """(number of worlds, seed) -> simulation."""
    begin: Callable[..., None]
    """(simulation, mask, seed=...): place the masked robots anew."""
    move: Callable[[Any], Any]
    """Simulation -> a command that it takes."""
    parameters: Callable[[Any], list[torch.Tensor]]
    """Simulation -> what its engine draws per world, (N, ...) each."""
    takes: str
    """The kind of its commands."""


MODEL_FIELDS = (
    "body_mass", "dof_damping", "dof_frictionloss", "body_inertia", "body_ipos", "geom_friction",
    "actuator_forcerange",
)  # fmt: skip
KINDS = {
    "arms": Kind(
        make=lambda count, seed: arms.arms(
            count, robot=arms.panda(), seed=seed, randomization=arms.EVERYTHING
        ),
        begin=arms.begin,
        move=arms.hold,
        parameters=lambda simulation: [
            simulation.engine.model_field(name).clone() for name in MODEL_FIELDS
        ],
        takes="joint",
    ),
    "multirotors": Kind(
        make=lambda count, seed: resting.multirotors(count, seed=seed),
        begin=resting.begin,
        move=lambda simulation: RotorCommand(speed=torch.full((simulation.num_worlds, 4), 0.7)),
        parameters=lambda simulation: [simulation.engine.params.clone()],
        takes="rotor",
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_only_the_worlds_that_begin_anew_draw_new_parameters(kind: Kind) -> None:
    simulation = kind.make(6, 0)
    before = kind.parameters(simulation)
    mask = torch.tensor([False, True, False, False, True, False])
    kind.begin(simulation, mask, seed=9)
    for new, old in zip(kind.parameters(simulation), before, strict=True):
        assert torch.equal((new != old).flatten(1).any(-1), mask)


def test_rows_of_nobody_change_nothing(kind: Kind) -> None:
    simulation = kind.make(2, 0)
    before = simulation.state_dict()
    kind.begin(simulation, torch.zeros(2, dtype=torch.bool), seed=5)
    assert_same(simulation.state_dict(), before)


def test_a_restored_simulation_goes_on_bit_equal_with_its_own_parameters(kind: Kind) -> None:
    one, two = kind.make(4, 1), kind.make(4, 2)
    assert not torch.equal(one.privileged["plant"], two.privileged["plant"])
    one.step(kind.move(one))
    two.load_state_dict(one.state_dict())
    assert_same(two.privileged["plant"], one.privileged["plant"])
    for _ in range(4):
        one.step(kind.move(one))
        two.step(kind.move(two))
    assert_same(two.state_dict(), one.state_dict())
    assert_same(two.true_state.fields, one.true_state.fields)
    mask = torch.tensor([True, False, True, False])
    for each in (one, two):
        kind.begin(each, mask, seed=3)
    assert_same(two.measured.fields, one.measured.fields)


def test_another_kind_of_command_is_refused(kind: Kind) -> None:
    command = BodyRateCommand(rates_b=torch.zeros(2, 3), thrust=torch.zeros(2, 1))
    told = f"takes {kind.takes} commands, got BodyRateCommand"
    with pytest.raises(SpecMismatchError, match=told):
        kind.make(2, 0).step(command)
