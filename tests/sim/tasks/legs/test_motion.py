"""Motion: where episodes begin, what following a clip pays, and what ends it."""

from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.playback import Playback
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.motions.reference import BODY_FIELDS, MotionConfig, Script, ScriptConfig
from sim.task import StepOutcome
from sim.tasks.legs.motion import MotionTask, PhaseConfig, Phases, amplitudes
from tests.fakes import CPU
from tests.sim.legs import BODIES, motion_config, motion_envs
from tests.sim.rendering.shown import envs
from tests.sim.stepping import terms_of


def phases(*, adaptive: bool = True, starts: int = 25, repeats: bool = True, **config) -> Phases:
    """Bins of 1 s with ten frames each; the last has five."""
    return Phases(PhaseConfig(**config), starts=starts, control_dt=0.1, adaptive=adaptive,
                  device=CPU, repeats=repeats)  # fmt: skip


def test_all_bins_are_alike_at_first_and_failures_count_by_hand():
    torch.testing.assert_close(phases().chances, torch.full((3,), 1 / 3))
    one = phases(decay=0.5, uniform=0.3)
    frame = torch.tensor([3, 12, 14, 30])  # bins 0, 1, 1; the last one is in its second round
    one.follow(frame, torch.tensor([False, True, True, True]))
    # Half of the counts 0, 2, 1 is kept: frame 30 is frame 5 again, in bin 0.
    expected = torch.tensor([0.5 + 0.1, 1.0 + 0.1, 0.1])
    torch.testing.assert_close(one.chances, expected / expected.sum())
    one.follow(frame, torch.zeros(4, dtype=torch.bool))
    expected = torch.tensor([0.25 + 0.1, 0.5 + 0.1, 0.1])
    torch.testing.assert_close(one.chances, expected / expected.sum())


def test_a_failure_while_the_last_pose_is_held_counts_at_the_end():
    one = phases(decay=0.9, uniform=1e-6, repeats=False)
    one.follow(torch.tensor([40]), torch.tensor([True]))  # it was counted in the first bins
    torch.testing.assert_close(one.chances, torch.tensor([0.0, 0.0, 1.0]), atol=1e-5, rtol=0)


