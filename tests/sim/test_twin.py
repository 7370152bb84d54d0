"""The twin moves as the worlds that policies are trained in, whoever calls it."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.schema import RunConfig, make_env
from configs.twin_builder import build_twin, exactly_measured
from hardware.control.limits import JointLimiter, JointLimits
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import JointCommand, RobotCommand, RotorCommand
from sim.env import SimEnv
from sim.robots.multirotor_robot import FlightAction
from sim.twin import Twin
from tests.compositions import composed
from tests.fakes import CPU
from tests.matrices import some

SEED, STEPS = 11, 25
TASKS = {
    "hover": ["robot=crazyflie", "robot.loop_dt=0.01"],
    "hover by rates": ["robot=crazyflie", "robot.action=body_rates", "robot.loop_dt=0.01"],
    "reach": ["robot=panda"], "lift": ["robot=panda"], "velocity": ["robot=go2"],
}  # fmt: skip
_CLOSE = {"gripper_opening": 0.05, "joint_effort": 5e-3}
"""Commands pass through float32, once per physics step here and once per control step there, and a
gripper's target moves at its speed once per command."""


def make_config(task: str) -> RunConfig:
    """The task on the nominal plant, with sensors that are exact."""
    config = exactly_measured(composed([f"task={task.partition(' ')[0]}", *TASKS[task]]).config)
    nominal = replace(config.task, randomization=config.task.randomization.nominal())
    return replace(config, task=nominal)


@pytest.fixture(
    params=some(["hover by rates", "lift", "velocity"], ["hover", "reach"]), scope="module"
)
def config(request) -> RunConfig:
    return make_config(request.param)


def actions(size: int) -> torch.Tensor:
    return 0.3 * torch.randn(STEPS, 1, size, generator=torch.Generator().manual_seed(4))


def loop_of(config: RunConfig, twin: Twin) -> Callable[[RobotCommand], RobotCommand]:
    """What the loop of a robot makes of a policy's command before it writes it."""
    robot = config.robot
    if robot.spec.joints:
        # Motors saturate by themselves, here as there, and a little longer than a command whose
        # torque is bounded: between two ticks its damping takes away from that.
        strong = np.full(len(robot.spec.joints), np.inf)
        limiter = JointLimiter(replace(JointLimits.of(robot.spec), effort=strong))
        limiter.start(twin.read())
        # Where training knows no such limit, this test asks for what no limiter may touch.
        limited = robot.limit_target_speed

        def limit(command: RobotCommand) -> RobotCommand:
            twin.on_setpoint(command)
            return limiter.limit(command, twin.read(), twin.period).command if limited else command

        return limit
    if robot.action is FlightAction.rotors:
        return lambda command: command
    plant = robot.model
    layout = RotorLayout(
        rotor_position=plant.rotor_position, rotor_yaw_sign=plant.rotor_yaw_sign,
        thrust_curve=plant.thrust_curve, torque_per_thrust=plant.torque_per_thrust,
    )  # fmt: skip
    law = BodyRates(layout, BodyRatesConfig(inertia=plant.inertia, **robot.rate_loop.gains(plant)))
    law.start(twin.read(), None)

    def follow(command: RobotCommand) -> RobotCommand:
        twin.on_setpoint(command)
        return law.update(command, twin.read(), twin.period)

    return follow


def as_numpy(fields) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, dtype=np.float64).copy() for name, value in fields.items()}


@pytest.mark.slow
def test_it_moves_as_the_training_world_with_the_same_commands(config):
    env = make_env(config, num_envs=1, device=CPU, seed=SEED, evaluation=True)
    assert isinstance(env, SimEnv)
    twin = build_twin(config, seed=SEED)
    env.reset(seed=SEED)
    twin.connect()
    worlds, total = [], 0.0
    for action in actions(env.spec.action_size):
        step = env.step(action)
        worlds.append(as_numpy(env.simulation.true_state.fields))
        total += float(step.reward)
        assert not step.ended, "the comparison is of one episode"
    robot, loop = config.robot, loop_of(config, twin)
    for action, world in zip(actions(env.spec.action_size), worlds, strict=True):
        command = robot.action_map(config.task).to_command(action.numpy())
        for _ in range(robot.decimation):
            told = loop(command)
            assert twin.write(told) is told
        for name, value in as_numpy(twin.simulation.true_state.fields).items():
            close = _CLOSE.get(name, 1e-4)
            np.testing.assert_allclose(value, world[name], atol=close, rtol=1e-5, err_msg=name)
    assert twin.outcome.steps == STEPS
    assert twin.outcome.total_return == pytest.approx(total, rel=1e-3)
    assert twin.period * robot.decimation == pytest.approx(env.spec.control_dt)


