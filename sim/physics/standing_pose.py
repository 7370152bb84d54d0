"""A pose for a walking robot to stand in: its feet below its hips, its legs bent a little.

A URDF says neither the pose nor what of a foot touches the ground. Soles are the foot's lowest
shapes in the pose, and the pose brings their middle to its place.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.physics.kinematics import corners, lowest
from sim.physics.urdf_file import posed

Vector = NDArray[np.float64]

_SOLE = 0.01
"""Shapes this near to a foot's lowest point are its sole [m]."""
_TURNS = 5
"""Joints of a leg from which on a foot can be kept level."""
_STARTS, _STEPS, _ROUNDS = 40, 60, 4
"""Poses that a leg is bent from, steps of bending, and how often soles are chosen anew."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A leg, and what of its foot stands on the ground."""

    foot: str
    """Link."""
    joints: list[int]
    """Joints that move this foot alone, from the base on; with fewer than two, all that move it."""
    soles: list[int]
    """Shapes that stand on the ground."""
    centre: Vector
    """Middle of the soles, axes of the foot [m], (3,)."""
    half: Vector
    """Half of their extent along these axes [m], (3,)."""
    ball: bool
    """True if they are one sphere."""

    def place(self, data: mujoco.MjData) -> Vector:
        """The soles' middle, world axes [m], (3,)."""
        body = data.body(self.foot)
        return body.xpos + body.xmat.reshape(3, 3) @ self.centre


def stand(
    model: mujoco.MjModel, feet: Sequence[str], *, share: float
) -> tuple[list[Leg], Vector, float]:
    """Legs of a robot with a free base, and a pose to stand in.

    Feet are below the hips: where they are with all joints at 0, but higher. Joints that move
    several feet, such as a spine, stay at 0 or at the limit nearest to it.

    Args:
        model: The robot; every foot has a shape.
        feet: Links that it stands on.
        share: Of the legs' length, at which it stands.

    Returns:
        The legs, the pose (J,), and the largest distance of a foot from where it should be [m].
    """
    pose, off = np.zeros(model.njnt - 1), 0.0
    data, own = posed(model, pose), _own_joints(model, feet)
    legs = [_leg(model, foot, joints, [_tip(model, data, foot)]) for foot, joints in own.items()]
    for _ in range(_ROUNDS):  # the pose decides what is lowest, and that what the pose brings down
        pose, off = _pose(model, legs, share)
        before, data = legs, posed(model, pose)
        legs = [
            _leg(model, foot, joints, _lowest_shapes(model, data, foot))
            for foot, joints in own.items()
        ]
        if [leg.soles for leg in legs] == [leg.soles for leg in before]:
            break
    return legs, pose, off


def _leg(model: mujoco.MjModel, foot: str, joints: list[int], soles: list[int]) -> Leg:
    ends = np.concatenate([corners(model, geom) for geom in soles])
    low, high = ends.min(0), ends.max(0)
    sphere = model.geom_type[soles[0]] == mujoco.mjtGeom.mjGEOM_SPHERE
    return Leg(
        foot=foot, joints=joints, soles=soles, centre=(low + high) / 2, half=(high - low) / 2,
        ball=len(soles) == 1 and sphere,
    )  # fmt: skip


def _shapes(model: mujoco.MjModel, foot: str) -> range:
    first = int(model.body(foot).geomadr[0])
    return range(first, first + int(model.body(foot).geomnum[0]))


def _tip(model: mujoco.MjModel, data: mujoco.MjData, foot: str) -> int:
    """The foot's shape whose middle is farthest from the joint that moves it."""
    joint = data.xanchor[_bearing(model, foot)[-1]]
    return max(_shapes(model, foot), key=lambda geom: np.linalg.norm(data.geom_xpos[geom] - joint))


def _lowest_shapes(model: mujoco.MjModel, data: mujoco.MjData, foot: str) -> list[int]:
    """Shapes that reach the ground; balls alone where one is the lowest, as at a shank's tip."""
    heights = {geom: lowest(model, data, geom) for geom in _shapes(model, foot)}
    first = min(heights, key=heights.__getitem__)
    near = [geom for geom, height in heights.items() if height < heights[first] + _SOLE]
    balls = [geom for geom in near if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_SPHERE]
    return balls if first in balls else near


def _own_joints(model: mujoco.MjModel, feet: Sequence[str]) -> dict[str, list[int]]:
    """Joints that move one foot alone; where these are fewer than two, all that move it."""
    bearing = {foot: _bearing(model, foot) for foot in feet}
    borne = Counter(joint for joints in bearing.values() for joint in joints)
    own = {foot: [j for j in joints if borne[j] == 1] for foot, joints in bearing.items()}
    return {foot: joints if len(joints) > 1 else bearing[foot] for foot, joints in own.items()}


