"""The simulated environment beyond the contract: staggered starts, faults, what actors see."""

from typing import Any

import pytest
import torch

from robot_rl.core.errors import NonFiniteError, ShapeError, SpecMismatchError
from robot_rl.core.observation import TermConfig
from sim.env import SimEnv
from sim.robots.multirotor_simulation import MultirotorSimulation
from tests.sim.flying import flight_worlds, robot_config, task_config
from tests.sim.stepping import weights


def actions(env: SimEnv, count: int) -> torch.Tensor:
    shape = (count, env.spec.num_envs, 4)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_the_spec_tells_what_the_task_and_the_robot_are_and_a_wrong_action_both_shapes():
    env = flight_worlds("hover", 3)
    assert env.spec.action_size == 4
    assert env.spec.control_dt == pytest.approx(0.01)
    assert env.spec.robot is env.simulation.robot
    assert env.spec.groups["actor"].shape == (3 + 9 + 3 + 3 + 3 * 4,)
    assert env.spec.groups["critic"].shape == (3 + 9 + 3 + 3 + 4 + 12,)
    env.reset(seed=0)
    with pytest.raises(ShapeError, match=r"expected shape \(3, 4\), got \(4, 3\)"):
        env.step(torch.zeros(4, 3))


def test_without_terms_there_is_no_critic_group() -> None:
    env = flight_worlds("hover", 3, critic=[])
    assert list(env.spec.groups) == ["actor"]
    obs = env.reset(seed=0)
    assert list(obs) == ["actor"]
    assert list(env.step(actions(env, 1)[0]).next_obs) == ["actor"]


def test_training_worlds_end_their_first_episodes_in_groups_and_then_in_full() -> None:
    env = flight_worlds("hover", 200, evaluation=False, radius=1e3)
    env.reset(seed=0)
    ends: list[list[int]] = [[] for _ in range(200)]
    for i, action in enumerate(actions(env, 25)):
        for world in env.step(action).truncated.nonzero()[:, 0].tolist():
            ends[world].append(i + 1)
    first = torch.tensor([end[0] for end in ends])
    # Episodes of 12 steps in at most 5 groups: one ends every third step.
    groups = torch.bincount(first, minlength=13)
    assert (groups[3::3] > 30).all()
    assert groups[3::3].sum() == 200
    assert all(second - first == 12 for first, second, *_ in (e for e in ends if len(e) > 1))


def test_evaluation_worlds_begin_together() -> None:
    env = flight_worlds("hover", 20, evaluation_radius=1e3)
    env.reset(seed=0)
    for i, action in enumerate(actions(env, 12)):
        assert bool(env.step(action).truncated.all()) == (i == 11)


@pytest.mark.parametrize("task", ["hover", "tracking"])
def test_staggered_worlds_are_resumed_with_their_own_limits(task: str) -> None:
    env, other = (flight_worlds(task, 8, evaluation=False, seed=seed) for seed in (0, 5))
    env.reset(seed=1)
    other.reset(seed=2)
    plan = actions(env, 30)
    for action in plan[:5]:
        env.step(action)
    other.reset(state=env.state_dict())
    for action in plan[5:]:
        ours, theirs = env.step(action), other.step(action)
        assert torch.equal(ours.truncated, theirs.truncated)
        assert torch.equal(ours.reward, theirs.reward)


def test_an_episode_begins_with_the_declared_last_action_in_all_its_history() -> None:
    env = flight_worlds("hover", 5, actor=[TermConfig(term="last_action", history=3)])
    env.reset(seed=0)
    obs = env.step(torch.full((5, 4), 0.25)).next_obs["actor"]
    assert torch.equal(obs[:, :8], torch.full((5, 8), env.initial_action))
    assert torch.equal(obs[:, 8:], torch.full((5, 4), 0.25))


