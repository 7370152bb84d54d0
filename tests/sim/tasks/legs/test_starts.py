"""Walking robots that begin crouched, moving or lying: touching, whole, and not lost at once."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from copy import copy
from typing import Any

import mujoco
import pytest
import torch

from configs.schema import make_env
from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv
from sim.randomization import PushConfig
from sim.robots.joint_robot import JointRandomization, StartsConfig
from sim.tasks.legs.velocity import VelocityTask
from tests.compositions import composed
from tests.fakes import CPU
from tests.sim.legs import evaluate, go2, leg_envs
from tests.sim.legs import leg_state as state
from tests.sim.stepping import context, everyone
from tests.sim.tasks.legs.test_velocity import SENSORS
from tests.sim.tasks.legs.test_velocity import task as velocity_task

COUNT = 16
CALM = JointRandomization(pushes=PushConfig())


def envs(*, only: str = "", count: int = COUNT, **starts: Any) -> SimEnv:
    """Envs whose goals ask to stand, with ten seconds for it; `only` is the kind of all starts."""
    starts |= {only: 1.0} if only else {}
    env = leg_envs(
        count, noise=False, starts=StartsConfig(**starts), randomization=CALM,
        standing=1.0, episode_length=10.0,
    )  # fmt: skip
    env.reset(seed=4)
    return env


def deepest(env: SimEnv) -> list[float]:
    """Smallest distance of any two things that touch, by env [m]; a centimetre where none do."""
    engine: Any = getattr(env.simulation, "engine", None)
    model, found = copy(engine.model), []
    data = mujoco.MjData(model)
    for row in range(env.spec.num_envs):
        engine.copy_world(row, model, data)
        found.append(min([data.contact[i].dist for i in range(data.ncon)], default=0.01))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("crouched", 0.19, 0.33), ("moving", 0.28, 0.38), ("lying", 0.05, 0.1)],
)
def test_starts_touch_the_ground_and_nothing_is_in_it(kind: str, low: float, high: float) -> None:
    env = envs(only=kind)
    height = env.simulation.true_state.position_w[:, 2]
    assert low < float(height.min())
    assert float(height.max()) < high
    assert min(deepest(env)) > -1e-3
    assert max(deepest(env)) < 0.0105
    level = quaternion.tilt(env.simulation.true_state.orientation_w)
    assert float(level.max()) < 0.1
    if kind == "crouched":
        assert float(height.max() - height.min()) > 0.05, "anywhere down to the deepest"
    first = env.step(torch.zeros(COUNT, 12))
    assert not bool(first.ended.any())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crouched", "moving", "lying"])
def test_whoever_holds_the_default_pose_stands_or_rests_after_two_seconds(kind: str) -> None:
    env = envs(only=kind)
    for _ in range(100):
        step = env.step(torch.zeros(COUNT, 12))
        assert not bool(step.terminated.any())
    true_state = env.simulation.true_state
    assert float(true_state.position_w[:, 2].min()) > 0.25
    assert float(true_state.joint_velocity.abs().max()) < 1.0


@pytest.mark.slow
def test_moving_robots_move_with_base_and_joints_and_the_others_are_at_rest() -> None:
    moving = envs(moving=1.0, speed=0.5, joint_speed=1.5).simulation.true_state
    level, rates = moving.linear_velocity_w, moving.angular_velocity_b
    assert 0.3 < float(level[:, :2].abs().max()) <= 0.5
    assert not level[:, 2].any()
    assert 0.3 < float(rates[:, 2].abs().max()) <= 0.5
    assert 1.0 < float(moving.joint_velocity.abs().max()) <= 1.5
    for kind in ("crouched", "lying"):
        still = envs(only=kind).simulation.true_state
        assert not still.linear_velocity_w.any()
        assert not still.joint_velocity.any()


@pytest.mark.slow
def test_shares_are_shares_and_without_any_nothing_is_drawn_otherwise() -> None:
    mixed = envs(count=400, crouched=0.2, moving=0.3, lying=0.1).simulation.true_state
    lying = float((mixed.position_w[:, 2] < 0.1).float().mean())
    assert lying == pytest.approx(0.1, abs=0.05)
    assert float(mixed.joint_velocity.any(-1).float().mean()) == pytest.approx(0.3, abs=0.07)
    plain = leg_envs(COUNT, noise=False, randomization=CALM, standing=1.0, episode_length=10.0)
    before = plain.reset(seed=4)["actor"].clone()
    none = envs(crouch_height=0.9)
    assert torch.equal(none.reset(seed=4)["actor"], before)
    headings = quaternion.rotation_matrix(mixed.orientation_w)[:, 0]
    assert float(headings.min()) < -0.9, "they look anywhere"
    assert float(headings.max()) > 0.9


def risen(**starts: Any) -> VelocityTask:
    """One env that began lying, in control periods of 0.1 s."""
    lies = torch.zeros(1, 19)
    lies[:, 2:4] = torch.tensor([0.06, 1.0])
    plain = velocity_task()
    plain.config.starts = StartsConfig(lying=1.0, **starts)
    given = context(1, 0.1, robot=go2().spec, sensors=SENSORS, poses={"lying": lies})
    made = VelocityTask(plain.config, given)
    made.start(everyone(1), torch.Generator().manual_seed(0))
    return made


def test_a_robot_that_began_lying_has_fallen_once_it_had_risen_or_had_its_time() -> None:
    made = risen(rise_time=0.5)
    low, high = state(height=0.06), state(height=0.2)
    assert [bool(evaluate(made, low, step).terminated) for step in (1, 4, 5)] == [0, 0, 1]
    made = risen(rise_time=0.5)
    assert not bool(evaluate(made, low, 1).terminated)
    assert not bool(evaluate(made, high, 2).terminated)
    assert bool(evaluate(made, low, 3).terminated), "it had risen"
    tipped = quaternion.from_rotation_vector(torch.tensor([[1.2, 0.0, 0.0]]))
    assert bool(evaluate(risen(), state(height=0.06, attitude=tipped)).terminated)
    saved = risen(rise_time=0.5)
    later = risen(rise_time=0.5)
    evaluate(later, high, 1)
    later.load_state_dict(saved.state_dict())
    assert not bool(evaluate(later, low, 2).terminated), "who lies is saved"


def test_a_robot_that_stood_has_fallen_as_soon_as_it_is_low() -> None:
    env = envs(crouched=0.5)
    env.step(torch.zeros(COUNT, 12))
    assert not env.task.state_dict()["rising"].any()


def test_what_no_robot_can_do_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"got 0\.6 \+ 0\.3 \+ 0\.2: their sum must not exceed 1"):
        StartsConfig(crouched=0.6, moving=0.3, lying=0.2)
    with pytest.raises(ConfigError, match=r"starts\.lying must lie in \[0, 1\], got -0\.1"):
        StartsConfig(lying=-0.1)
    with pytest.raises(ConfigError, match=r"crouch_height must lie in \(0, 1\], got 0"):
        StartsConfig(crouch_height=0)
    with pytest.raises(ConfigError, match=r"crouch_height=0\.1: the legs of robot 'go2' fold down"):
        envs(crouched=0.1, crouch_height=0.1)


@pytest.mark.slow
def test_a_humanoid_crouches_on_level_soles_and_does_not_lie_on_its_belly() -> None:
    chosen = ["task=velocity", "robot=g1"]
    config = composed([*chosen, "task.starts.crouched=1"]).config
    env = make_env(config, num_envs=COUNT, device=CPU, seed=0, evaluation=True)
    assert isinstance(env, SimEnv)
    env.reset(seed=0)
    assert min(deepest(env)) > -1e-3
    height = env.simulation.true_state.position_w[:, 2]
    assert 0.6 < float(height.min()) < 0.7
    assert not bool(env.step(torch.zeros(COUNT, env.spec.action_size)).ended.any())
    config = composed([*chosen, "task.starts.lying=0.1"]).config
    with pytest.raises(ConfigError, match=r"robot 'g1' tips over .* or choose task=stand_up"):
        make_env(config, num_envs=1, device=CPU, seed=0, evaluation=True)


def test_an_old_saved_state_knows_nobody_who_lies() -> None:
    made = velocity_task()
    saved = made.state_dict()
    del saved["rising"]
    made.load_state_dict(saved)
    assert not made.state_dict()["rising"].any()
