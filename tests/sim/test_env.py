"""The simulated environment beyond the contract: staggered starts, faults, what actors see."""

import logging
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError, NonFiniteError, SpecMismatchError
from robot_rl.core.observation import TermConfig
from sim.env import FaultFlags, SimEnv
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.flights.flight import RewardWeightsConfig
from tests.sim.flying import flight_envs, robot_config
from tests.sim.stepping import weights


def actions(env: SimEnv, count: int) -> torch.Tensor:
    shape = (count, env.spec.num_envs, 4)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_training_envs_end_their_first_episodes_in_groups_and_then_in_full() -> None:
    env = flight_envs("hover", 200, evaluation=False, radius=1e3)
    env.reset(seed=0)
    ends: list[list[int]] = [[] for _ in range(200)]
    for i, action in enumerate(actions(env, 25)):
        for row in env.step(action).truncated.nonzero()[:, 0].tolist():
            ends[row].append(i + 1)
    first = torch.tensor([end[0] for end in ends])
    # Episodes of 12 steps in at most 5 groups: one ends every third step.
    groups = torch.bincount(first, minlength=13)
    assert (groups[3::3] > 30).all()
    assert groups[3::3].sum() == 200
    assert all(second - first == 12 for first, second, *_ in (e for e in ends if len(e) > 1))


def test_staggered_envs_are_resumed_with_their_own_limits() -> None:
    env, other = (flight_envs("hover", 8, evaluation=False, seed=seed) for seed in (0, 5))
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
    env = flight_envs("hover", 5, actor=[TermConfig(term="last_action", history=3)])
    env.reset(seed=0)
    obs = env.step(torch.full((5, 4), 0.25)).next_obs["actor"]
    assert torch.equal(obs[:, :8], torch.full((5, 8), env.initial_action))
    assert torch.equal(obs[:, 8:], torch.full((5, 4), 0.25))


def test_a_faulted_env_is_invalid_begins_anew_and_raises_no_alarm() -> None:
    env = flight_envs("hover", 4, evaluation_radius=1e3)
    env.reset(seed=0)
    assert isinstance(env.simulation, MultirotorSimulation)
    env.simulation.engine.state[2, 10] = 1e30  # a spin beyond all numbers within one step
    step = env.step(torch.zeros(4, 4))
    assert step.valid.tolist() == [True, True, False, True]
    assert step.truncated.tolist() == [False, False, True, False]
    assert not step.terminated.any()
    assert not step.success.any()
    assert step.obs["actor"].isfinite().all()
    after = env.step(torch.zeros(4, 4))
    assert after.valid.all()
    env.check()


def test_envs_that_diverge_are_a_warning_once_and_where_many_more_do(caplog) -> None:
    caplog.set_level(logging.INFO)
    env = flight_envs("hover", 4, evaluation_radius=1e3)
    env.reset(seed=0)
    assert isinstance(env.simulation, MultirotorSimulation)
    for rows in ([2], [2], [0, 1, 2, 3], [2]):
        for _ in range(3 if len(rows) > 1 else 1):
            env.simulation.engine.state[rows, 10] = 1e30
            env.step(torch.zeros(4, 4))
        env.check()
    found = [record for record in caplog.records if "diverged" in record.getMessage()]
    assert [record.levelname for record in found] == ["WARNING", "INFO", "WARNING", "INFO"]
    assert found[2].getMessage().startswith("12 env(s) diverged (not finite, or too fast): reset")


def test_a_nan_reward_names_its_term_and_env_and_the_row_is_invalid() -> None:
    env = flight_envs("hover", 4)
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


def test_reward_weights_follow_the_env_steps_of_the_curriculum() -> None:
    curriculum = RewardWeightsConfig(
        initial=weights("hover", alive=1.0), final={"alive": 3.0}, ramp=[20.0, 40.0]
    )
    env = flight_envs("hover", 10, evaluation=False, reward=curriculum)
    env.reset(seed=0)
    alive = env.spec.reward_names.index("alive")

    def weight(env: SimEnv) -> float:
        step = env.step(torch.zeros(10, 4))
        assert step.reward_weights is not None
        return float(step.reward_weights[alive])

    found = [weight(env) for _ in range(6)]
    # From 1 to 3 between 20 and 40 env-steps, ten of which are made at once.
    assert found == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.0, 3.0])
    env.reset(seed=0)
    env.set_global_step(20)  # of which other processes made some
    assert weight(env) == 2.0
    evaluated = flight_envs("hover", 10, reward=curriculum)  # evaluations compare over a run
    evaluated.reset(seed=0)
    assert weight(evaluated) == 3.0


def test_an_actor_may_not_ask_for_what_the_robot_does_not_measure() -> None:
    robot = robot_config()
    del robot.spec.sensors["linear_velocity_w"]
    with pytest.raises(SpecMismatchError, match=r"'linear_velocity_w' .* measures only"):
        flight_envs("hover", 2, robot=robot)
    for name in ("rotor_speed", "plant"):  # a simulator alone knows them
        with pytest.raises(SpecMismatchError, match=f"'{name}'"):
            flight_envs("hover", 2, actor=[TermConfig(term=f"sensed/{name}")])


