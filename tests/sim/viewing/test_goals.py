"""Goals read from their names: points and arrows, in the world or in the robot's frame."""

import numpy as np

from sim.viewing.goals import Mark, goal_marks, is_adjustable

HERE = np.array([1.0, 2.0, 3.0])
QUARTER_LEFT = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def marks(**goal: list[float]) -> list[Mark]:
    return goal_marks(goal, HERE, QUARTER_LEFT, top=4.0, arrow_time=0.5)


def test_position_in_the_world_stays_where_it_is():
    (mark,) = marks(position_w=[0.1, 0.2, 0.3])
    np.testing.assert_allclose(mark.start, [0.1, 0.2, 0.3])
    assert mark.end is None


def test_position_in_the_base_frame_turns_and_moves_with_the_base():
    (mark,) = marks(end_effector_position_b=[1.0, 0.0, 0.5])
    np.testing.assert_allclose(mark.start, [1.0, 3.0, 3.5])


def test_preview_is_a_row_of_lesser_points():
    first, second = marks(preview_w=[1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(second.start, [4, 5, 6])
    assert first.share < 1
    assert first.name != second.name


def test_corners_are_squares_around_their_middle():
    corners = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 2.0, 0.0, 0.0, 2.0]
    first, second = marks(gate_corners_w=corners + [number + 5 for number in corners])
    assert first.outline is not None
    np.testing.assert_allclose(first.outline[2], [2, 0, 2])
    np.testing.assert_allclose(second.start, [6, 5, 6])
    assert first.name != second.name


def test_velocity_of_a_goal_is_an_arrow_at_its_position():
    _, arrow = marks(position_w=[0.0, 0.0, 1.0], linear_velocity_w=[2.0, 0.0, 0.0])
    assert arrow.end is not None
    np.testing.assert_allclose(arrow.start, [0, 0, 1])
    np.testing.assert_allclose(arrow.end, [1, 0, 1])  # 2 m/s for half a second


def test_velocity_over_the_ground_is_an_arrow_above_the_robot_and_its_turning_is_none():
    (arrow,) = marks(velocity_b=[2.0, 0.0, 9.0])
    assert arrow.end is not None
    np.testing.assert_allclose(arrow.start, [1, 2, 4])
    np.testing.assert_allclose(arrow.end, [1, 3, 4])


def test_what_a_name_does_not_say_is_not_drawn():
    assert marks(clock=[0.1, 0.2], stiffness=[3.0, 1.0, 2.0]) == []


def test_person_sets_positions_and_velocities_but_no_clock_and_no_preview():
    assert is_adjustable("position_w", 3)
    assert is_adjustable("velocity_b", 3)
    assert not is_adjustable("clock", 2)
    assert not is_adjustable("preview_w", 18)
