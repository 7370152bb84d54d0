"""Where the joints of a robot and of its scene stand in MuJoCo's generalised state."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import mujoco

_POSITION_SIZE = {
    mujoco.mjtJoint.mjJNT_FREE: 7,
    mujoco.mjtJoint.mjJNT_BALL: 4,
    mujoco.mjtJoint.mjJNT_SLIDE: 1,
    mujoco.mjtJoint.mjJNT_HINGE: 1,
}
_VELOCITY_SIZE = {
    mujoco.mjtJoint.mjJNT_FREE: 6,
    mujoco.mjtJoint.mjJNT_BALL: 3,
    mujoco.mjtJoint.mjJNT_SLIDE: 1,
    mujoco.mjtJoint.mjJNT_HINGE: 1,
}


@dataclass(frozen=True)
class JointLayout:
    """Columns of `qpos` and `qvel`: the robot's base where it floats, joints, fingers, the scene.

    A floating base takes the first columns: position (world, [m]) and quaternion wxyz, and linear
    velocity (world axes, [m/s]) and angular velocity (body axes, [rad/s]).
    """

    floating: bool
    """Whether the robot's base moves freely."""
    position: slice
    """The robot's joints in `qpos`."""
    velocity: slice
    """The robot's joints in `qvel`."""
    fingers: slice
    """The gripper's joints in `qpos`; empty without a gripper."""
    scene: dict[str, slice]
    """Joints of the scene in `qpos`, by name: 7 columns for a free body, 1 for a hinge or slide."""
    scene_velocity: dict[str, slice]
    """Joints of the scene in `qvel`, by name."""
    fixtures: dict[str, int]
    """Bodies of the scene that are placed anew in every episode: name -> row of `mocap_pos`."""

    @classmethod
    def of(cls, model: mujoco.MjModel, num_joints: int, num_fingers: int = 0) -> "JointLayout":
        """Read it from a model whose first joints are the robot's, then its gripper's."""
        floating = model.njnt > 0 and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        first, first_velocity = (7, 6) if floating else (0, 0)
        scene: dict[str, slice] = {}
        scene_velocity: dict[str, slice] = {}
        for i in range(num_joints + num_fingers + floating, model.njnt):
            kind = mujoco.mjtJoint(model.jnt_type[i])
            start, start_velocity = int(model.jnt_qposadr[i]), int(model.jnt_dofadr[i])
            name = model.joint(i).name
            scene[name] = slice(start, start + _POSITION_SIZE[kind])
            scene_velocity[name] = slice(start_velocity, start_velocity + _VELOCITY_SIZE[kind])
        return cls(
            floating=bool(floating),
            position=slice(first, first + num_joints),
            velocity=slice(first_velocity, first_velocity + num_joints),
            fingers=slice(first + num_joints, first + num_joints + num_fingers),
            scene=scene,
            scene_velocity=scene_velocity,
            fixtures={
                model.body(i).name: int(model.body_mocapid[i])
                for i in range(model.nbody)
                if model.body_mocapid[i] >= 0
            },
        )
