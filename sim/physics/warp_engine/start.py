"""MuJoCo Warp, imported in one place."""

from robot_rl.core.errors import MissingExtraError
from sim.physics import warp_start

warp_start.start()
try:
    import mujoco_warp as mjw
except ImportError as error:
    raise MissingExtraError("mujoco-warp", "gpu", "the engine robot.engine=warp") from error

__all__ = ["mjw"]