@pytest.mark.slow
def test_nothing_that_a_robot_notices_depends_on_rewards(config):
    looked_at, alone = (build_twin(config, seed=SEED) for _ in range(2))
    for twin in (looked_at, alone):
        twin.connect()
    alone.valued = False
    action_map, decimation = config.robot.action_map(config.task), config.robot.decimation
    loops = [(twin, loop_of(config, twin)) for twin in (looked_at, alone)]
    for action in actions(action_map.size):
        command = action_map.to_command(action.numpy())
        for twin, loop in loops:
            for _ in range(decimation):
                twin.write(loop(command))
        for what in ("goal", "sensed"):
            ours, theirs = getattr(alone, what), getattr(looked_at, what)
            assert ours.keys() == theirs.keys()
            for name, value in ours.items():
                np.testing.assert_array_equal(value, theirs[name], err_msg=name)
        for name, value in alone.read().fields.items():
            np.testing.assert_array_equal(value, looked_at.read().field(name), err_msg=name)
    assert alone.outcome.steps == looked_at.outcome.steps == STEPS
    assert alone.outcome.total_return == 0.0 != looked_at.outcome.total_return


def test_exact_start_and_goal_are_those_of_the_training_world(config):
    spec = config.robot.spec
    loud = {name: replace(sensor, noise=0.1) for name, sensor in spec.sensors.items()}
    noisy = replace(config.robot, spec=replace(spec, sensors=loud))
    twin = build_twin(replace(config, robot=noisy), seed=SEED, exact=True)
    twin.connect()
    env = make_env(config, num_envs=1, device=CPU, seed=SEED, evaluation=True)
    assert isinstance(env, SimEnv)
    for seed in (3, 4):
        env.reset(seed=seed)
        twin.begin(seed)
        for name, value in as_numpy(twin.read().fields).items():
            np.testing.assert_array_equal(value, env.simulation.measured.fields[name].numpy())
        for name, value in twin.goal.items():
            np.testing.assert_array_equal(value, env.task.goal[name].numpy())


def test_same_seed_begins_the_same_episode(config):
    twin = build_twin(config, seed=SEED)
    states, goals = [], []
    for seed in (5, 6, 5):
        twin.begin(seed)
        state = twin.read()
        states.append(as_numpy(state.fields))
        widths = {name: value.shape[1] for name, value in state.fields.items()}
        assert widths == config.robot.spec.state_widths
        twin.stop()
        for name, value in state.fields.items():
            np.testing.assert_array_equal(value, states[-1][name], err_msg="a reading is a copy")
        goals.append(as_numpy(twin.goal))
    for first, _, again in (states, goals):
        for name in first:
            np.testing.assert_array_equal(first[name], again[name])
    assert any((states[0][name] != states[1][name]).any() for name in states[0])


def fallen(twin: Twin) -> None:
    for _ in range(400):
        twin.stop()


@pytest.mark.slow
def test_robot_that_is_let_go_falls_and_lies_there():
    twin = build_twin(make_config("velocity"), seed=SEED)
    twin.connect()
    fallen(twin)
    outcome = twin.outcome
    assert outcome.terminated
    assert not outcome.success
    height = float(np.asarray(twin.simulation.true_state.position_w)[0, 2])
    assert height < 0.2
    fallen(twin)
    assert twin.outcome.total_return == outcome.total_return, "the episode is over"


def test_motors_keep_the_command_before_one_that_is_not_finite():
    twin = build_twin(make_config("reach"), seed=SEED)
    twin.connect()
    good = twin.safe_command()
    assert isinstance(good, JointCommand)
    twin.write(good)
    assert twin.write(replace(good, q=np.full_like(good.q, np.nan))) is good
    assert np.isfinite(twin.read().joint_position).all()


