"""The environment contract's checks, and flags of what was not finite: named once, though late."""

import pytest
import torch

from robot_rl.core.env import FaultFlags
from robot_rl.core.errors import NonFiniteError, ShapeError
from tests.fakes import LinearWorld, ToyEnv

NAMES = {"actor": ["position", "position", "rates"], "reward": ["alive", "distance"]}
CLEAN = {"actor": torch.ones(9, 3), "reward": torch.ones(9, 2)}
NOBODY = torch.zeros(9, dtype=torch.bool)


@pytest.mark.parametrize(
    ("mask", "state", "told"),
    [
        (torch.ones(3, dtype=torch.bool), {}, "takes a mask or a state, got both"),
        (torch.ones(2, dtype=torch.bool), None, r"expected \(3,\) of bool, got \(2,\)"),
        (torch.ones(3), None, r"expected \(3,\) of bool, got \(3,\) of torch\.float32"),
    ],
)
def test_a_spec_says_what_does_not_fit_a_reset_or_a_step(mask, state, told):
    spec = ToyEnv(LinearWorld(), num_envs=3).spec
    spec.check_reset(torch.tensor([True, False, True]), None)
    spec.check_reset(None, {})
    with pytest.raises(ShapeError, match=told):
        spec.check_reset(mask, state)
    with pytest.raises(ShapeError, match=rf"action: expected shape \(3, {spec.action_size}\), got"):
        spec.check_action(torch.zeros(2, spec.action_size))


@pytest.fixture
def flags() -> FaultFlags:
    return FaultFlags(9, torch.device("cpu"))


def spoiled(
    name: str, *places: tuple[int, int], value: float = torch.nan
) -> dict[str, torch.Tensor]:
    values = {key: part.clone() for key, part in CLEAN.items()}
    for world, column in places:
        values[name][world, column] = value
    return values


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_number_that_is_not_finite_marks_its_world_and_is_named(flags, value):
    finite = flags.watch(spoiled("reward", (2, 1), value=value), excused=NOBODY)
    assert (~finite).nonzero().tolist() == [[2]]
    with pytest.raises(NonFiniteError, match=r"^reward term 'distance' .* 1 env\(s\) \(2\)"):
        flags.check(NAMES)


def test_infinities_of_both_signs_do_not_cancel(flags):
    values = spoiled("actor", (0, 0), value=torch.inf)
    values["actor"][0, 1] = -torch.inf
    assert (~flags.watch(values, excused=NOBODY)).nonzero().tolist() == [[0]]
    with pytest.raises(NonFiniteError, match=r"^actor term 'position' was NaN"):  # named once
        flags.check(NAMES)


def test_flags_stay_up_over_clean_steps_and_come_down_when_read(flags):
    flags.watch(spoiled("actor", (1, 2)), excused=NOBODY)
    for _ in range(3):
        assert flags.watch(CLEAN, excused=NOBODY).all()
    flags.watch(spoiled("reward", *((world, 0) for world in range(3, 9))), excused=NOBODY)
    with pytest.raises(
        NonFiniteError,
        match=r"actor term 'rates' and reward term 'alive' .* 7 env\(s\) \(1, 3, 4, 5, 6, \.\.\.\)",
    ):
        flags.check(NAMES)
    flags.check(NAMES)


def test_what_the_engine_gave_up_is_excused_but_not_finite(flags):
    excused = torch.arange(9) == 1
    finite = flags.watch(spoiled("actor", (1, 0), (1, 1)), excused=excused)
    assert (~finite).nonzero().tolist() == [[1]]
    flags.check(NAMES)
    flags.watch(spoiled("actor", (1, 0), (2, 2)), excused=excused)
    with pytest.raises(NonFiniteError, match=r"^actor term 'rates' was .* \(2\)"):
        flags.check(NAMES)