def test_starts_follow_the_chances_and_stay_within_the_motion():
    one = phases(decay=0.5, uniform=0.3)
    one.follow(torch.tensor([12, 12]), torch.ones(2, dtype=torch.bool))
    frames = one.draw(20_000, torch.Generator().manual_seed(0))
    assert (int(frames.min()), int(frames.max())) == (0, 24)
    share = torch.bincount(frames // 10, minlength=3) / 20_000
    torch.testing.assert_close(share, one.chances, atol=0.01, rtol=0)


def test_evaluation_draws_every_frame_alike_whatever_failed():
    one = phases(adaptive=False)
    one.follow(torch.tensor([12]), torch.tensor([True]))
    frames = one.draw(25_000, torch.Generator().manual_seed(0))
    assert torch.bincount(frames, minlength=25).min() > 850


def test_a_motion_shorter_than_a_bin_is_one_bin():
    one = phases(starts=4)
    assert one.chances.tolist() == [1.0]
    assert int(one.draw(500, torch.Generator().manual_seed(0)).max()) == 3


COUNT = 3


@pytest.fixture
def env() -> SimEnv:
    one = motion_envs(COUNT, noise=False)
    one.reset(seed=1)
    return one


def judged(env: SimEnv, **changes: Any) -> StepOutcome:
    """The verdict on robots that are on the motion, but shifted [m], turned about the vertical
    [rad], with the first watched foot lifted [m], or with a faster base along x [m/s]."""
    task = env.task
    assert isinstance(task, MotionTask)
    asked = {name: value.clone() for name, value in task._asked().items()}
    turn = quaternion.from_yaw(torch.full((COUNT,), float(changes.get("turn", 0.0))))
    shift = torch.tensor(changes.get("shift", (0.0, 0.0, 0.0)))
    base = asked["position_w"]
    arm = quaternion.rotate(turn[:, None], asked["body_position_w"] - base[:, None])
    bodies = {
        "body_position_w": base[:, None] + shift + arm,
        "body_orientation_w": quaternion.multiply(
            turn[:, None].expand(COUNT, len(BODIES), 4), asked["body_orientation_w"]
        ),
        "body_velocity_w": asked["body_velocity_w"],
        "body_rates_w": asked["body_rates_w"],
    }
    bodies["body_position_w"][:, 1, 2] += float(changes.get("lift", 0.0))
    task._sensors = {
        **{name: bodies[name].flatten(1) for name in BODY_FIELDS},
        "body_contact": torch.zeros(COUNT, 9),
    }
    fields = {name: asked[name] for name in ("linear_velocity_w", "angular_velocity_b",
                                             "joint_position", "joint_velocity")}  # fmt: skip
    fields["position_w"] = base + shift
    fields["linear_velocity_w"][:, 0] += float(changes.get("faster", 0.0))
    fields["orientation_w"] = quaternion.multiply(turn, asked["orientation_w"])
    actions = torch.zeros(COUNT, 12)
    return task.evaluate(RobotState(fields), actions, actions, torch.ones(COUNT, dtype=torch.int64))


def terms(verdict: StepOutcome) -> dict[str, float]:
    for values in verdict.reward_terms.values():
        assert torch.allclose(values, values[:1], atol=1e-3)
    return terms_of(verdict)


def test_who_is_on_the_motion_gets_all_there_is(env):
    verdict = judged(env)
    paid = terms(verdict)
    costs = ("joint_limit", "smoothness", "collision")
    assert [paid.pop(name) for name in costs] == [0.0] * 3
    assert list(paid.values()) == pytest.approx([1.0] * 6, abs=1e-3)
    assert not verdict.terminated.any()
    assert verdict.success.all()


def test_another_place_or_heading_costs_the_anchor_only(env):
    paid = terms(judged(env, shift=(0.3, 0.0, 0.0)))
    assert paid["anchor_position"] == pytest.approx(0.3679, abs=1e-3)  # 1/e at 0.3 m
    assert paid["body_position"] == pytest.approx(1.0, abs=1e-3)
    paid = terms(judged(env, turn=0.4))
    assert paid["anchor_orientation"] == pytest.approx(0.3679, abs=2e-3)  # 1/e at 0.4 rad
    assert paid["body_position"] == pytest.approx(1.0, abs=1e-3)
    assert paid["body_orientation"] == pytest.approx(1.0, abs=1e-3)


def test_another_height_costs_the_bodies_too_and_ends_the_episode_beyond_a_limit(env):
    verdict = judged(env, shift=(0.0, 0.0, 0.1))
    assert terms(verdict)["body_position"] == pytest.approx(0.8948, abs=1e-3)  # exp(-1/9)
    assert not verdict.terminated.any()
    assert judged(env, shift=(0.0, 0.0, -0.26)).terminated.all()


def test_a_foot_that_is_too_high_ends_the_episode(env):
    verdict = judged(env, lift=0.24)
    assert not verdict.terminated.any()
    error = 0.24 / len(BODIES)
    assert verdict.metrics["body_error"].tolist() == pytest.approx([error] * COUNT, abs=1e-3)
    assert judged(env, lift=0.26).terminated.all()


def test_success_is_a_mean_over_the_episode(env):
    judged(env, lift=0.2)
    judged(env, shift=(0.0, 0.0, 0.17))
    verdict = judged(env)  # mean of 0.04, 0.17 and 0 m
    assert verdict.metrics["mean_body_error"].tolist() == pytest.approx([0.07] * COUNT, abs=1e-3)
    assert verdict.success.all()
    assert not judged(env, shift=(0.0, 0.0, 0.24)).success.all()  # 0.1125 m


def test_following_all_bodies_on_the_spot_is_no_success(env):
    """A Go2 that shuffled through half of a trot was 3.7 cm off in its bodies, and a success."""
    verdict = judged(env, faster=-0.19)
    assert verdict.metrics["mean_velocity_error"].tolist() == pytest.approx([0.19] * COUNT)
    assert verdict.success.all()
    verdict = judged(env, faster=-0.23)  # mean of 0.21 m/s
    assert float(verdict.metrics["mean_body_error"].max()) < 0.01
    assert not verdict.success.any()


def test_a_robot_that_holds_the_mean_pose_is_off_by_how_far_the_bodies_swing():
    """Two frames: a body 0.1 m forward and back of its mean; then a base that walks and turns."""
    base = torch.tensor([[0.0, 0.0, 0.5], [1.0, 2.0, 0.5]])
    ahead = torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.0, 0.0]])
    turned = quaternion.from_yaw(torch.tensor([0.0, 0.5 * torch.pi]))
    asked = {
        "position_w": base,
        "orientation_w": turned,
        "body_position_w": (base + quaternion.rotate(turned, ahead))[:, None],
        "linear_velocity_w": torch.tensor([[0.3, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    }
    assert amplitudes(asked, 2) == pytest.approx((0.1, 0.15))
    assert amplitudes(asked, 1) == pytest.approx((0.0, 0.3))


def test_limits_that_a_robot_which_holds_still_keeps_are_refused():
    told = r"holds still .* is 0\.0\d+ m and 0\.0\d+ m/s off on average.*success allows 0\.1 m"
    with pytest.raises(ConfigError, match=told):
        motion_envs(1, motion=MotionConfig(script=ScriptConfig(kind=Script.step)))


def test_joints_far_from_the_clip_cost_where_a_robot_asks_for_it():
    env = motion_envs(COUNT, noise=False, reward={**motion_config().reward, "joints": -1.0})
    env.reset(seed=1)
    task = env.task
    actions = torch.zeros(COUNT, 12)
    true_state = env.simulation.true_state
    joints = true_state.joint_position
    joints.copy_(task._asked()["joint_position"])  # pyright: ignore
    joints[:, 3] += 0.6
    step = torch.ones(COUNT, dtype=torch.int64)
    cost = task.evaluate(true_state, actions, actions, step).reward_terms["joints"]
    torch.testing.assert_close(cost, torch.full((COUNT,), 0.36 / 12))


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["go2", pytest.param("g1", marks=pytest.mark.full)])
def test_doing_nothing_is_no_success(robot):
    env = envs("motion", 2, f"robot={robot}", "task.episode_length=2.0")
    outcome = evaluate(env, lambda obs: torch.zeros(2, env.spec.action_size), seed=2)
    assert not outcome.success.any()


def test_episodes_begin_on_the_motion(env):
    true_state, asked = env.simulation.true_state, env.task._asked()  # pyright: ignore
    torch.testing.assert_close(true_state.position_w, asked["position_w"], atol=1e-5, rtol=0)
    away = (true_state.joint_position - asked["joint_position"]).abs().max()
    assert 0.05 < away <= 0.1 + 1e-5
    assert len(set(env.task.state_dict()["first"].tolist())) > 1


def test_the_motion_goes_on_by_a_frame_in_every_step(env):
    task = env.task
    first = task.state_dict()["frame"]
    env.step(torch.zeros(COUNT, 12))
    asked = task._asked()  # pyright: ignore
    assert torch.equal(task.state_dict()["frame"], first + 1)
    torch.testing.assert_close(task.goal["reference_joints"], asked["joint_position"])
    matrix = quaternion.rotation_matrix(asked["orientation_w"])
    torch.testing.assert_close(task.goal["orientation_matrix_w"], matrix)


@pytest.mark.parametrize("repeat", [True, False])
def test_a_robot_plays_what_its_simulation_asks_for(repeat):
    motion = MotionConfig(script=ScriptConfig(kind=Script.walk, period=0.6), repeat=repeat)
    env = motion_envs(1, noise=False, episode_length=0.9, motion=motion)
    env.reset(seed=0)
    task = env.task
    assert task.playback is not None
    task.load_state_dict({**task.state_dict(), "first": torch.zeros(1, dtype=torch.int64),
                          "frame": torch.zeros(1, dtype=torch.int64)})  # fmt: skip
    player = Playback(task.playback)
    player.reset({"orientation_w": np.array([[1.0, 0.0, 0.0, 0.0]])})
    assert set(player.goals) == set(task.goal), "a robot waits for all of them"
    seen = ("reference_joints", "reference_joint_speeds", "orientation_matrix_w")
    for step in range(1, 45):  # the clip has 30 frames
        for name in seen:
            wanted = task.goal[name].numpy()
            if repeat and step == 1 and name == seen[1]:
                continue  # in training a difference of one side, in which no round begins again
            np.testing.assert_allclose(player.value(name), wanted, atol=1e-4, err_msg=f"{step}")
        assert not player.value("body_preview_w").any()
        player.tick()
        task.advance(torch.tensor([step]))


def test_starts_are_drawn_where_robots_failed_in_training_only():
    env = motion_envs(COUNT, noise=False, evaluation=False)
    env.reset(seed=0)
    env.task._phases.follow(torch.tensor([2]), torch.tensor([True]))  # pyright: ignore
    counts = env.task.state_dict()["phases"]["failures"]
    assert float(counts.sum()) == pytest.approx(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["go2", pytest.param("g1", marks=pytest.mark.full)])
def test_robot_that_holds_its_default_pose_sees_the_motion_pass_and_its_mirror(robot):
    """Both robots know their bodies, and nothing of a motion is missing to actor or critic."""
    env = envs("motion", 2, f"robot={robot}", "task.episode_length=0.2")
    mirror, obs = env.mirror(), env.reset(seed=0)
    joints = env.simulation.robot.joint_names
    sides = ("left_knee", "right_knee") if robot == "g1" else ("FL_calf", "FR_calf")
    left, right = (joints.index(f"{name}_joint") for name in sides)
    for group in ("actor", "critic"):
        assert mirror.groups[group].width == obs[group].shape[1]
        assert mirror.groups[group].source[left] == right  # reference_joints come first
    step = env.step(torch.zeros(2, env.spec.action_size))
    env.check()
    assert bool(step.valid.all())
    assert 0.5 < float(step.reward.mean()) < 1.5  # it began on the motion
    assert step.reward_terms is not None
    assert bool((step.reward_terms[:, :6] > 0.1).all())
