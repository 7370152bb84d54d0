"""The twin moves as the worlds that policies are trained in, whoever calls it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from configs.compose import compose
from configs.schema import RunConfig, make_env
from configs.twin_builder import build_twin
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import JointCommand
from sim.env import SimEnv
from sim.twin import Twin

SEED, STEPS = 11, 25
TASKS = {"hover": "crazyflie", "reach": "panda", "lift": "panda", "velocity": "go2"}
CPU = torch.device("cpu")
_CLOSE = {"gripper_opening": 0.05, "joint_effort": 5e-3}
"""Commands pass through float32, once per physics step here and once per control step there, and a
gripper's target moves at its speed once per command."""


def make_config(task: str) -> RunConfig:
    """The task on the nominal plant, with sensors that are exact."""
    config = compose([f"task={task}", f"robot={TASKS[task]}"]).config
    spec = config.robot.spec
    exact = {
        name: replace(sensor, noise=0.0, bias=0.0, bias_walk=0.0, jitter=0.0, dropout=0.0)
        for name, sensor in spec.sensors.items()
    }
    robot = replace(config.robot, spec=replace(spec, sensors=exact))
    nominal = replace(config.task, randomization=config.task.randomization.nominal())
    return replace(config, task=nominal, robot=robot)


@pytest.fixture(params=TASKS, scope="module")
def config(request) -> RunConfig:
    return make_config(request.param)


def actions(size: int) -> torch.Tensor:
    return 0.3 * torch.randn(STEPS, 1, size, generator=torch.Generator().manual_seed(4))


def as_numpy(fields) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, dtype=np.float64).copy() for name, value in fields.items()}


def test_it_moves_as_the_training_world_with_the_same_commands(config):
    env = make_env(config, num_envs=1, device=CPU, seed=SEED, evaluation=True)
    assert isinstance(env, SimEnv)
    twin = build_twin(config, seed=SEED)
    env.reset(seed=SEED)
    twin.connect()
    worlds, total = [], 0.0
    for action in actions(env.spec.action_size):
        step = env.step(action)
        worlds.append(as_numpy(env.simulation.truth.fields))
        total += float(step.reward)
        assert not step.truncated, "the comparison is of one episode"
        assert not step.terminated, "the comparison is of one episode"
    robot = config.robot
    for action, world in zip(actions(env.spec.action_size), worlds, strict=True):
        command = robot.action_map(config.task).to_command(action.numpy())
        for _ in range(robot.decimation):
            assert twin.write(command) is command
        for name, value in as_numpy(twin.simulation.truth.fields).items():
            close = _CLOSE.get(name, 1e-4)
            np.testing.assert_allclose(value, world[name], atol=close, rtol=1e-5, err_msg=name)
    assert twin.outcome.steps == STEPS
    assert twin.outcome.total_return == pytest.approx(total, rel=1e-3)
    assert twin.period * robot.decimation == pytest.approx(env.spec.control_dt)


def test_it_measures_what_its_spec_declares(config):
    twin = build_twin(config, seed=SEED)
    twin.connect()
    state = twin.read()
    widths = {name: value.shape for name, value in state.fields.items()}
    assert widths == {name: (1, width) for name, width in config.robot.spec.state_widths.items()}
    before = as_numpy(state.fields)
    twin.stop()
    for name, value in state.fields.items():
        np.testing.assert_array_equal(value, before[name], err_msg="a reading is a copy")


def test_same_seed_begins_the_same_episode(config):
    twin = build_twin(config, seed=SEED)
    states, goals = [], []
    for seed in (5, 6, 5):
        twin.begin(seed)
        states.append(as_numpy(twin.read().fields))
        goals.append(as_numpy(twin.goal))
    for first, _, again in (states, goals):
        for name in first:
            np.testing.assert_array_equal(first[name], again[name])
    assert any((states[0][name] != states[1][name]).any() for name in states[0])


def fallen(twin: Twin) -> None:
    for _ in range(400):
        twin.stop()


def test_robot_that_is_let_go_falls_and_lies_there():
    twin = build_twin(make_config("velocity"), seed=SEED)
    twin.connect()
    fallen(twin)
    outcome = twin.outcome
    assert outcome.terminated
    assert not outcome.success
    height = float(np.asarray(twin.simulation.truth.position_w)[0, 2])
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


def test_foreign_worlds_have_no_twin():
    with pytest.raises(ConfigError, match="'gymnasium', which has none"):
        build_twin(compose(["experiment=hopper"]).config, seed=0)
