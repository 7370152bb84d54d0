"""States of the simulation beside what is observed, where a collection asks for them."""

from robot_rl.cli.collection.options import CollectOptions
from robot_rl.core.env import BatchEnv, SupportsStateReset
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv


def states_of(options: CollectOptions, env: BatchEnv) -> SupportsStateReset | None:
    """Who tells the states of the worlds; None where none were asked for.

    Raises:
        ConfigError: They were, and this environment does not tell them.
    """
    if not options.states:
        return None
    if not isinstance(env, SimEnv):
        raise ConfigError(
            f"states=true was asked for, and {type(env).__name__} does not tell the states of its "
            "worlds; expected env=sim"
        )
    return env


def state_widths(source: SupportsStateReset | None) -> dict[str, int]:
    """Parts of the states that are stored, with their widths; empty where none are."""
    return {} if source is None else dict(source.state_widths)
