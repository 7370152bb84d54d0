"""Observation terms, histories and their resets; numpy and torch see the same."""

from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError
from robot_rl.core.observation import (
    TERMS,
    ObservationInputs,
    ObservationMap,
    RobotState,
    TermConfig,
)

N = 3


def make_inputs(rng: np.random.Generator, kind: str = "numpy") -> ObservationInputs:
    def draw(width: int) -> Any:
        values = rng.standard_normal((N, width)).astype(np.float32)
        return values if kind == "numpy" else torch.from_numpy(values)

    orientation = draw(4)
    orientation /= (orientation * orientation).sum(-1)[:, None] ** 0.5
    return ObservationInputs(
        state=RobotState(
            {
                "position_w": draw(3),
                "orientation_w": orientation,
                "linear_velocity_w": draw(3),
                "angular_velocity_b": draw(3),
                "end_effector_position_b": draw(3),
                "end_effector_orientation_b": orientation,
                "joint_position": draw(2),
                "joint_velocity": draw(2),
            }
        ),
        goal={
            "position_w": draw(3),
            "linear_velocity_w": draw(3),
            "preview_w": draw(6),
            "gate_normals_w": draw(6),
            "orientation_matrix_w": quaternion.rotation_matrix(orientation),
            "end_effector_position_b": draw(3),
        },
        last_action=draw(2),
    )


def moving(speed: list[float], spin: list[float]) -> ObservationInputs:
    """Two worlds; every entry of velocity and spin is the given number."""
    state = {
        "linear_velocity_w": np.repeat(np.array(speed, np.float32)[:, None], 3, 1),
        "angular_velocity_b": np.repeat(np.array(spin, np.float32)[:, None], 3, 1),
    }
    return ObservationInputs(
        state=RobotState(state), goal={}, last_action=np.zeros((2, 1), np.float32)
    )


STILL = moving([0, 0], [0, 0])
EVERY_TERM = [
    TermConfig(term=name, scale=1 + 0.1 * i, history=1 + i % 3) for i, name in enumerate(TERMS)
]
TWO_TERMS = [
    TermConfig(term="linear_velocity_w", history=3, scale=0.5),
    TermConfig(term="angular_velocity_b", history=2),
]


def test_history_is_term_major_and_oldest_first_by_hand():
    observation_map = ObservationMap(TWO_TERMS, STILL)
    assert observation_map.size == 15
    for t in range(1, 5):
        observation_map.update(moving([t, 10 * t], [-t, -10 * t]))
    obs = observation_map.update(moving([5, 50], [-5, -50]))
    frames = [1.5, 1.5, 1.5, 2, 2, 2, 2.5, 2.5, 2.5, -4, -4, -4, -5, -5, -5]
    np.testing.assert_array_equal(obs[0], frames)
    np.testing.assert_array_equal(obs[1], 10 * np.array(frames))


@pytest.mark.parametrize("reset_at", [1, 2, 3, 6])
def test_reset_fills_the_masked_worlds_and_leaves_the_others(reset_at):
    observation_map = ObservationMap(TWO_TERMS, STILL)
    untouched = ObservationMap(TWO_TERMS, STILL)
    for t in range(1, reset_at + 1):
        observation_map.update(moving([t, t], [t, t]))
        untouched.update(moving([t, t], [t, t]))
    start = moving([8, 99], [6, 99])
    first = observation_map.reset(EnvSelection(np.array([True, False])), start)
    np.testing.assert_array_equal(first, [[4] * 9 + [6] * 6])
    after, expected = (m.update(moving([2, 2], [1, 1])) for m in (observation_map, untouched))
    np.testing.assert_array_equal(after[0], [4] * 6 + [1] * 3 + [6] * 3 + [1] * 3)
    np.testing.assert_array_equal(after[1], expected[1])


def test_numpy_and_torch_observe_the_same_through_resets():
    rngs = {kind: np.random.default_rng(1) for kind in ("numpy", "torch")}
    maps = {kind: ObservationMap(EVERY_TERM, make_inputs(rng, kind)) for kind, rng in rngs.items()}
    for t in range(12):
        inputs = {kind: make_inputs(rng, kind) for kind, rng in rngs.items()}
        obs = {kind: maps[kind].update(inputs[kind]) for kind in maps}
        assert obs["numpy"].shape == (N, maps["numpy"].size)
        assert (obs["numpy"].dtype, obs["torch"].dtype) == (np.float32, torch.float32)
        np.testing.assert_allclose(obs["numpy"], obs["torch"].numpy(), atol=1e-5)
        mask = np.array([t % 3 == 0, t == 4, False])
        started = maps["numpy"].reset(EnvSelection(mask), inputs["numpy"])
        by_torch = maps["torch"].reset(EnvSelection(torch.from_numpy(mask)), inputs["torch"])
        np.testing.assert_allclose(started, by_torch.numpy(), atol=1e-5)


