"""The player: wall time becomes steps, one env is remembered, and a person holds its goals."""

import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.rendering.player import Player
from tests.sim.rendering.shown import StillAgent, envs, player_of


@pytest.mark.slow
def test_held_goal_outlives_a_task_that_moves_it_and_others_move_on():
    player = player_of("tracking", 2)
    player.hold_goal("position_w", [0.3, 0.0, 0.2])
    before = player.goal(1)["position_w"]
    player.step()
    assert player.goal(0)["position_w"].tolist() == pytest.approx([0.3, 0.0, 0.2])
    assert player.goal(1)["position_w"].tolist() != before.tolist()


def test_held_goal_is_what_the_reward_and_the_observation_know():
    player = player_of("reach", 2)
    held = torch.tensor([0.5, 0.1, 0.4])
    player.hold_goal("end_effector_position_b", held.tolist())
    step = player.step()
    error = player.env.simulation.true_state.end_effector_position_b[0] - held
    assert step.reward_terms is not None
    paid = step.reward_terms[0, player.env.spec.reward_names.index("distance")]
    torch.testing.assert_close(paid, error.norm())
    seen = step.obs["actor"][0, 14:17] / 5  # after 7 positions and 7 velocities, times 5
    torch.testing.assert_close(seen, error, atol=0.005, rtol=0)  # noise of 0.5 mm


@pytest.mark.slow
def test_the_clock_of_a_gait_follows_the_goal_that_is_held():
    player = player_of("velocity", 2)
    for held in ([0.5, 0.0, 0.0], [0.0, 0.0, 0.0]):
        player.hold_goal("velocity_b", held)
        for _ in range(3):
            player.step()
            ticks = player.goal(0)["clock"]
            assert bool(ticks.any()) == bool(held[0])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hover", "tracking"])
def test_reset_gives_the_task_its_own_goal_back(task):
    name = "position_w"
    player, untouched = player_of(task, 2), player_of(task, 2)
    player.hold_goal(name, [0.4, 0.4, 0.4])
    player.step()
    untouched.step()
    for one in (player, untouched):
        one.reset()
        one.step()
    torch.testing.assert_close(player.env.task.goal[name], untouched.env.task.goal[name])


DT = 0.01  # of the flight tasks [s]


def test_wall_time_becomes_steps_and_remainders_are_kept_but_no_standstill_is_caught_up():
    player = player_of("hover", 1)
    assert player.advance(0.035) == 3
    assert player.advance(0.016) == 2  # 5.1 periods together
    assert player.time == pytest.approx(5 * DT)
    player = player_of("hover", 1)
    assert player.advance(60.0) == 25


def test_speed_stretches_time_and_pause_stops_it():
    player = player_of("hover", 1)
    player.speed = 0.25
    assert player.advance(0.08) == 2
    player.paused = True
    assert player.advance(1.0) == 0
    player.step()  # a single step works while paused
    assert player.time == pytest.approx(3 * DT)
    player.paused, player.speed = False, 1.0
    assert player.advance(0.01) == 1, "nothing of the pause is caught up"


def test_trace_tells_weighted_terms_of_the_chosen_env_that_sum_to_the_reward_and_their_return():
    player = player_of("reach", 2)
    player.choose(1)
    rewards = [float(player.step().reward[1]) for _ in range(10)]
    trace = player.trace
    np.testing.assert_allclose(np.array(trace.terms).sum(axis=1), rewards, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trace.returns, np.cumsum(rewards), rtol=1e-4)
    np.testing.assert_allclose(np.diff(trace.time), player.control_dt, rtol=1e-6)
    player.choose(0)
    assert len(player.trace.time) == 0


def test_end_of_an_episode_is_told_with_its_length_and_its_return():
    player = player_of("hover", 2, action=-1.0)  # rotors stop: it falls
    total, steps = 0.0, 0
    while player.last[0] is None:
        step = player.step()
        total, steps = total + float(step.reward[0]), steps + 1
    ended = player.last[0]
    assert ended.how == "terminated"
    assert ended.seconds == pytest.approx(steps * DT)
    assert ended.total == pytest.approx(total, rel=1e-5)
    assert player.seconds(0) == 0.0
    assert player.total(0) == 0.0


def test_reset_begins_the_chosen_env_only_and_tells_the_agent():
    env = envs("reach", 3)
    agent = StillAgent(env)
    player = Player(env, agent, seed=3)
    player.choose(2)
    player.step()
    player.reset()
    assert agent.begun.tolist() == [1, 1, 2]
    assert [player.seconds(row) for row in range(3)] == pytest.approx([0.04, 0.04, 0.0])


def test_a_goal_on_the_ground_is_what_field_success_and_time_limit_follow_until_the_reset():
    player = player_of("clutter", 2)
    env, sensors = player.env, player.env.simulation.privileged
    for _ in range(3):
        player.step()
    before = sensors["way_position_w"].clone()
    place = np.array([0.4, -0.3, 0.0])
    player.place_goal(place)
    assert [player.seconds(row) for row in range(2)] == pytest.approx([0.0, 0.06])
    assert player.places[0] is place
    step = player.step()
    way = sensors["way_position_w"].unflatten(-1, (-1, 3))
    assert way[0, -1].tolist() == pytest.approx(place.tolist())
    assert torch.equal(sensors["way_position_w"][1], before[1]), "the other env goes on"
    assert env.task.goal["preview_w"][0, :2].tolist() == pytest.approx([0.4, -0.3])
    here = env.simulation.true_state.position_w[0, :2]
    left = float((here - torch.tensor([0.4, -0.3])).norm())
    assert float(step.metrics["way_left"][0]) == pytest.approx(left, abs=1e-4)
    assert abs(float(step.metrics["progress"][0])) < 0.1, "counted from where it was placed"
    # A point of the field near the base: it is pulled to the goal, to the right.
    assert float(sensors["potential_field"][0, 1]) < -0.3
    with pytest.raises(ConfigError, match="outside the corridor"):
        player.place_goal(np.array([0.4, -3.0, 0.0]))
    assert player.places[0] is place, "a refusal changes nothing"
    steps = env.task.episode_steps - 1  # one is done
    ends = [bool(player.step().ended[0]) for _ in range(steps)]
    assert ends.index(True) == steps - 1, "a whole time limit from the click on"
    assert player.places[0] is None
    end = sensors["way_position_w"].unflatten(-1, (-1, 3))[0, -1]
    assert end.tolist() == pytest.approx([6.4, 0.0, 0.0]), "the next episode has its own goal"


def test_who_stands_at_a_goal_that_was_moved_succeeds():
    player = player_of("clutter", 1, "task.episode_length=1.5", "task.randomization.pushes.speed=0")
    for _ in range(40):
        player.step()
    here = player.env.simulation.true_state.position_w[0, :2].tolist()
    player.place_goal(np.array([*here, 0.0]))
    assert float(player.env.task.goal["traverse"]) == 0.0, "it is to stand"
    while player.last[0] is None:
        player.step()
    assert player.last[0].how == "success"
    assert player.last[0].seconds == pytest.approx(1.5)


def test_a_task_without_places_says_so():
    player = player_of("reach", 1)
    assert not player.env.task.takes_places
    with pytest.raises(ConfigError, match="place on the ground, and ReachTask takes none"):
        player.place_goal(np.zeros(3))
