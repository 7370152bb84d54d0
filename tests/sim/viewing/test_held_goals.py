"""Goals that a person holds: until the reset, in one world, and for the reward too."""

import pytest
import torch

from robot_rl.core.errors import ConfigError, ShapeError
from tests.sim.viewing.shown import player_of


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


@pytest.mark.parametrize(("task", "name"), [("hover", "position_w"), ("tracking", "position_w")])
def test_reset_gives_the_task_its_own_goal_back(task, name):
    player, untouched = player_of(task, 2), player_of(task, 2)
    player.hold_goal(name, [0.4, 0.4, 0.4])
    player.step()
    untouched.step()
    for one in (player, untouched):
        one.reset()
        one.step()
    torch.testing.assert_close(player.env.task.goal[name], untouched.env.task.goal[name])


def test_unknown_goal_and_wrong_width_are_refused():
    player = player_of("hover", 1)
    with pytest.raises(ConfigError, match="did you mean 'position_w'"):
        player.hold_goal("positon_w", [0, 0, 0])
    with pytest.raises(ShapeError, match=r"expected \(3,\)"):
        player.hold_goal("position_w", [0.0, 0.0])
