"""Stand-up: where robots begin, what standing is, what each term pays, with numbers by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from sim.robots.joint_robot import FallenConfig, JointRandomization, dropped
from sim.robots.joint_simulation import MujocoSimulation
from sim.task import StepOutcome
from sim.tasks.legs.stand_up import StandUpConfig, StandUpTask
from tests.fakes import CPU
from tests.sim.arms import panda
from tests.sim.legs import go2
from tests.sim.stepping import context, everyone, terms_of

DT = 0.1
SPEC = go2().spec
DEFAULT = torch.tensor([[joint.default_position for joint in SPEC.joints]])
ON_ITS_BACK = torch.tensor([[0.0, 1.0, 0.0, 0.0]])


def lying(count: int) -> Tensor:
    """Robots on their backs, in the default pose but for the first joint, which counts them."""
    poses = torch.cat([torch.zeros(1, 2), torch.tensor([[0.1]]), ON_ITS_BACK, DEFAULT], dim=-1)
    poses = poses.repeat(count, 1)
    poses[:, 7] = torch.arange(count) * 0.01
    return poses


def task(envs: int = 1, *, evaluation: bool = False, **changes: Any) -> StandUpTask:
    """A second in ten steps, three of which the robot must stand."""
    values: dict[str, Any] = {"episode_length": 1.0, "success_window": 0.3}
    config = StandUpConfig(**(values | changes))
    return StandUpTask(
        config, context(envs, DT, robot=SPEC, fallen=lying(8), evaluation=evaluation),
    )  # fmt: skip


def state(
    *, tilt: float = 0.0, height: float = 0.28, speed: float = 0.0, bent: float = 0.0
) -> RobotState:
    """One robot, all of its joints as far from the default pose and as fast."""
    return RobotState(
        {
            "position_w": torch.tensor([[3.0, 2.0, height]]),
            "orientation_w": quaternion.from_rotation_vector(torch.tensor([[tilt, 0.0, 0.0]])),
            "joint_position": DEFAULT + bent,
            "joint_velocity": torch.full((1, 12), speed),
            "joint_effort": torch.tensor([[joint.effort_limit / 2 for joint in SPEC.joints]]),
        }
    )


def evaluate(made: StandUpTask, true_state: RobotState, step: int = 1) -> StepOutcome:
    action, last = torch.full((1, 12), 0.5), torch.full((1, 12), 0.3)
    return made.evaluate(true_state, action, last, torch.tensor([step]))


def test_a_standing_robot_is_paid_fully_if_calm_and_costs_are_means_over_the_joints() -> None:
    paid = terms_of(evaluate(task(), state(speed=0.4)))
    assert paid == pytest.approx(
        {
            "upright": 1.0, "height": 1.0, "pose": 1.0, "stand": 0.5 + 0.5 / 1.64,
            "speed": math.log(1.64),
            "effort": 0.25, "smoothness": 0.04,
        }
    )  # fmt: skip


def test_height_and_pose_pay_as_far_as_the_robot_is_upright() -> None:
    half = terms_of(evaluate(task(close=0.5), state(tilt=math.pi / 2, height=0.14, bent=0.5)))
    assert half["upright"] == pytest.approx(0.5)
    assert half["height"] == pytest.approx(0.5**4 * 0.5**2)
    # Of two decades and a bit, from `close` to 15 times it, the first decade is nothing.
    nearness = 1 - math.log1p(1.0) / math.log1p(15.0**2)
    assert half["pose"] == pytest.approx(0.5**4 * nearness)
    on_its_back = terms_of(evaluate(task(), state(tilt=math.pi, height=0.28)))
    for name in ("upright", "height", "pose"):
        assert on_its_back[name] == pytest.approx(0.0, abs=1e-6)
    assert on_its_back["stand"] < 0.01


def test_haste_costs_as_far_as_the_robot_is_upright() -> None:
    upright, half, back = (
        terms_of(evaluate(task(), state(tilt=tilt, speed=0.4)))
        for tilt in (0.0, math.pi / 2, math.pi)
    )
    for name in ("speed", "effort", "smoothness"):
        assert half[name] == pytest.approx(upright[name] / 4, rel=1e-5)
        assert back[name] == pytest.approx(0.0, abs=1e-6)


def test_the_pose_pays_by_decades_of_deviation() -> None:
    near, far = (
        terms_of(evaluate(task(close=0.1), state(bent=bent)))["pose"] for bent in (0.1, 1.0)
    )
    assert near == pytest.approx(1 - math.log(2) / math.log1p(225))
    assert far == pytest.approx(1 - math.log1p(100) / math.log1p(225))
    assert terms_of(evaluate(task(close=0.1), state(bent=2.0)))["pose"] == 0.0


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({}, True), ({"tilt": 0.24}, True), ({"tilt": 0.26}, False), ({"height": 0.24}, True),
        ({"height": 0.22}, False), ({"height": 0.34}, False), ({"speed": 0.49}, True),
        ({"speed": 0.51}, False),
    ],
)  # fmt: skip
def test_standing_is_upright_high_and_calm(changes: dict[str, float], stands: bool) -> None:
    assert (float(evaluate(task(), state(**changes)).metrics["stood"]) > 0) is stands


def test_success_is_standing_through_the_whole_window() -> None:
    made = task()
    found = [bool(evaluate(made, state()).success) for _ in range(4)]
    assert found == [False, False, True, True]
    assert not bool(evaluate(made, state(tilt=0.3)).success)  # a stumble begins the window anew
    assert [bool(evaluate(made, state()).success) for _ in range(3)] == [False, False, True]
    made.start(EnvSelection(torch.tensor([True])), torch.Generator().manual_seed(0))
    assert not bool(evaluate(made, state()).success)
    assert not bool(evaluate(made, state(tilt=math.pi)).terminated)


def test_joints_count_in_the_pose_as_their_names_are_weighed() -> None:
    made, bent = task(pose_weights={"calf": 0.0}), state()
    bent.joint_position[:, 2::3] += 0.5  # calves
    assert float(evaluate(made, bent).reward_terms["pose"]) == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="nonsense"):
        task(pose_weights={"nonsense": 3.0})


def test_nearly_standing_pays_by_how_near_it_is() -> None:
    made = task(max_tilt=0.2, height_tolerance=0.05, calm=0.5)
    assert terms_of(evaluate(made, state()))["stand"] == pytest.approx(1.0, abs=1e-5)
    for changes, paid in (
        ({"tilt": 0.2}, 0.5), ({"height": 0.33}, 0.5), ({"tilt": 0.4, "height": 0.23}, 0.2 * 0.5),
        ({"speed": 0.5}, 0.75), ({"tilt": 0.2, "speed": 1.0}, 0.5 * 0.6),
    ):  # fmt: skip
        assert terms_of(evaluate(made, state(**changes)))["stand"] == pytest.approx(paid, abs=1e-4)


def test_episodes_begin_lying_at_any_heading_and_evaluation_has_robots_of_its_own() -> None:
    seen: dict[bool, set[int]] = {}
    for evaluation in (False, True):
        rows = everyone(500)
        made = task(500, evaluation=evaluation, upright_starts=0.0)
        robot = made.start(rows, torch.Generator().manual_seed(0)).robot
        seen[evaluation] = set((robot.joint_position[:, 0] * 100).round().int().tolist())
        rotation = quaternion.rotation_matrix(robot.orientation_w)
        torch.testing.assert_close(rotation[:, 8], -torch.ones(500))
        heading = torch.atan2(rotation[:, 3], rotation[:, 0])
        assert heading.min() < -3.0
        assert heading.max() > 3.0
        assert not robot.joint_velocity.any()
    assert seen == {False: {1, 2, 3, 5, 6, 7}, True: {0, 4}}


def test_some_of_trainings_episodes_begin_upright_and_none_of_evaluations() -> None:
    standing = {}
    for evaluation in (False, True):
        made = task(1000, evaluation=evaluation)
        robot = made.start(everyone(1000), torch.Generator().manual_seed(0)).robot
        upright = quaternion.rotation_matrix(robot.orientation_w)[:, 8] > 0.999
        standing[evaluation] = float(upright.float().mean())
        torch.testing.assert_close(
            robot.joint_position[upright], DEFAULT.expand(int(upright.sum()), -1)
        )
        assert (robot.position_w[upright, 2] == made.config.height).all()
    assert standing[False] == pytest.approx(0.25, abs=0.04)
    assert standing[True] == 0.0
    with pytest.raises(ConfigError, match=r"task\.upright_starts must lie in \[0, 1\], got 1\.5"):
        StandUpConfig(upright_starts=1.5)


def test_dropped_robots_have_every_attitude_and_reach_their_limits() -> None:
    poses = dropped(FallenConfig(count=2000), SPEC)
    vertical = quaternion.rotation_matrix(poses[:, 3:7])[:, 8]
    # Uniform over all rotations, the cosine of the tilt is uniform in [-1, 1].
    shares = vertical.histc(4, -1.0, 1.0) / 2000
    assert (shares - 0.25).abs().max() < 0.04
    limits = torch.tensor([joint.position_limit for joint in SPEC.joints])
    joints = (poses[:, 7:] - limits[:, 0]) / (limits[:, 1] - limits[:, 0])
    assert 0.0 <= float(joints.min()) < 0.01
    assert 0.99 < float(joints.max()) <= 1.0
    assert torch.equal(poses, dropped(FallenConfig(count=2000), SPEC))


@pytest.mark.slow
def test_robots_that_fell_lie_still_on_the_ground_and_a_fixed_base_cannot_fall():
    envs = MujocoSimulation(go2(), JointRandomization(), num_worlds=1, device=CPU, seed=0)
    poses = envs.fallen(FallenConfig(count=32))
    later = envs.fallen(FallenConfig(count=32, seconds=1.1))
    assert float(poses[:, 2].min()) > 0.03
    assert float(poses[:, 2].max()) < 0.25
    moved = (later[:, :3] - poses[:, :3]).norm(dim=-1)
    assert float(moved.median()) < 0.01  # in a tenth of a second; a few still roll over
    vertical = quaternion.rotation_matrix(poses[:, 3:7])[:, 8]
    assert int((vertical < 0).sum()) > 8  # on their backs
    assert int((vertical > 0).sum()) > 8
    envs = MujocoSimulation(panda(), JointRandomization(), num_worlds=1, device=CPU, seed=0)
    with pytest.raises(ConfigError, match="base is fixed"):
        envs.fallen(FallenConfig())


def test_calmness_pays_from_afar_where_it_is_asked_for() -> None:
    measures: dict[str, Any] = {"max_tilt": 0.2, "height_tolerance": 0.05, "calm": 0.5}
    assert "calmness" not in evaluate(task(**measures), state()).reward_terms
    made = task(**measures, reward={"calmness": 2.0})

    def paid(**changes: float) -> float:
        return float(evaluate(made, state(**changes)).reward_terms["calmness"])

    assert paid() == pytest.approx(1.0, abs=1e-5)
    assert paid(speed=0.5) > paid(speed=2.0) + 0.2 > paid(speed=7.0) + 0.4
    assert paid(speed=7.5) == pytest.approx(0.0, abs=1e-5), "fifteen times as fast as calm"
    assert paid(tilt=0.2) == pytest.approx(0.5, abs=1e-4)
