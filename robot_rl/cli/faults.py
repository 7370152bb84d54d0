"""Worlds that an engine gave up, kept in the run's folder as they were before."""

import logging
from pathlib import Path

from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import StorageError
from sim.env import SimEnv

_LOG = logging.getLogger(__name__)
MOST = 16
"""Files that are kept of a run: a broken model would fill the disk."""


def keep_faults(env: BatchEnv, folder: Path, step: int) -> None:
    """Save what broke since the last call; a full disk is told, not raised.

    Args:
        env: Worlds of a run; those of robots with joints remember what broke.
        folder: Where the files go, `step_<step>_world_<world>.npz`.
        step: World-steps so far.
    """
    if not isinstance(env, SimEnv):
        return
    from sim.robots.joint_simulation import MujocoSimulation  # other worlds may lack its MuJoCo

    if not isinstance(env.simulation, MujocoSimulation):
        return
    records = env.simulation.engine.fault_records
    room = MOST - len(list(folder.glob("*.npz"))) if records else 0
    for record in records[: max(0, room)]:
        path = folder / f"step_{step:012d}_world_{record.world}.npz"
        try:
            record.save(path)
            _LOG.warning("world %d broke (%s): %s", record.world, ", ".join(record.reasons), path)
        except StorageError as error:
            _LOG.warning("%s", error)
    records.clear()
