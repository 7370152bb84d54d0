"""States and commands of jointed robots, and joints as masses without friction, for the tests."""

import numpy as np
from numpy.typing import ArrayLike

from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand


def state(q: ArrayLike, dq: ArrayLike | None = None) -> RobotState:
    q = np.atleast_2d(np.array(q, dtype=np.float64))
    dq = np.zeros_like(q) if dq is None else np.atleast_2d(np.array(dq, dtype=np.float64))
    return RobotState({"joint_position": q, "joint_velocity": dq})


def command(
    q: ArrayLike,
    dq: ArrayLike = 0.0,
    tau: ArrayLike = 0.0,
    kp: ArrayLike = 0.0,
    kd: ArrayLike = 0.0,
    gripper: np.ndarray | None = None,
) -> JointCommand:
    q = np.atleast_2d(np.array(q, dtype=np.float64))
    rest = (
        np.array(np.broadcast_to(value, q.shape), dtype=np.float64) for value in (dq, tau, kp, kd)
    )
    names = ("dq", "tau", "kp", "kd")
    return JointCommand(q=q, **dict(zip(names, rest, strict=True)), gripper=gripper)