def test_a_faulted_world_is_invalid_begins_anew_and_raises_no_alarm() -> None:
    env = flight_worlds("hover", 4, evaluation_radius=1e3)
    env.reset(seed=0)
    simulation = multirotors(env)
    simulation.engine.state[2, 10] = 1e30  # a spin beyond all numbers within one step
    step = env.step(torch.zeros(4, 4))
    assert step.valid.tolist() == [True, True, False, True]
    assert step.truncated.tolist() == [False, False, True, False]
    assert not step.terminated.any()
    assert not step.success.any()
    assert step.obs["actor"].isfinite().all()
    after = env.step(torch.zeros(4, 4))
    assert after.valid.all()
    env.check()


def test_a_nan_reward_names_its_term_and_world_and_the_row_is_invalid() -> None:
    env = flight_worlds("hover", 4)
    evaluate = env.task.evaluate

    def spoil(*arguments: Any) -> Any:
        outcome = evaluate(*arguments)
        outcome.reward_terms["heading"][3] = torch.nan
        return outcome

    env.task.evaluate = spoil  # type: ignore[method-assign]  # a task with a bug
    env.reset(seed=0)
    assert env.step(torch.zeros(4, 4)).valid.tolist() == [True, True, True, False]
    with pytest.raises(NonFiniteError, match=r"reward term 'heading' .* \(3\)"):
        env.check()


def test_reward_weights_follow_the_world_steps_of_the_curriculum() -> None:
    curriculum = ramp(task_config("hover"))
    env = flight_worlds("hover", 10, evaluation=False, reward=curriculum)
    env.reset(seed=0)
    alive = env.spec.reward_names.index("alive")
    found = []
    for action in actions(env, 6):
        step = env.step(action)
        assert step.reward_weights is not None
        found.append(float(step.reward_weights[alive]))
    # From 1 to 3 between 20 and 40 world-steps, ten of which are made at once.
    assert found == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.0, 3.0])
    env.reset(seed=0)
    env.set_global_step(20)  # of which other processes made some
    followed = env.step(actions(env, 1)[0]).reward_weights
    assert followed is not None
    assert followed[alive] == 2.0
    outcome = flight_worlds("hover", 10, reward=curriculum)  # evaluations compare over a run
    outcome.reset(seed=0)
    weighed = outcome.step(actions(outcome, 1)[0]).reward_weights
    assert weighed is not None
    assert weighed[alive] == 3.0


@pytest.mark.parametrize("task", ["hover", "tracking"])
def test_an_actor_may_not_ask_for_what_the_robot_does_not_measure(task: str) -> None:
    robot = robot_config()
    del robot.spec.sensors["linear_velocity_w"]
    with pytest.raises(SpecMismatchError, match=r"'linear_velocity_w' .* measures only"):
        flight_worlds(task, 2, robot=robot)


@pytest.mark.parametrize("name", ["sensed/rotor_speed", "sensed/plant"])
def test_an_actor_may_not_ask_for_what_only_a_simulator_knows(name: str) -> None:
    with pytest.raises(SpecMismatchError, match=f"'{name.removeprefix('sensed/')}'"):
        flight_worlds("hover", 2, actor=[TermConfig(term=name)])


def test_the_actor_sees_measurements_and_the_critic_the_truth() -> None:
    terms = [TermConfig(term="position_error_w")]
    env = flight_worlds("hover", 6, actor=terms, critic=terms, evaluation_radius=1e3)
    env.reset(seed=0)
    step = env.step(torch.zeros(6, 4))
    simulation = env.simulation
    assert torch.equal(step.next_obs["actor"], simulation.measured.position_w)
    assert torch.equal(step.next_obs["critic"], simulation.true_state.position_w)
    assert not torch.equal(step.next_obs["actor"], step.next_obs["critic"])


def multirotors(env: SimEnv) -> MultirotorSimulation:
    assert isinstance(env.simulation, MultirotorSimulation)
    return env.simulation


def ramp(task: Any) -> Any:
    return type(task.reward)(
        initial=weights("hover", alive=1.0), final={"alive": 3.0}, ramp=[20.0, 40.0]
    )
