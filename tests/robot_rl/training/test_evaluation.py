"""Evaluation: exactly one episode per world, whatever the worlds do afterwards."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import ConfigError, NonFiniteError
from robot_rl.training.evaluation import Evaluator, evaluate, worst_score
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.storage.checkpoint import Score
from tests.fakes import LinearWorld, ToyEnv
from tests.robot_rl.training.countdown import Countdown


def still(obs: Obs) -> Tensor:
    return torch.zeros(len(obs["actor"]), 1)


def test_each_world_is_counted_once_and_to_its_own_end():
    # A NaN of a world that is done does not spoil its return.
    env = ToyEnv(Countdown((2.0, 5.0, 40.0)), 3, limit=35, invalid_at={(4, 0)})
    seen: list[EnvStep] = []
    result = evaluate(env, still, seed=0, on_step=seen.append)
    assert len(seen) == env.steps > 35  # worlds 0 and 1 have gone on meanwhile
    assert result.returns.tolist() == [2.0, 5.0, 35.0]
    assert result.seconds.tolist() == pytest.approx([0.2, 0.5, 3.5])
    assert result.terminated.tolist() == [True, True, False]
    assert result.success.tolist() == [False, False, True]
    assert result.metrics["first"].tolist() == [0.0, 0.0, 5.0]  # in each world's last step


def test_the_summary_is_of_all_episodes_and_its_metrics_of_the_whole_ones():
    env = ToyEnv(Countdown((2.0, 50.0, 40.0, 45.0)), 4, limit=35)
    summary = evaluate(env, still, seed=0).summary()
    low, high = wilson_interval(3, 4)
    assert summary == pytest.approx(
        {
            "eval/success": 0.75,
            "eval/success_low": low,
            "eval/success_high": high,
            "eval/return": (2 + 3 * 35) / 4,
            "eval/terminated": 0.25,
            "eval/first": (15 + 5 + 10) / 3,
        }
    )


def test_an_env_that_the_simulation_gave_up_is_lost_and_told():
    env = ToyEnv(Countdown((50.0, 50.0)), 2, limit=4, invalid_at={(3, 0), (4, 0)})
    result = evaluate(env, still, seed=0)
    assert result.gave_up.tolist() == [True, False]
    assert result.lost.tolist() == [True, False]
    assert result.complete.tolist() == [False, True]
    assert result.summary()["eval/gave_up"] == 0.5


def test_an_episode_that_ended_because_its_task_was_done_is_whole_and_not_lost():
    env = ToyEnv(Countdown((2.0, 3.0, 40.0)), 3, limit=35)
    result = evaluate(env, still, seed=0)
    assert result.lost.tolist() == [True, True, False]
    done = replace(result, success=torch.tensor([False, True, True]))
    assert done.lost.tolist() == [True, False, False]
    assert done.complete.tolist() == [False, True, True]
    expected = float(result.metrics["first"][1:].mean())
    assert done.summary()["eval/first"] == pytest.approx(expected)


def test_the_score_is_success_and_what_is_within_its_standard_error():
    env = ToyEnv(Countdown((2.0, 50.0, 40.0, 45.0)), 4, limit=35)
    result = evaluate(env, still, seed=0)
    low, _ = wilson_interval(3, 4, deviations=1.0)
    assert result.score == Score(value=0.75, floor=low, second=(2 + 3 * 35) / 4, episodes=4)
    unjudged = replace(result, judged=False).score
    assert unjudged.value == unjudged.floor == unjudged.second == (2 + 3 * 35) / 4


def test_a_faulted_world_is_no_success_and_keeps_its_sum_finite():
    env = ToyEnv(Countdown((30.0, 30.0)), 2, limit=8, invalid_at={(3, 1)})
    result = evaluate(env, still, seed=0)
    assert result.success.tolist() == [True, False]
    assert result.terminated.tolist() == [False, False]
    assert result.returns.tolist() == [8.0, 3.0]


def test_equal_seeds_give_equal_evaluations_whatever_came_before():
    env = ToyEnv(LinearWorld(bound=0.9), 6, limit=20)

    def act(obs: Obs) -> Tensor:
        return obs["actor"][:, :2]

    first = evaluate(env, act, seed=3)
    other = evaluate(env, act, seed=4)
    again = evaluate(env, act, seed=3)
    assert torch.equal(first.returns, again.returns)
    assert not torch.equal(first.returns, other.returns)


@pytest.mark.parametrize(
    ("nan_at", "answer", "told"),
    [({"reward": (3, 1)}, 0.0, "reward was NaN in world 1"), ({}, torch.nan, "action")],
)
def test_a_nan_while_playing_is_an_error_that_names_it(nan_at, answer, told):
    env = ToyEnv(Countdown((9.0, 9.0)), 2, limit=20, nan_at=nan_at)
    with pytest.raises(NonFiniteError, match=told):
        evaluate(env, lambda obs: still(obs) + answer, seed=0)


HOME, LATE, HEAVY = (50.0, 50.0, 50.0, 4.0), (50.0, 3.0, 2.0), (50.0, 50.0, 5.0)


def conditions(home: tuple[float, ...] = HOME) -> Evaluator:
    worlds = {"delay 20 ms": LATE, "mass within 25 %": HEAVY}
    changed = {name: ToyEnv(Countdown(one), 3, limit=35) for name, one in worlds.items()}
    return Evaluator(ToyEnv(Countdown(home), 4, limit=35), changed, seed=0)


def test_of_several_conditions_the_worst_one_counts_and_all_are_told():
    evaluator = conditions()
    summary, score = evaluator.evaluate(still)
    home = evaluate(evaluator.envs["as trained"], still, seed=0)
    assert {name: summary[name] for name in home.summary()} == home.summary()
    assert {name: value for name, value in summary.items() if name not in home.summary()} == {
        "eval/worst_success": pytest.approx(1 / 3),
        "eval/delay_20_ms/success": pytest.approx(1 / 3),
        "eval/mass_within_25/success": pytest.approx(2 / 3),
    }
    low, _ = wilson_interval(1, 3, deviations=1.0)
    means = [(3 * 35 + 4) / 4, (35 + 3 + 2) / 3, (2 * 35 + 5) / 3]
    assert (score.condition, score.episodes, score.floor) == ("delay 20 ms", 3, low)
    assert (score.value, score.second) == pytest.approx((1 / 3, sum(means) / 3))


def test_the_condition_as_trained_may_be_the_worst_and_has_no_second_name():
    summary, score = conditions((2.0, 3.0, 4.0, 50.0)).evaluate(still)
    assert (score.condition, score.value, score.episodes) == ("as trained", 0.25, 4)
    assert "eval/as_trained/success" not in summary
    assert summary["eval/success"] == summary["eval/worst_success"] == 0.25


def test_alone_a_condition_is_scored_as_ever():
    summary, score = Evaluator(ToyEnv(Countdown(HOME), 4, limit=35), seed=0).evaluate(still)
    result = evaluate(ToyEnv(Countdown(HOME), 4, limit=35), still, seed=0)
    assert (summary, score) == (result.summary(), result.score)


def test_where_nobody_judges_success_the_worst_return_counts():
    found = {
        name: replace(evaluate(env, still, seed=0), judged=False)
        for name, env in conditions().envs.items()
    }
    worst = (35 + 3 + 2) / 3
    score = worst_score(found)
    assert score.condition == "delay 20 ms"
    assert score.value == score.floor == score.second == pytest.approx(worst)


def test_conditions_that_would_share_a_name_among_the_metrics_are_refused():
    env = ToyEnv(Countdown((9.0,)), 1)
    with pytest.raises(ConfigError, match=r"the same name among the metrics: mass_25;"):
        Evaluator(env, {"mass 25": env, "mass 25 %": env}, seed=0)