@pytest.mark.slow
def test_faster_loop_is_the_same_robot():
    slow, fast = (
        build_twin(composed(["task=hover", *more]).config, seed=SEED, exact=True)
        for more in (["robot.loop_dt=0.01"], [])
    )
    assert fast.period == 0.002
    assert fast.control_dt == slow.control_dt == 0.01
    for twin in (slow, fast):
        twin.connect()
    command = RotorCommand(speed=np.array([[0.7, 0.66, 0.68, 0.7]]))
    for _ in range(30):
        slow.write(command)
        for _ in range(5):
            fast.write(command)
    assert fast.outcome.steps == slow.outcome.steps == 30
    for name, value in slow.read().fields.items():
        np.testing.assert_allclose(fast.read().fields[name], value, atol=2e-3, err_msg=name)
    assert np.abs(slow.read().field("position_w")).max() > 0.05, "it has moved"


@pytest.mark.slow
def test_a_plant_s_own_delay_is_as_long_behind_a_loop():
    config = composed(["task=hover", "robot.plants.paper.action_delay=2"]).config  # 20 ms
    robot = config.robot.behind_a_loop()
    assert robot.model.action_delay * robot.physics_dt == pytest.approx(0.02)


@pytest.mark.slow
def test_a_motion_goes_at_its_own_speed_and_stands_at_its_end():
    config = composed(["task=motion", "robot=go2"]).config
    env: Any = make_env(config, num_envs=1, device=CPU, seed=SEED, evaluation=True)
    twin: Any = build_twin(config, seed=SEED)
    twin.connect()
    command, ends = twin.safe_command(), twin.task._reference["position_w"]
    assert len(ends) == len(env.task._reference["position_w"])
    begin = twin.outcome.steps
    frame = int(twin.task._frame[0])
    for _ in range(round(1.0 / twin.period)):
        twin.write(command)
    periods = twin.outcome.steps - begin
    assert periods == pytest.approx(1.0 / env.spec.control_dt, abs=1)
    assert int(twin.task._frame[0]) - frame in (periods, periods - 1)
    twin.task.advance(torch.tensor([10**6]))
    assert torch.equal(twin.task.goal["position_w"], ends[-1:])


@pytest.mark.slow
def test_foreign_worlds_have_no_twin():
    with pytest.raises(ConfigError, match="'gymnasium', which has none"):
        build_twin(composed(["experiment=hopper"]).config, seed=0)


def timed_twin() -> tuple[Twin, SimpleNamespace]:
    """A twin, and the time that it goes by."""
    twin, clock = build_twin(make_config("velocity"), seed=SEED), SimpleNamespace(now=0.0)
    twin._now = lambda: clock.now  # pyright: ignore[reportPrivateUsage] - a clock of ours
    return twin, clock


def test_sample_counts_as_measured_when_the_world_is_where_a_robot_would_be():
    twin, clock = timed_twin()
    twin.connect()
    clock.now = 1.0
    twin.write(twin.safe_command())
    assert twin.stamp == 1.0, "who cannot wait measures now"
    clock.now = 1.0 + twin.period
    assert twin.stamp == clock.now
    clock.now = 2.0
    assert twin.stamp == 1.0 + twin.period, "a sample ages while nobody writes"


def test_frozen_world_stands_still_and_is_measured_all_the_same():
    twin, clock = timed_twin()
    clock.now = 1.0
    twin.connect()
    before = as_numpy(twin.read().fields)
    twin.frozen = True
    clock.now = 2.0
    twin.write(twin.safe_command())
    clock.now = 2.5
    assert twin.stamp == 2.0 + twin.period
    for name, value in twin.read().fields.items():
        np.testing.assert_array_equal(value, before[name])
    twin.frozen = False
    twin.write(twin.safe_command())
    assert any((value != before[name]).any() for name, value in twin.read().fields.items())


def test_a_robot_with_a_gripper_is_held_by_commands_that_say_nothing_of_it():
    """A `driver_fault`: what arms, holds or stops a robot leaves its gripper as it is."""
    twin = build_twin(make_config("lift"), seed=SEED)
    twin.connect()
    for _ in range(2 * twin.steps_per_control):
        twin.write(twin.safe_command())
    assert np.isfinite(twin.outcome.total_return)
    twin.close()
