"""Sticky flags: what was bad is named once, however long ago it happened."""

import pytest
import torch

from robot_rl.core.env import FaultFlags
from robot_rl.core.errors import NonFiniteError

NAMES = {"actor": ["position", "position", "rates"], "reward": ["alive", "distance"]}
CLEAN = {"actor": torch.ones(4, 3), "reward": torch.ones(4, 2)}
NOBODY = torch.zeros(4, dtype=torch.bool)


def spoiled(
    name: str, *places: tuple[int, int], value: float = torch.nan
) -> dict[str, torch.Tensor]:
    values = {key: part.clone() for key, part in CLEAN.items()}
    for world, column in places:
        values[name][world, column] = value
    return values


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_number_that_is_not_finite_marks_its_world_and_is_named(value: float) -> None:
    flags = FaultFlags(4, torch.device("cpu"))
    finite = flags.watch(spoiled("reward", (2, 1), value=value), excused=NOBODY)
    assert finite.tolist() == [True, True, False, True]
    with pytest.raises(NonFiniteError, match=r"^reward term 'distance' .* 1 env\(s\) \(2\)"):
        flags.check(NAMES)


def test_infinities_of_both_signs_do_not_cancel() -> None:
    flags = FaultFlags(4, torch.device("cpu"))
    values = spoiled("actor", (0, 0), value=torch.inf)
    values["actor"][0, 1] = -torch.inf
    assert flags.watch(values, excused=NOBODY).tolist() == [False, True, True, True]


def test_flags_stay_up_over_clean_steps_and_come_down_when_read() -> None:
    flags = FaultFlags(4, torch.device("cpu"))
    flags.watch(spoiled("actor", (1, 2)), excused=NOBODY)
    for _ in range(3):
        assert flags.watch(CLEAN, excused=NOBODY).all()
    flags.watch(spoiled("reward", (3, 0)), excused=NOBODY)
    with pytest.raises(
        NonFiniteError, match=r"actor term 'rates' and reward term 'alive' .* 2 env\(s\) \(1, 3\)"
    ):
        flags.check(NAMES)
    flags.check(NAMES)


def test_a_world_that_the_engine_gave_up_is_excused_but_not_finite() -> None:
    flags = FaultFlags(4, torch.device("cpu"))
    excused = torch.tensor([False, True, False, False])
    finite = flags.watch(spoiled("actor", (1, 0), (1, 1)), excused=excused)
    assert finite.tolist() == [True, False, True, True]
    flags.check(NAMES)


def test_only_the_columns_of_worlds_that_are_not_excused_are_named() -> None:
    flags = FaultFlags(4, torch.device("cpu"))
    flags.watch(spoiled("actor", (1, 0), (2, 2)), excused=torch.tensor([0, 1, 0, 0]).bool())
    with pytest.raises(NonFiniteError, match=r"^actor term 'rates' was .* \(2\)"):
        flags.check(NAMES)


def test_many_worlds_are_counted_and_a_few_named() -> None:
    flags = FaultFlags(9, torch.device("cpu"))
    values = {"reward": torch.full((9, 2), torch.nan)}
    flags.watch(values, excused=torch.zeros(9, dtype=torch.bool))
    with pytest.raises(NonFiniteError, match=r"9 env\(s\) \(0, 1, 2, 3, 4, \.\.\.\)"):
        flags.check(NAMES)


def test_a_column_of_two_entries_is_named_once() -> None:
    flags = FaultFlags(4, torch.device("cpu"))
    flags.watch(spoiled("actor", (0, 0), (0, 1)), excused=NOBODY)
    with pytest.raises(NonFiniteError, match=r"^actor term 'position' was NaN"):
        flags.check(NAMES)
