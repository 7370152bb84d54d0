"""Left and right exchanged, in physics: who does the mirrored action is the mirror image."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from robot_rl.core.action import ActionMap
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import EnvMirror, RobotMirror, SignedPermutation
from robot_rl.core.observation import FIELD_KINDS, Mirrored, RobotState, TermConfig
from sim.env import SimEnv, mirror_envs
from sim.robots.joint_plant import mirror_drawn
from sim.robots.joint_robot import JointRandomization
from sim.robots.joint_simulation import MujocoSimulation
from sim.scenes.terrain import ScanConfig, mirror_scan, scan_points
from sim.task import InitialState
from sim.tasks.legs.gait import Gait, GaitConfig
from tests.robot_rl.core.test_mirror import image, walker
from tests.sim.legs import CPU, TERMS, go2, leg_envs
from tests.sim.stepping import everyone, weights

SEEN = (
    *TERMS, "last_action", "orientation_matrix", "linear_velocity_w", "state/position_w",
    "state/orientation_w", "state/joint_effort", "state/linear_acceleration_b",
    "sensed/foot_velocity_w", "sensed/foot_position_w", "sensed/body_contact",
)  # fmt: skip
HISTORY = 3


def envs(**changes: Any) -> SimEnv:
    """Two envs on the floor that differ in nothing; no noise, no delay, no pushes."""
    actor = [TermConfig(term=name, history=HISTORY, scale=0.5) for name in (*TERMS, "last_action")]
    values: dict[str, Any] = {
        "randomization": JointRandomization(), "episode_length": 2.0, "max_tilt": math.pi,
        "lowest_height": -9.0, "reward": dict.fromkeys(weights("velocity"), 1.0),
        "actor": actor, "critic": [TermConfig(term=name) for name in SEEN],
    }  # fmt: skip
    env = leg_envs(2, noise=False, robot=go2(noise=False), seed=3, **(values | changes))
    env.reset(seed=3)
    return env


def balance_the_base(env: SimEnv) -> None:
    """The manufacturer's base is not quite symmetric: its inertia is tilted by a few mrad."""
    assert isinstance(env.simulation, MujocoSimulation)
    engine = env.simulation.engine
    attitude = engine.model_field("body_iquat")
    base = attitude[:, 1].clone()
    base[:, 0::2] = 0.0  # half a turn about an axis in the plane of x and z
    attitude[:, 1] = base / base.norm(dim=-1, keepdim=True)
    engine.update_constants(everyone(2))


def put_the_image_into_env_one(env: SimEnv, mirror: RobotMirror) -> None:
    """Its robot, goals and clock become the mirror images of env zero's."""
    true_state = env.simulation.true_state.fields
    names = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b",
             "joint_position", "joint_velocity")  # fmt: skip
    start = {
        name: image(
            mirror.kind(FIELD_KINDS[name], true_state[name].shape[-1]), true_state[name][:1]
        ).clone()
        for name in names
    }
    second = EnvSelection(torch.tensor([False, True]))
    env.simulation.reset(second, InitialState(robot=RobotState(start)), torch.Generator())
    task = env.task.state_dict()
    task["goals"][1] = image(mirror.kind(Mirrored.ground_motion, 3), task["goals"][0])
    task["goal"][1] = task["goals"][1, 0]
    for name in ("first_phase", "phase"):  # a trot is itself half a cycle later
        task[name][1] = (task[name][0] + 0.5) % 1.0
    env.task.load_state_dict(task)


def largest_difference(env: SimEnv, found: EnvMirror, steps: int = 15) -> tuple[float, float]:
    """Of env one and the image of env zero: observations, and reward terms, over all steps."""
    generator = torch.Generator().manual_seed(0)
    seen = paid = 0.0
    for t in range(steps):
        action = torch.rand(env.spec.action_size, generator=generator) * 1.6 - 0.8
        step = env.step(torch.stack([action, image(found.action, action)]))
        if t >= HISTORY - 1:  # older frames are from before the robots were placed
            for name, group in step.next_obs.items():
                difference = (image(found.groups[name], group[0]) - group[1]).abs()
                seen = max(seen, float((difference / group[1].abs().clamp_min(1.0)).max()))
        assert step.reward_terms is not None
        paid = max(paid, float((step.reward_terms[0] - step.reward_terms[1]).abs().max()))
        assert torch.equal(step.terminated[:1], step.terminated[1:])
    return seen, paid