def hover(**reward: Any) -> SimEnv:
    return flight_envs("hover", 2, reward=RewardWeightsConfig(**reward))


def test_weights_and_terms_that_do_not_fit_are_refused_when_the_task_is_built():
    with pytest.raises(ConfigError, match=r"'heding' is unknown .did you mean 'heading'"):
        hover(initial=weights("hover", heding=1.0))
    given = weights("hover")
    del given["smoothness"]
    with pytest.raises(ConfigError, match="no weight for the reward term 'smoothness' of HoverTas"):
        hover(initial=given)
    env = hover(initial=given, final={"smoothness": -1.0})
    env.reset(seed=0)
    weights_now = env.step(torch.zeros(2, 4)).reward_weights
    assert weights_now is not None
    assert weights_now[-2:].tolist() == [-1.0, 0.0]  # smoothness, and calm, which may be left out


def test_the_order_of_weights_in_a_file_changes_nothing() -> None:
    given, found = weights("hover", alive=1.0, effort=-0.3, distance=-0.7), []
    for reward in (given, dict(sorted(given.items()))):
        env = hover(initial=reward)
        env.reset(seed=0)
        found.append((env.spec.reward_names, env.step(torch.zeros(2, 4)).reward))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_learning_the_names_of_a_task_leaves_no_trace() -> None:
    state = flight_envs("tracking", 3).task.state_dict()
    torch.testing.assert_close(state["record"]["sums"], torch.zeros(3, 4))


def test_the_actor_sees_measurements_and_the_critic_the_truth() -> None:
    terms = [TermConfig(term="position_error_w")]
    env = flight_envs("hover", 6, actor=terms, critic=terms, evaluation_radius=1e3)
    env.reset(seed=0)
    step = env.step(torch.zeros(6, 4))
    simulation = env.simulation
    assert torch.equal(step.next_obs["actor"], simulation.measured.position_w)
    assert torch.equal(step.next_obs["critic"], simulation.true_state.position_w)
    assert not torch.equal(step.next_obs["actor"], step.next_obs["critic"])


NAMES = {"actor": ["position", "position", "rates"], "reward": ["alive", "distance"]}
CLEAN = {"actor": torch.ones(9, 3), "reward": torch.ones(9, 2)}
NOBODY = torch.zeros(9, dtype=torch.bool)


@pytest.fixture
def flags() -> FaultFlags:
    return FaultFlags(9, torch.device("cpu"))


def spoiled(
    name: str, *places: tuple[int, int], value: float = torch.nan
) -> dict[str, torch.Tensor]:
    values = {key: part.clone() for key, part in CLEAN.items()}
    for world, column in places:
        values[name][world, column] = value
    return values


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_number_that_is_not_finite_marks_its_world_and_is_named(flags, value):
    finite = flags.watch(spoiled("reward", (2, 1), value=value), excused=NOBODY)
    assert (~finite).nonzero().tolist() == [[2]]
    with pytest.raises(NonFiniteError, match=r"^reward term 'distance' .* 1 env\(s\) \(2\)"):
        flags.check(NAMES)


def test_infinities_of_both_signs_do_not_cancel(flags):
    values = spoiled("actor", (0, 0), value=torch.inf)
    values["actor"][0, 1] = -torch.inf
    assert (~flags.watch(values, excused=NOBODY)).nonzero().tolist() == [[0]]
    with pytest.raises(NonFiniteError, match=r"^actor term 'position' was NaN"):  # named once
        flags.check(NAMES)


def test_flags_stay_up_over_clean_steps_and_come_down_when_read(flags):
    flags.watch(spoiled("actor", (1, 2)), excused=NOBODY)
    for _ in range(3):
        assert flags.watch(CLEAN, excused=NOBODY).all()
    flags.watch(spoiled("reward", *((world, 0) for world in range(3, 9))), excused=NOBODY)
    with pytest.raises(
        NonFiniteError,
        match=r"actor term 'rates' and reward term 'alive' .* 7 env\(s\) \(1, 3, 4, 5, 6, \.\.\.\)",
    ):
        flags.check(NAMES)
    flags.check(NAMES)


def test_what_the_engine_gave_up_is_excused_but_not_finite(flags):
    excused = torch.arange(9) == 1
    finite = flags.watch(spoiled("actor", (1, 0), (1, 1)), excused=excused)
    assert (~finite).nonzero().tolist() == [[1]]
    flags.check(NAMES)
    flags.watch(spoiled("actor", (1, 0), (2, 2)), excused=excused)
    with pytest.raises(NonFiniteError, match=r"^actor term 'rates' was .* \(2\)"):
        flags.check(NAMES)
