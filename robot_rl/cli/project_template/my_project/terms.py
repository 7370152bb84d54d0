"""Observation terms: the same lines run in thousands of worlds and on a robot without torch."""

from array_api_compat import array_namespace

from robot_rl.core.env_selection import Array
from robot_rl.core.observation import Mirrored, ObservationInputs, actor_term


@actor_term(Mirrored.same)
def my_project_distance(inputs: ObservationInputs) -> Array:
    """Distance of the end effector from its goal, (N, 1), [m]."""
    way = inputs.state.end_effector_position_b - inputs.goal["end_effector_position_b"]
    xp = array_namespace(way)
    return xp.sqrt(xp.sum(way * way, axis=-1, keepdims=True))
