"""Rigid-body model of an arm: a chain of links on a fixed base, in numpy.

`KinematicChain` is plain numbers that anybody may fill from a model file; `at` gives the chain in a
pose. Joint j turns link j about (or slides it along) an axis through the origin of link j's frame.

Spatial vectors are [angular; linear] about the base's origin, in base axes, and so add up without
transforms: what a link inherits is a cumulative sum. Source: Featherstone, "Rigid Body Dynamics
Algorithms", 2008: motion and force products sec. 2.9, Newton-Euler sec. 5.3, composite rigid bodies
sec. 6.2.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hardware.controllers.turns import Quaternion, from_axes
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
    armature: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Inertia of each rotor behind its gear, (J,), [kg m^2]; empty for none."""
    prismatic: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Which joints slide, (J,) bool; empty for none."""
    tip_position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """End effector in the frame of the last link, (3,), [m]."""
    tip_orientation: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
    """Its attitude there, unit quaternion wxyz, (4,)."""
    gravity_b: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    """Acceleration of what falls, (3,), [m/s^2], base axes."""

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit each other and axes without direction."""
        count = len(self.mass)
        for name in ("armature", "prismatic"):
            if not len(getattr(self, name)):
                setattr(self, name, np.zeros(count))
        shapes = {
            "axis": (count, 3), "position": (count, 3), "orientation": (count, 4),
            "mass": (count,), "center": (count, 3), "inertia": (count, 3, 3),
            "armature": (count,), "prismatic": (count,),
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
    def turns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, B, C of each link's turn A + B sin q + C (1 - cos q), (J, 3, 3): Rodrigues."""
        still = quaternion.rotation_matrix(self.orientation).reshape(-1, 3, 3)
        spin = _skew(self.axis)
        return still, still @ spin, still @ spin @ spin

    @cached_property
    def tip_rotation(self) -> np.ndarray:
        """`tip_orientation` as a matrix, (3, 3)."""
        return quaternion.rotation_matrix(self.tip_orientation).reshape(3, 3)

    def at(self, q: np.ndarray) -> "ChainPose":
        """The chain with its joints at q, (J,), [rad] or [m]."""
        return ChainPose(self, q)


class ChainPose:
    """A chain in one pose: what depends on the joints' positions, computed when it is asked for."""

    def __init__(self, chain: KinematicChain, q: np.ndarray) -> None:
        """Forward kinematics."""
        still, sine, cosine = chain.turns
        angle = np.where(chain.prismatic, 0.0, q)[:, None, None]
        step = np.zeros((len(q), 4, 4))
        step[:, :3, :3] = still + sine * np.sin(angle) + cosine * (1 - np.cos(angle))
        way = np.where(chain.prismatic, q, 0.0)[:, None] * chain.axis
        step[:, :3, 3] = chain.position + (still @ way[:, :, None])[:, :, 0]
        step[:, 3, 3] = 1.0
        for j in range(1, len(q)):
            step[j] = step[j - 1] @ step[j]
        self._chain = chain
        self._rotation, self._origin = step[:, :3, :3], step[:, :3, 3]
        self.tip_position_b: np.ndarray = self._origin[-1] + self._rotation[-1] @ chain.tip_position
        """End effector, (3,), [m], base axes."""

    @cached_property
    def tip_orientation_b(self) -> Quaternion:
        """Attitude of the end effector, unit quaternion wxyz, base axes."""
        x, y, z = (self._rotation[-1] @ self._chain.tip_rotation).T.tolist()
        return from_axes(x, y, z)

    @cached_property
    def jacobian(self) -> np.ndarray:
        """Velocity of the tip per joint velocity, (6, J): linear, then angular, base axes."""
        turn, slide = self._motion[:, :3], self._motion[:, 3:]
        return np.concatenate([slide + _cross(turn, self.tip_position_b), turn], axis=1).T

    @cached_property
    def mass_matrix(self) -> np.ndarray:
        """Joint-space inertia, (J, J), [kg m^2], rotors included: composite rigid bodies."""
        composite = _outward_sum(self._inertia)
        force = (composite @ self._motion[:, :, None])[:, :, 0]
        upper = np.triu(self._motion @ force.T)  # row i, column j >= i
        return upper + np.triu(upper, 1).T + np.diag(self._chain.armature)

    @property
    def potential_energy(self) -> float:
        """Energy of the links' heights against the base's origin [J]."""
        return -float(self._chain.mass @ self._center @ self._chain.gravity_b)

    @cached_property
    def gravity_torque(self) -> np.ndarray:
        """Torques that hold the chain against gravity, (J,), [N m]."""
        weight = -_outward_sum(self._chain.mass)[:, None] * self._chain.gravity_b
        first_moment = _outward_sum(self._chain.mass[:, None] * self._center)
        moment = -_cross(first_moment, self._chain.gravity_b)
        return np.sum(self._motion * np.concatenate([moment, weight], axis=1), axis=1)

    def coriolis_torque(self, dq: np.ndarray) -> np.ndarray:
        """Torques that hold the velocities dq, (J,), [rad/s], apart from gravity, (J,), [N m]."""
        step = self._motion * dq[:, None]
        velocity = step.cumsum(axis=0)
        # Joint axes move with their links; a joint's own velocity does not turn its axis.
        acceleration = _cross_motion(velocity, step).cumsum(axis=0)
        momentum = (self._inertia @ velocity[:, :, None])[:, :, 0]
        force = (self._inertia @ acceleration[:, :, None])[:, :, 0]
        force += _cross_force(velocity, momentum)
        return np.sum(self._motion * _outward_sum(force), axis=1)

    @cached_property
    def _motion(self) -> np.ndarray:
        """Spatial velocity of each joint's unit velocity, (J, 6)."""
        axis = (self._rotation @ self._chain.axis[:, :, None])[:, :, 0]
        turning = np.concatenate([axis, _cross(self._origin, axis)], axis=1)
        sliding = np.concatenate([np.zeros_like(axis), axis], axis=1)
        return np.where(self._chain.prismatic[:, None], sliding, turning)

    @cached_property
    def _center(self) -> np.ndarray:
        """Centre of mass of each link, (J, 3), [m], base axes."""
        return self._origin + (self._rotation @ self._chain.center[:, :, None])[:, :, 0]

    @cached_property
    def _inertia(self) -> np.ndarray:
        """Spatial inertia of each link about the base's origin, (J, 6, 6)."""
        mass, center = self._chain.mass[:, None, None], _skew(self._center)
        turned = self._rotation @ self._chain.inertia @ self._rotation.transpose(0, 2, 1)
        spatial = np.empty((len(mass), 6, 6))
        spatial[:, :3, :3] = turned - mass * (center @ center)
        spatial[:, :3, 3:] = mass * center
        spatial[:, 3:, :3] = -mass * center
        spatial[:, 3:, 3:] = mass * np.eye(3)
        return spatial


def _outward_sum(values: np.ndarray) -> np.ndarray:
    """Of each link: the sum over it and all links behind it."""
    return values[::-1].cumsum(axis=0)[::-1]


def _skew(v: np.ndarray) -> np.ndarray:
    """Matrices of the vector product v x, (..., 3) -> (..., 3, 3)."""
    matrix = np.zeros((*v.shape, 3))
    matrix[..., [2, 0, 1], [1, 2, 0]] = v
    matrix[..., [1, 2, 0], [2, 0, 1]] = -v
    return matrix


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Vector product on the last axis; numpy's own costs three times as much on small arrays."""
    left, right = [1, 2, 0], [2, 0, 1]
    return a[..., left] * b[..., right] - a[..., right] * b[..., left]


def _cross_motion(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rate of change of motion b that is carried along by motion a, (..., 6)."""
    turn, slide = a[..., :3], a[..., 3:]
    linear = _cross(turn, b[..., 3:]) + _cross(slide, b[..., :3])
    return np.concatenate([_cross(turn, b[..., :3]), linear], axis=-1)


def _cross_force(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rate of change of force b that is carried along by motion a, (..., 6)."""
    turn, slide = a[..., :3], a[..., 3:]
    moment = _cross(turn, b[..., :3]) + _cross(slide, b[..., 3:])
    return np.concatenate([moment, _cross(turn, b[..., 3:])], axis=-1)
