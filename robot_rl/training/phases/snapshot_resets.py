"""Where the episodes of a run begin: where the task lets them, or in states of a data set."""

from typing import TYPE_CHECKING

from robot_rl.core.env import BatchEnv, SupportsStateReset
from robot_rl.core.errors import ConfigError
from robot_rl.training.phases.config import SnapshotConfig

if TYPE_CHECKING:
    from robot_rl.training.phases.snapshots import Snapshots


def snapshot_resets(config: SnapshotConfig, env: BatchEnv) -> "Snapshots | None":
    """Let an environment begin its first episodes in states of a data set, if one is named.

    Args:
        config: Which, and how long.
        env: Worlds to learn in.

    Raises:
        ConfigError: The environment cannot, or the data set has no states.
        DatasetError: It is damaged, or none.
        SpecMismatchError: The states are of other worlds.
    """
    if not config.data:
        return None
    from robot_rl.training.phases.snapshots import open_snapshots  # pyarrow is an extra

    if not isinstance(env, SupportsStateReset):
        raise ConfigError(
            f"training.snapshots.data={config.data} was named, and {type(env).__name__} cannot "
            "begin episodes in given states; expected env=sim, without a base (learner=residual)"
        )
    snapshots = open_snapshots(config, env.state_widths, env.spec)
    env.set_reset_states(snapshots)
    return snapshots
