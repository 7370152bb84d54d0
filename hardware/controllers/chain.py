"""Rigid-body model of an arm: a chain of links on a fixed base, in numpy.

`KinematicChain` is plain numbers that anybody may fill from a model file; `at` gives the chain in a
pose. Joint j turns link j about (or slides it along) an axis through the origin of link j's frame.

Velocities and masses are 4x4 matrices in base axes: the point x of a link moves with S [x, 1] for
each unit of a joint's velocity, and P is the integral of [x, 1] [x, 1]' dm over a link, so that a
field of accelerations A [x, 1] asks the joint for the torque sum(S * A P). All links go through one
matrix product at once; vector products of a few links cost numpy several times as much.
Source: Paul, "Robot Manipulators", 1981, chapter 6 (pseudo-inertia); sums from the tip inwards:
Hollerbach, "A recursive Lagrangian formulation of manipulator dynamics", 1980.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hardware.controllers.rotations import Quaternion, from_axes
from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, ShapeError


@dataclass(kw_only=True)
class KinematicChain:
    """Geometry and masses of J links, from the base to the tip; link axes unless said otherwise."""

    axis: np.ndarray
    """Unit vector along each joint, (J, 3)."""
    position: np.ndarray
    """Origin of each link in the frame of the link before, at joint position 0, (J, 3), [m]."""
    orientation: np.ndarray
    """Its attitude there, unit quaternion wxyz, (J, 4)."""
    mass: np.ndarray
    """(J,), [kg]."""
    center: np.ndarray
    """Centre of mass of each link, (J, 3), [m]."""
    inertia: np.ndarray
    """Inertia of each link about its centre of mass, (J, 3, 3), [kg m^2]."""
    prismatic: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Joints that slide, (J,) bool; empty for none."""
    tip_position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """End effector in the frame of the last link, (3,), [m]."""
    tip_orientation: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
    """Its attitude there, unit quaternion wxyz, (4,)."""
    gravity_b: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    """Acceleration of what falls, (3,), [m/s^2], base axes."""

    def __post_init__(self) -> None:
        count = len(self.mass)
        if not len(self.prismatic):
            self.prismatic = np.zeros(count, bool)
        shapes = {
            "axis": (count, 3), "position": (count, 3), "orientation": (count, 4),
            "mass": (count,), "center": (count, 3), "inertia": (count, 3, 3),
            "prismatic": (count,),
            "tip_position": (3,), "tip_orientation": (4,), "gravity_b": (3,),
        }  # fmt: skip
        for name, shape in shapes.items():
            value = np.asarray(getattr(self, name), bool if name == "prismatic" else np.float64)
            if value.shape != shape:
                raise ShapeError(f"chain: {name} has shape {value.shape}, expected {shape}")
            setattr(self, name, value)
        for name, vectors in (("axis", self.axis), ("orientation", self.orientation)):
            length = np.linalg.norm(vectors, axis=-1)
            if not np.allclose(length, 1.0, atol=1e-6):
                raise ConfigError(f"chain: each {name} needs length 1, got lengths {length}")

    @cached_property
    def steps(self) -> np.ndarray:
        """Transforms A, B, C, D between neighbouring links, (4, J, 4, 4).

        A link stands at A + B sin q + C (1 - cos q) + D q in the frame of the link before
        (Rodrigues); B and C are 0 where a joint slides, D where it turns.
        """
        rotation = quaternion.rotation_matrix(self.orientation).reshape(-1, 3, 3)
        spin, turns = _skew(self.axis), ~self.prismatic[:, None, None]
        steps = np.zeros((4, len(self.mass), 4, 4))
        steps[0, :, :3, :3] = rotation
        steps[0, :, :3, 3] = self.position
        steps[0, :, 3, 3] = 1.0
        steps[1, :, :3, :3] = rotation @ spin * turns
        steps[2, :, :3, :3] = rotation @ spin @ spin * turns
        steps[3, :, :3, 3] = (rotation @ self.axis[:, :, None])[:, :, 0] * self.prismatic[:, None]
        return steps

    @cached_property
    def motions(self) -> np.ndarray:
        """S of each joint in the axes of its own link, (J, 4, 4)."""
        motions = np.zeros((len(self.mass), 4, 4))
        motions[:, :3, :3] = _skew(self.axis) * ~self.prismatic[:, None, None]
        motions[:, :3, 3] = self.axis * self.prismatic[:, None]
        return motions

    @cached_property
    def pseudo_inertia(self) -> np.ndarray:
        """P of each link in its own axes, (J, 4, 4)."""
        first = self.mass[:, None] * self.center
        trace = np.trace(self.inertia, axis1=1, axis2=2)
        pseudo = np.empty((len(self.mass), 4, 4))
        pseudo[:, :3, :3] = 0.5 * trace[:, None, None] * np.eye(3) - self.inertia
        pseudo[:, :3, :3] += first[:, :, None] * self.center[:, None, :]
        pseudo[:, :3, 3] = pseudo[:, 3, :3] = first
        pseudo[:, 3, 3] = self.mass
        return pseudo

    @cached_property
    def tip(self) -> np.ndarray:
        """Transform from the end effector to the last link, (4, 4)."""
        tip = np.eye(4)
        tip[:3, :3] = quaternion.rotation_matrix(self.tip_orientation).reshape(3, 3)
        tip[:3, 3] = self.tip_position
        return tip

    @cached_property
    def fall(self) -> np.ndarray:
        """A of the force field that gravity is, (4, 4)."""
        fall = np.zeros((4, 4))
        fall[:3, 3] = self.gravity_b
        return fall

    def at(self, q: np.ndarray) -> "ChainPose":
        """The chain with its joints at q, (J,), [rad] or [m]."""
        return ChainPose(self, q)