def test_saved_histories_continue_bit_equal_and_do_not_follow_the_map():
    rng = np.random.default_rng(4)
    inputs = [make_inputs(rng, "torch") for _ in range(12)]
    observation_map = ObservationMap(EVERY_TERM, inputs[0])
    for frame in inputs[:5]:
        observation_map.update(frame)
    saved = observation_map.state_dict()
    expected = [observation_map.update(frame) for frame in inputs[5:]]
    other = ObservationMap(EVERY_TERM, inputs[0])
    for restored in (other, observation_map):  # the second has a ring that stands elsewhere
        restored.load_state_dict(saved)
        for frame, obs in zip(inputs[5:], expected, strict=True):
            np.testing.assert_array_equal(np.asarray(restored.update(frame)), np.asarray(obs))
            np.testing.assert_array_equal(np.asarray(restored.look(frame)), np.asarray(obs))
    with pytest.raises(ShapeError, match=r"expected shape \(3, .*, got \(2, 6\)"):
        other.load_state_dict({key: np.zeros((2, 6)) for key in saved})


def test_returned_observations_are_not_overwritten_later():
    observation_map = ObservationMap(TWO_TERMS[:1], STILL)
    first = observation_map.update(moving([2, 2], [0, 0]))
    kept = first.copy()
    for _ in range(8):
        observation_map.update(moving([4, 4], [0, 0]))
    np.testing.assert_array_equal(first, kept)


