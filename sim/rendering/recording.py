"""Recordings of a few envs for videos and contact sheets: poses, goals, returns, ends."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from sim.physics.fault_record import compiled, loaded
from sim.rendering.files import StoredArrays

if TYPE_CHECKING:  # whoever draws a recording needs neither torch nor the engine
    from sim.rendering.player import Player

ENDS = ("", "success", "time limit", "terminated", "invalid")
"""Ends of an episode, as `last_end` counts."""
_POSE_STATE = (
    mujoco.mjtState.mjSTATE_QPOS
    | mujoco.mjtState.mjSTATE_MOCAP_POS
    | mujoco.mjtState.mjSTATE_MOCAP_QUAT
)


@dataclass(frozen=True, kw_only=True)
class EnvRecording(StoredArrays):
    """K envs at T + 1 moments: the start, and after each control step.

    An env whose episode ended is seen in its next episode at once.
    """

    stored_as: ClassVar[str] = "recording of envs"

    control_dt: float
    """Time between moments [s]."""
    base: int
    """Body that the camera follows."""
    floats: bool
    """True where it moves."""
    model: NDArray[np.uint8]
    """Models of the envs, compiled, (K, bytes)."""
    pose: NDArray[np.float64]
    """Positions of joints and mocap bodies, (K, T + 1, P)."""
    goal: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Goals by name, (K, T + 1, width)."""
    seconds: NDArray[np.float32]
    """Age of the episode, (K, T + 1) [s]."""
    total: NDArray[np.float32]
    """Return of the episode so far, (K, T + 1)."""
    last_end: NDArray[np.int64]
    """End of the episode before, (K, T + 1), index of `ENDS`."""

    @property
    def tiles(self) -> int:
        """K."""
        return self.pose.shape[0]

    @property
    def duration(self) -> float:
        """From the first moment to the last [s]."""
        return (self.pose.shape[1] - 1) * self.control_dt

    def model_of(self, env: int) -> mujoco.MjModel:
        """The model of an env."""
        return loaded(self.model[env])

    def put(self, env: int, moment: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Put an env into `data` as it was; its kinematics are computed."""
        mujoco.mj_setState(model, data, self.pose[env, moment], int(_POSE_STATE))
        mujoco.mj_kinematics(model, data)


def record_envs(player: "Player", *, envs: int, seconds: float) -> EnvRecording:
    """Play on for a simulated time, at least a step, and remember the first envs.

    Raises:
        ConfigError: There are not so many envs.
        NonFiniteError: An observation or a reward was not a number.
    """
    count = player.env.spec.num_envs
    if not 1 <= envs <= count:
        raise ConfigError(f"{envs} envs were to be recorded; there are {count}")
    steps = max(1, round(seconds / player.control_dt))
    models: list[NDArray[np.uint8]] = []
    moments: list[dict[str, NDArray]] = []
    for moment in range(steps + 1):
        if moment:
            player.step()
        moments.append(_moment(player, envs, None if moment else models))
    player.env.check()
    stacked = {name: np.stack([m[name] for m in moments], axis=1) for name in moments[0]}
    goal = {name[5:]: stacked.pop(name) for name in list(stacked) if name.startswith("goal/")}
    return EnvRecording(
        control_dt=player.control_dt, base=player.shown.base, floats=player.shown.floats,
        model=np.stack(models), goal=goal, **stacked,
    )  # fmt: skip


def _moment(
    player: "Player", envs: int, models: list[NDArray[np.uint8]] | None
) -> dict[str, NDArray]:
    """Arrays (K, ...) of the present; compiled models are added to `models`, if there is one."""
    poses: list[NDArray] = []
    for env in range(envs):
        data, model = player.shown.look(env, player.time), player.shown.model
        poses.append(np.zeros(mujoco.mj_stateSize(model, int(_POSE_STATE))))
        mujoco.mj_getState(model, data, poses[-1], int(_POSE_STATE))
        if models is not None:
            models.append(compiled(model))
    goal = player.env.task.goal
    last = [player.last[env] for env in range(envs)]
    return {
        "pose": np.stack(poses),
        "seconds": np.array([player.seconds(k) for k in range(envs)], np.float32),
        "total": np.array([player.total(k) for k in range(envs)], np.float32),
        "last_end": np.array([ENDS.index(end.how) if end else 0 for end in last]),
        **{f"goal/{name}": values[:envs].cpu().numpy().copy() for name, values in goal.items()},
    }