class ChainPose:
    """A chain in one pose: what depends on the joints' positions, computed when it is asked for."""

    def __init__(self, chain: KinematicChain, q: np.ndarray) -> None:
        still, sine, cosine, slide = chain.steps
        angle = q[:, None, None]
        steps = still + sine * np.sin(angle) + cosine * (1 - np.cos(angle)) + slide * angle
        pose, poses = steps[0], [steps[0]]
        for step in steps[1:]:
            pose = pose @ step
            poses.append(pose)
        self._chain = chain
        self._pose = np.stack(poses)
        self._tip = pose @ chain.tip
        self.tip_position_b: np.ndarray = self._tip[:3, 3]
        """End effector, (3,), [m], base axes."""

    @cached_property
    def tip_orientation_b(self) -> Quaternion:
        """Attitude of the end effector, unit quaternion wxyz, base axes."""
        x, y, z, _ = self._tip[:3].T.tolist()
        return from_axes(x, y, z)

    @cached_property
    def jacobian(self) -> np.ndarray:
        """Velocity of the tip per joint velocity, (6, J): linear, then angular, base axes."""
        jacobian = np.empty((6, len(self._motion)))
        jacobian[:3] = (self._motion @ self._tip[:, 3])[:, :3].T
        jacobian[3:] = self._motion[:, [2, 0, 1], [1, 2, 0]].T
        return jacobian

    @cached_property
    def gravity_torque(self) -> np.ndarray:
        """Torques that hold the chain against gravity, (J,), [N m]."""
        return self._work(-self._chain.fall)

    def coriolis_torque(self, dq: np.ndarray) -> np.ndarray:
        """Torques that hold the velocities dq, (J,), [rad/s], apart from gravity, (J,), [N m]."""
        return self._work(self._acceleration(dq))

    def bias_torque(self, dq: np.ndarray) -> np.ndarray:
        """Sum of gravity's and Coriolis' torques at the price of one, (J,), [N m]."""
        return self._work(self._acceleration(dq) - self._chain.fall)

    def _acceleration(self, dq: np.ndarray) -> np.ndarray:
        """Field of accelerations in each link that moves at steady dq, (J, 4, 4)."""
        step = self._motion * dq[:, None, None]
        velocity = step.cumsum(axis=0)
        # The axes of a joint are carried along by the links before it: the commutator.
        carried = velocity @ step - step @ velocity
        return carried.cumsum(axis=0) + velocity @ velocity

    def _work(self, field: np.ndarray) -> np.ndarray:
        """Torques that push each link's mass along a field of accelerations, (J,), [N m]."""
        force = _outward_sum(field @ self._pseudo_inertia)
        return (self._motion * force).sum(axis=(1, 2))

    @cached_property
    def _motion(self) -> np.ndarray:
        """S of each joint, (J, 4, 4): transformed with the pose and back with its inverse."""
        back = np.zeros_like(self._pose)
        turn = self._pose[:, :3, :3].transpose(0, 2, 1)
        back[:, :3, :3] = turn
        back[:, :3, 3:] = -turn @ self._pose[:, :3, 3:]
        back[:, 3, 3] = 1.0
        return self._pose @ self._chain.motions @ back

    @cached_property
    def _pseudo_inertia(self) -> np.ndarray:
        """P of each link, (J, 4, 4)."""
        return self._pose @ self._chain.pseudo_inertia @ self._pose.transpose(0, 2, 1)


def _outward_sum(values: np.ndarray) -> np.ndarray:
    """Of each link: the sum over it and all links behind it."""
    return values[::-1].cumsum(axis=0)[::-1]


def _skew(v: np.ndarray) -> np.ndarray:
    """Matrices of the vector product v x, (..., 3) -> (..., 3, 3)."""
    matrix = np.zeros((*v.shape, 3))
    matrix[..., [2, 0, 1], [1, 2, 0]] = v
    matrix[..., [1, 2, 0], [2, 0, 1]] = -v
    return matrix