def test_terms_by_hand():
    state = {
        "position_w": np.array([[1.0, 2.0, 3.0]]),
        "orientation_w": np.array([[0.0, 1.0, 0.0, 0.0]]),  # upside down about x
        "linear_velocity_w": np.array([[4.0, 5.0, 6.0]]),
        "angular_velocity_b": np.array([[7.0, 8.0, 9.0]]),
    }
    inputs = ObservationInputs(
        state=RobotState(state),
        goal={
            "position_w": np.array([[1.0, 1.0, 1.0]]),
            "linear_velocity_w": np.array([[1.0, 0.0, 0.0]]),
            "preview_w": np.array([[1.0, 2.0, 4.0]]),
            "gate_normals_w": np.array([[0.6, 0.8, 0.0, 0.0, 1.0, 0.0]]),
            "orientation_matrix_w": np.array([[0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]]),
        },
        last_action=np.array([[0.5, -0.5]]),
    )
    expected = {
        "position_error_w": [0, 1, 2],
        "velocity_error_w": [3, 5, 6],
        "preview_w": [0, 0, 1],
        "gate_offsets": [0.8, 0.6, 2, 0, 0, -1],
        # The goal looks along y: to the right of a robot that lies on its back.
        "goal_orientation_b": [0, -1, 0, -1, 0, 0, 0, 0, -1],
        "orientation_matrix": [1, 0, 0, 0, -1, 0, 0, 0, -1],
        "linear_velocity_w": [4, 5, 6],
        "linear_velocity_b": [4, -5, -6],  # upside down about x
        "angular_velocity_b": [7, 8, 9],
        "last_action": [0.5, -0.5],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(TERMS[name](inputs), [values])


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_last_millimetres_of_a_way_are_shown_beside_the_whole(kind):
    def array(*rows: list[float]) -> Any:
        values = np.array(rows, np.float32)
        return values if kind == "numpy" else torch.from_numpy(values)

    here, hole = array([0.5, 0.001, 0.2], [np.nan, 0, 0]), array([0.4, 0.0, 0.2], [0, 0, 0])
    inputs = ObservationInputs(
        state=RobotState({"end_effector_position_b": here}),
        goal={},
        last_action=array([0], [0]),
        sensed={"hole": hole, "axis": hole[:, :2]},
    )
    terms = [
        TermConfig(term="offset/hole"),
        TermConfig(term="offset/hole", scale=500.0, clip=2.0, history=2),
    ]
    seen = ObservationMap(terms, inputs).update(inputs)
    np.testing.assert_allclose(seen[0], [0.1, 0.001, 0, 0, 0, 0, 2, 0.5, 0], atol=1e-6)
    assert np.isnan(np.asarray(seen[1])[[0, 6]]).all(), "what is not known is not clipped either"
    with pytest.raises(SpecMismatchError, match="'axis', which has 2 entries; a place has 3"):
        ObservationMap([TermConfig(term="offset/axis")], inputs)
    with pytest.raises(SpecMismatchError, match=r"'ball', which is not given.*\['axis', 'hole'\]"):
        ObservationMap([TermConfig(term="offset/ball")], inputs)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_way_from_a_goal_to_what_is_sensed_under_its_name_is_a_term(kind):
    def array(*rows: list[float]) -> Any:
        values = np.array(rows, np.float32)
        return values if kind == "numpy" else torch.from_numpy(values)

    inputs = ObservationInputs(
        state=RobotState({}),
        goal={"cube": array([0.5, 0.0, 0.2]), "axis": array([1.0, 0.0])},
        last_action=array([0]),
        sensed={"cube": array([0.4, 0.1, 0.0]), "axis": array([1.0])},
    )
    seen = ObservationMap([TermConfig(term="gap/cube", scale=10.0)], inputs).update(inputs)
    np.testing.assert_allclose(seen[0], [-1.0, 1.0, -2.0], atol=1e-5)
    with pytest.raises(SpecMismatchError, match=r"'axis' .* they have 2 and 1 entries"):
        ObservationMap([TermConfig(term="gap/axis")], inputs)
    with pytest.raises(SpecMismatchError, match=r"the goal 'ball', which is not given"):
        ObservationMap([TermConfig(term="gap/ball")], inputs)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_average_of_a_term_begins_at_0_and_forgets_what_is_long_ago(kind):
    def inputs(first: float, second: float) -> ObservationInputs:
        action = np.array([[first], [second]], np.float32)
        return ObservationInputs(
            state=RobotState({}), goal={},
            last_action=action if kind == "numpy" else torch.from_numpy(action),
        )  # fmt: skip

    terms = [TermConfig(term="last_action", scale=2.0, clip=1.0, average=4),
             TermConfig(term="last_action")]  # fmt: skip
    seen = ObservationMap(terms, inputs(0, 0))
    begun = np.ones(2, bool) if kind == "numpy" else torch.ones(2, dtype=torch.bool)
    np.testing.assert_allclose(seen.reset(EnvSelection(begun), inputs(3, 0.1)), [[0, 3], [0, 0.1]])
    np.testing.assert_allclose(seen.update(inputs(3, 0.1))[:, 0], [0.25, 0.05])
    np.testing.assert_allclose(seen.update(inputs(3, 0.1))[:, 0], [0.4375, 0.0875])
    np.testing.assert_allclose(seen.look(inputs(0, 0))[:, 0], [0.4375, 0.0875])
    assert seen.remembers
    kept, other = seen.state_dict(), ObservationMap(terms, inputs(0, 0))
    other.load_state_dict(kept)
    begun[1] = False
    assert np.asarray(other.reset(EnvSelection(begun), inputs(1, 1)))[0, 0] == 0
    np.testing.assert_allclose(other.update(inputs(1, 0))[:, 0], [0.25, 0.75 * 0.0875])
    np.testing.assert_allclose(kept["0"][:, 0], [0.4375, 0.0875], err_msg="it is a copy")
    assert terms[0].to_dict(1)["average"] == 4
    assert "average" not in terms[1].to_dict(1)
    for wrong in ({"average": -1}, {"average": 3, "history": 2}):
        with pytest.raises(ConfigError, match="average must be 0 or the number of its steps"):
            TermConfig(term="last_action", **wrong)
    with pytest.raises(ShapeError, match="average of an observation: expected shape"):
        seen.load_state_dict({"0": kept["0"][:1]})


def test_what_cannot_be_observed_is_refused_when_the_map_is_built():
    with pytest.raises(ConfigError, match="did you mean 'last_action'"):
        ObservationMap([TermConfig(term="last_actoin")], STILL)
    with pytest.raises(ConfigError, match="history must be at least 1, got 0"):
        TermConfig(term="last_action", history=0)
    with pytest.raises(ConfigError, match="clip must be positive, got"):
        TermConfig(term="last_action", clip=float("nan"))
    with pytest.raises(SpecMismatchError, match=r"'orientation_w' .* was asked for"):
        ObservationMap([TermConfig(term="orientation_matrix")], STILL)


def test_fields_goals_and_sensed_inputs_are_terms_as_they_are():
    inputs = ObservationInputs(
        state=RobotState({"gripper_opening": np.full((2, 1), 0.25, np.float32)}),
        goal={"cube": np.full((2, 3), 0.5, np.float32)},
        last_action=np.zeros((2, 1), np.float32),
        sensed={"scan": np.array([[1, 2], [3, 4]], np.float32)},
    )
    terms = [
        TermConfig(term="state/gripper_opening"),
        TermConfig(term="goal/cube", scale=2.0),
        TermConfig(term="sensed/scan", scale=3.0),
    ]
    made = ObservationMap(terms, inputs).update(inputs)
    np.testing.assert_array_equal(made, [[0.25, 1, 1, 1, 3, 6], [0.25, 1, 1, 1, 9, 12]])
    with pytest.raises(SpecMismatchError, match=r"reads the goal 'ball'.*\['cube'\]"):
        ObservationMap([TermConfig(term="goal/ball")], inputs)
    with pytest.raises(SpecMismatchError, match="the sensed input 'scan', which is not given"):
        ObservationMap(terms[2:], STILL)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_begun_episode_looks_like_one_that_was_reset(kind):
    rng = np.random.default_rng(1)
    first, then = make_inputs(rng, kind), make_inputs(rng, kind)
    begun, reset = ObservationMap(EVERY_TERM, first), ObservationMap(EVERY_TERM, first)
    mask = np.array([True, False, True])
    rows = EnvSelection(mask if kind == "numpy" else torch.from_numpy(mask))
    for one in (begun, reset):
        one.update(first)
    begun.begin(rows, then)
    expected = reset.look(then)
    rows.put(expected, reset.reset(rows, then))
    np.testing.assert_array_equal(np.asarray(begun.look(then)), np.asarray(expected))
