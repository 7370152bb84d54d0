"""States of the simulation beside what is observed, where a collection asks for them."""

from torch import Tensor

from collecting.options import CollectOptions
from robot_rl.core.env import BatchEnv, BeginsAnywhere
from robot_rl.core.errors import ConfigError


def state_widths(options: CollectOptions, env: BatchEnv) -> dict[str, int]:
    """Parts of the states that are stored, with their widths; empty where none was asked for.

    Raises:
        ConfigError: They were, and this environment, task or robot has none to begin in.
    """
    if not options.states:
        return {}
    if not isinstance(env, BeginsAnywhere):
        raise ConfigError(
            f"states=true was asked for, and {type(env).__name__} does not tell the states of its "
            "worlds; expected env=sim"
        )
    return dict(env.state_widths)


def states_now(options: CollectOptions, env: BatchEnv) -> dict[str, Tensor] | None:
    """States of all worlds, (N, W) each, if they are stored."""
    return env.world_states() if options.states and isinstance(env, BeginsAnywhere) else None