def test_mirrored_actions_lead_to_mirrored_observations_and_equal_rewards_and_no_others():
    env = envs()
    balance_the_base(env)
    put_the_image_into_env_one(env, RobotMirror(env.simulation.robot))
    seen, paid = largest_difference(env, env.mirror())
    assert seen < 2e-5
    assert paid < 2e-5
    env = envs()
    balance_the_base(env)
    put_the_image_into_env_one(env, RobotMirror(env.simulation.robot))
    wrong = replace(env.mirror(), action=SignedPermutation.signs(*[1.0] * 12))
    assert min(largest_difference(env, wrong)) > 0.05


@pytest.mark.parametrize(
    ("term", "width", "told"),
    [
        ("goal/clock", 2, "mirror of 'clock' is unknown"),
        ("state/joint_position", 11, "it has 11 columns, which are no 'joints'"),
    ],
)
def test_a_term_without_a_mirror_is_named_with_its_group(term: str, width: int, told: str) -> None:
    robot = go2().spec
    layout = [{"term": "last_action", "width": 12, "history": 3},
              {"term": term, "width": width, "history": 1}]  # fmt: skip
    action_map = ActionMap.joint_positions(robot, 0.5)
    plain: Any = SimpleNamespace(goal_mirrors=lambda robot: {}, sensor_mirrors=lambda robot: {})
    with pytest.raises(
        ConfigError, match=f"'critic' cannot be mirrored, as its term '{term}' has no .*{told}"
    ):
        mirror_envs(robot, plain, plain, action_map, {"critic": layout})


def test_every_drawn_parameter_goes_to_the_other_side() -> None:
    mirror = RobotMirror(walker())
    bodies = ["trunk", "left_hip", "right_hip"]
    widths = {
        "payload": 1, "link_mass": 3, "centre_of_mass": 3, "motor_strength": 5, "latency": 1,
    }  # fmt: skip
    found = mirror_drawn(widths, bodies, [-0.02, 0.02], mirror)
    values = torch.arange(1.0, 14.0)
    assert image(found, values).tolist() == [1, 2, 4, 3, 5, -6, 7, 10, 11, 8, 9, 12, 13]
    with pytest.raises(ConfigError, match=r"centre_of_mass \[0.0, 0.02\] has no mirror"):
        mirror_drawn(widths, bodies, [0.0, 0.02], mirror)


def test_a_scan_is_read_from_left_to_right() -> None:
    config = ScanConfig(length=0.6, width=0.4, spacing=0.2)
    points = scan_points(config)
    heights = points[:, 0] + 10 * points[:, 1]  # higher on the left
    mirrored = points[:, 0] - 10 * points[:, 1]
    assert torch.allclose(image(mirror_scan(config), heights), mirrored, atol=1e-6)


@pytest.mark.parametrize(
    ("offsets", "sign"),
    [([0.0, 0.5, 0.5, 0.0], -1.0), ([0.0, 0.0, 0.5, 0.5], 1.0), ([0.0, 0.5, 0.75, 0.25], -1.0)],
    ids=["trot", "bound", "walk"],
)
def test_the_mirrored_clock_asks_of_each_foot_what_its_counterpart_was_asked(offsets, sign):
    gait, feet = Gait(GaitConfig(offsets=offsets), num_feet=4, device=CPU), (1, 0, 3, 2)
    assert gait.mirror(feet).sign == (sign, sign)
    phase, moving = torch.rand(100), torch.ones(100, dtype=torch.bool)
    later = (phase + (0.5 if sign < 0 else 0.0)) % 1.0
    assert torch.allclose(gait.clock(later, moving), sign * gait.clock(phase, moving), atol=1e-5)
    one, two = gait.target(phase, moving), gait.target(later, moving)
    assert torch.equal(one.stands[:, list(feet)], two.stands)
    assert torch.allclose(one.height[:, list(feet)], two.height, atol=1e-5)
    limping = Gait(GaitConfig(offsets=[0.0, 0.3, 0.5, 0.0]), num_feet=4, device=CPU)
    with pytest.raises(ConfigError, match=r"gait.offsets \[0.0, 0.3, 0.5, 0.0\] have no mirror"):
        limping.mirror(feet)
