"""Targets of a policy become ramps that do not know how fast the loop ticks."""

import numpy as np
import pytest

from hardware.controllers.joint_pd import torque
from hardware.controllers.legged_targets import LeggedTargets
from tests.hardware.controllers import joints

ZERO = joints.state([0.0, 0.0])
FIRST = joints.command([1.0, -1.0], kp=40.0, kd=1.0)
SECOND = joints.command([0.0, 1.0], kp=40.0, kd=1.0)


def run(dt, hold=0.02, **config):
    """Commands of 0.06 s: the first target at 0, the second at 0.02 s; by time in ms."""
    law = LeggedTargets(hold, **config)
    law.start(ZERO, joints.command([0.0, 0.0], kp=40.0, kd=1.0))
    found = {}
    for tick in range(round(0.06 / dt) + 1):
        setpoint = FIRST if tick * dt < 0.02 - 1e-9 else SECOND
        found[round(1e3 * tick * dt, 6)] = law.update(setpoint, ZERO, dt).q[0]
    return found


def test_a_ramp_by_hand():
    found = run(0.005)
    for time, q in {
        0: [0, 0], 5: [0.25, -0.25], 15: [0.75, -0.75], 20: [1, -1], 30: [0.5, 0], 40: [0, 1],
        60: [0, 1],
    }.items():  # fmt: skip
        np.testing.assert_allclose(found[time], q)
    limited = run(0.005, speed_limit=10.0)  # 1 rad takes 0.1 s
    np.testing.assert_allclose(limited[20], [0.2, -0.2])
    assert (run(0.005, hold=0.0)[0] == [1, -1]).all(), "a target held in steps is there at once"


@pytest.mark.parametrize("config", [{}, {"speed_limit": 60.0}, {"hold": 0.007}, {"hold": 0.0}])
def test_the_command_at_a_time_is_the_same_at_every_rate_of_the_loop(config):
    coarse = run(0.005, **config)
    for dt in (0.001, 0.0025):
        fine = run(dt, **config)
        for time, q in coarse.items():
            np.testing.assert_allclose(fine[time], q, atol=1e-9)


def test_a_target_that_comes_early_turns_the_ramp_without_a_leap():
    law = LeggedTargets(0.02)
    law.start(ZERO, joints.command([0.0, 0.0]))
    before = law.update(FIRST, ZERO, 0.002).q
    for tick in range(40):
        now = law.update(FIRST if tick < 4 else SECOND, ZERO, 0.002).q
        assert np.abs(now - before).max() <= 2.0 * 0.1 + 1e-12
        before = now
    np.testing.assert_array_equal(before, SECOND.q)


def test_without_a_command_before_the_ramp_begins_where_the_joints_are():
    law = LeggedTargets(0.02)
    now = joints.state([0.4, 0.5], [1.0, -1.0])
    law.start(now, None)
    out = law.update(joints.command([1.0, -1.0], kp=40.0, kd=0.0), now, 0.002)
    np.testing.assert_array_equal(torque(out, now.joint_position, now.joint_velocity), 0.0)
    np.testing.assert_array_equal(out.kp, 40.0)


def test_gains_and_feed_forward_ramp_too():
    law = LeggedTargets(0.02)
    law.start(ZERO, joints.command([0.0, 0.0], tau=1.0, kp=10.0, kd=2.0))
    law.update(FIRST, ZERO, 0.01)
    half = law.update(FIRST, ZERO, 0.01)
    found = [half.tau[0], half.kp[0], half.kd[0]]
    np.testing.assert_allclose(found, [[0.5] * 2, [25] * 2, [1.5] * 2])
