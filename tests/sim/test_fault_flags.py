"""Flags of what was not finite: named once, however long ago it happened."""

import pytest
import torch

from robot_rl.core.errors import NonFiniteError
from sim.env import FaultFlags

NAMES = {"actor": ["position", "position", "rates"], "reward": ["alive", "distance"]}
CLEAN = {"actor": torch.ones(9, 3), "reward": torch.ones(9, 2)}
NOBODY = torch.zeros(9, dtype=torch.bool)


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
