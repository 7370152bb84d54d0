"""Starts of a deployed twin: at rest unless thrown ones are asked for."""

import pytest

from policies.zoo.catalog import bundle_folder
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment


@pytest.mark.slow
@pytest.mark.parametrize("start", ["rest", "thrown"])
def test_a_drone_begins_at_rest_or_as_it_was_trained(start):
    plan = Deployment(DeployOptions(bundle=str(bundle_folder("zoo:crazyflie-hover")), start=start))
    trained, begun = plan.config.task.evaluation_start, plan.twin_config.task.evaluation_start
    assert trained.attitude_deg > 0 < trained.velocity
    if start == "thrown":
        assert begun == trained
    else:
        assert (begun.attitude_deg, begun.velocity, begun.angular_velocity) == (0, 0, 0)
        assert begun.position == trained.position


@pytest.mark.slow
def test_a_robot_on_legs_begins_as_it_was_trained():
    plan = Deployment(DeployOptions(bundle=str(bundle_folder("zoo:go2-velocity"))))
    assert plan.twin_config is plan.config
