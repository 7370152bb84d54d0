"""What every controller of the folder keeps to, whatever its law."""

from dataclasses import fields, replace

import numpy as np
import pytest

from hardware.controllers.cartesian_impedance import CartesianImpedanceConfig
from hardware.controllers.controller import kind_of
from hardware.controllers.joint_pd import not_negative
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import RotorCommand
from tests.hardware.controllers.every_controller import CASES, effect, state_for

DT = 0.002


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def started(case):
    """The law, begun in a state, and the state."""
    law = case.make()
    state = state_for(law.command)
    law.start(state, None)
    return law, state


def entries(command):
    found = {entry.name: getattr(command, entry.name) for entry in fields(command)}
    return {name: value for name, value in found.items() if value is not None}


def test_it_takes_and_makes_the_kinds_that_it_says(case):
    law, state = started(case)
    assert kind_of(case.setpoint) is law.setpoint
    command = law.update(case.setpoint, state, DT)
    assert kind_of(command) is law.command
    for value in entries(command).values():
        assert value.shape[0] == 1
        assert value.dtype == np.float64
        assert np.isfinite(value).all()
    still = law.update(case.setpoint, state, 0.0)
    assert np.isfinite(effect(still, state)).all(), "a tick without time divides by nothing"


def test_it_leaves_setpoint_and_state_as_they_are(case):
    law = case.make()
    state = state_for(law.command)
    before = [value.copy() for value in (*entries(case.setpoint).values(), *state.fields.values())]
    law.start(state, None)
    made = law.update(case.setpoint, state, DT)
    for value in entries(made).values():
        if not any(value is given for given in entries(case.setpoint).values()):
            value += 1.0  # nothing that it made may be a view of what it was given
    after = (*entries(case.setpoint).values(), *state.fields.values())
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_start_forgets_everything(case):
    law = case.make()
    state = state_for(law.command)
    runs = []
    for _ in range(2):
        law.start(state, None)
        runs.append([effect(law.update(case.setpoint, state, DT), state) for _ in range(20)])
    np.testing.assert_array_equal(runs[0], runs[1])


def test_a_sample_or_setpoint_that_is_no_number_leaves_no_trace(case):
    """Whoever limits commands keeps the one before; the next good tick is as if it had not been."""
    law, twin = case.make(), case.make()
    state = state_for(law.command)
    for one in (law, twin):
        one.start(state, None)
        for _ in range(5):
            one.update(case.setpoint, state, DT)
    for name in state.fields:
        broken = type(state)(dict(state.fields) | {name: np.nan * state.fields[name]})
        law.update(case.setpoint, broken, 0.0)
    for name, value in entries(case.setpoint).items():
        made = law.update(replace(case.setpoint, **{name: np.nan * value}), state, 0.0)
        assert not np.isfinite(effect(made, state)).all()
    got, expected = (one.update(case.setpoint, state, DT) for one in (law, twin))
    np.testing.assert_array_equal(effect(got, state), effect(expected, state))


def test_single_precision_in_is_double_precision_inside(case):
    law, twin = case.make(), case.make()
    state = state_for(law.command)
    singles = {name: value.astype(np.float32) for name, value in state.fields.items()}
    single = type(state)(singles)
    doubles = type(state)({name: value.astype(np.float64) for name, value in singles.items()})
    law.start(single, None)
    twin.start(doubles, None)
    for _ in range(3):
        one, other = law.update(case.setpoint, single, DT), twin.update(case.setpoint, doubles, DT)
        np.testing.assert_array_equal(effect(one, doubles), effect(other, doubles))


def test_rotor_speeds_are_refused_by_laws_that_take_something_else(case):
    law, state = started(case)
    with pytest.raises(SpecMismatchError, match="RotorCommand"):
        law.update(RotorCommand(speed=np.zeros((1, 4))), state, DT)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CartesianImpedanceConfig(torque_rate=0.0), "torque_rate must be > 0"),
        (lambda: not_negative("effort_limit", [1.0, -1.0]), "effort_limit must be >= 0"),
    ],
    ids=["rate of zero", "negative limit"],
)
def test_settings_that_no_robot_can_obey_are_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