def _bearing(model: mujoco.MjModel, foot: str) -> list[int]:
    """Joints that move a foot, from the base on, the free one not counted."""
    found: list[int] = []
    body = int(model.body(foot).id)
    while body:
        first = int(model.body_jntadr[body])
        found += [first + k for k in reversed(range(int(model.body_jntnum[body])))]
        body = int(model.body_parentid[body])
    return [joint for joint in reversed(found) if joint > 0]


def _pose(model: mujoco.MjModel, legs: Sequence[Leg], share: float) -> tuple[Vector, float]:
    low, high = model.jnt_range[1:].T
    pose = np.clip(np.zeros(model.njnt - 1), low, high)
    straight = posed(model, np.zeros(model.njnt - 1))  # as built, within the limits or not
    generator = np.random.default_rng(0)
    drawn = generator.uniform(-1, 1, (_STARTS, max(len(leg.joints) for leg in legs)))
    lengths = [_length(model, leg, generator) for leg in legs]
    hips = [straight.xanchor[leg.joints[0]] for leg in legs]
    depth = np.mean([hip[2] - share * long for hip, long in zip(hips, lengths, strict=True)])
    targets: list[Vector] = []
    for leg, hip, length in zip(legs, hips, lengths, strict=True):
        target = leg.place(straight)
        if hip[2] - target[2] < 0.9 * length:  # built with its legs bent
            target[:2] = straight.xanchor[leg.joints[1]][:2]
        target[2] = depth
        targets.append(target)
        levels = len(leg.joints) >= _TURNS
        level = straight.body(leg.foot).xmat.reshape(3, 3) if levels else None
        found = [
            _bend(model, pose, leg, start[: len(leg.joints)], target, level) for start in drawn
        ]
        least = min(cost for cost, _ in found)
        # The first of those that are as good: both sides bend the same way.
        pose = next(q for cost, q in found if cost < 1.05 * least + 1e-5)
    pose = pose.round(3) + 0.0
    data = posed(model, pose)
    off = [np.linalg.norm(leg.place(data) - at) for leg, at in zip(legs, targets, strict=True)]
    return pose, float(max(off))


def _length(model: mujoco.MjModel, leg: Leg, generator: np.random.Generator) -> float:
    """Largest distance at which a foot hangs below its leg's first joint, among many poses [m]."""
    low, high = model.jnt_range[leg.joints].T
    data, columns = mujoco.MjData(model), model.jnt_qposadr[leg.joints]
    longest = 0.0
    for unit in generator.uniform(0, 1, (2000, len(leg.joints))):
        data.qpos[columns] = low + (high - low) * unit
        mujoco.mj_kinematics(model, data)
        longest = max(longest, float(data.xanchor[leg.joints[0], 2] - leg.place(data)[2]))
    return longest


def _bend(
    model: mujoco.MjModel, pose: Vector, leg: Leg, start: Vector, target: Vector,
    level: Vector | None,
) -> tuple[float, Vector]:  # fmt: skip
    """Move a leg until its foot is at a place, by Levenberg and Marquardt's steps.

    Returns:
        Squared distance [m^2], with a little for joints away from 0, and the pose.
    """
    columns = np.array(leg.joints) - 1
    low, high = model.jnt_range[1:].T
    dofs = model.jnt_dofadr[leg.joints]
    data, body = mujoco.MjData(model), int(model.body(leg.foot).id)
    place, turn = np.zeros((3, model.nv)), np.zeros((3, model.nv))

    def at(q: Vector) -> tuple[Vector, Vector]:
        """Way to the place, and turn to level, with their derivatives."""
        data.qpos[7:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        now = leg.place(data)
        mujoco.mj_jac(model, data, place, turn, now, body)
        if level is None:
            return target - now, place[:, dofs].copy()
        off = np.concatenate([target - now, _rotation(data.xmat[body].reshape(3, 3), level)])
        return off, np.concatenate([place[:, dofs], turn[:, dofs]])

    q = pose.copy()
    q[columns] = np.clip(start, low[columns], high[columns])
    (off, rows), damping = at(q), 1e-3
    for _ in range(_STEPS):
        step = rows.T @ np.linalg.solve(rows @ rows.T + damping * np.eye(len(rows)), off)
        tried = q.copy()
        tried[columns] = np.clip(q[columns] + step.clip(-0.3, 0.3), low[columns], high[columns])
        new_off, new_rows = at(tried)
        if new_off @ new_off < off @ off:
            q, off, rows, damping = tried, new_off, new_rows, 0.5 * damping
        else:
            damping *= 4
    return float(off @ off + 1e-4 * (q[columns] @ q[columns])), q


def _rotation(now: Vector, wanted: Vector) -> Vector:
    """Small turn from an attitude to another, world axes [rad], (3,)."""
    return 0.5 * np.cross(now.T, wanted.T).sum(0)
