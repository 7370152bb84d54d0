"""Inverse kinematics of an arm: joints that bring its tip to a pose, by damped least squares.

    dq = J' (J J' + lambda^2)^-1 e + N k (q_0 - q),      N = 1 - J' (J J' + lambda^2)^-1 J

e = [position error [m]; rotation vector [rad]], base axes. lambda keeps the step finite at singular
poses, at the price of slower convergence there; N lets spare joints drift to a resting pose q_0, by
default the middle of their ranges. A joint that a step would take out of its limits is locked at
the limit, and the step is solved again without it: clipping alone would bend the tip's way.
Source: Wampler, "Manipulator inverse kinematic solutions based on vector formulations and damped
least-squares methods", 1986; locking: Baerlocher and Boulic, 2004, of one level.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.controllers import rotations
from hardware.controllers.cartesian_impedance import clipped
from hardware.controllers.chain import KinematicChain
from hardware.controllers.rotations import Quaternion
from robot_rl.core.errors import ShapeError

Floats = NDArray[np.float64]
_DAMPING = 0.02
"""lambda: singular values of the Jacobian below it count as none."""
_CENTERING = 0.02
"""k: share of the way to the resting pose that a spare joint goes in an iteration."""
_CLOSE = 1e-5
"""Error below which a pose is reached [m or rad]."""
_LONGEST_STEP, _LARGEST_TURN = 0.05, 0.2
"""Error that one iteration takes on [m], [rad]: the Jacobian holds near the pose only."""


class InverseKinematics:
    """Joints of one arm for poses of its tip."""

    def __init__(
        self, chain: KinematicChain, *, lower: Sequence[float], upper: Sequence[float],
        rest: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        """Describe the arm.

        Args:
            lower: Limits of the joints, (J,), [rad] or [m].
            upper: Likewise.
            rest: Pose that spare joints are drawn to, (J,); None for the middle of the limits.
        """
        count = len(chain.mass)
        if len(lower) != count or len(upper) != count:
            raise ShapeError(
                f"inverse kinematics of {count} joints got {len(lower)} lower and {len(upper)} "
                "upper limits"
            )
        self._chain = chain
        self._lower = np.array(lower, dtype=np.float64)
        self._upper = np.array(upper, dtype=np.float64)
        finite = np.isfinite(self._lower) & np.isfinite(self._upper)
        self._rest = np.where(finite, 0.5 * (self._lower + self._upper), 0.0)
        self._drawn = finite.astype(np.float64)
        if rest is not None:
            self._rest, self._drawn = np.array(rest, dtype=np.float64), np.ones(count)

    def pose(self, q: Floats) -> tuple[Floats, Quaternion]:
        """Position [m] and attitude of the tip at joint positions (J,), base axes."""
        pose = self._chain.at(q)
        return pose.tip_position_b, pose.tip_orientation_b

    def solve(
        self, q: Floats, position: Floats, orientation: Quaternion, iterations: int = 10
    ) -> Floats:
        """Joints near q that bring the tip as near to a pose as their limits let it, (J,).

        Args:
            q: Joint positions to begin at, (J,).
            position: Of the tip, (3,), [m], base axes.
            orientation: Of the tip, base axes.
        """
        q = np.clip(q, self._lower, self._upper)
        for _ in range(iterations):
            pose = self._chain.at(q)
            back = rotations.conjugate(pose.tip_orientation_b)
            turn = np.array(rotations.rotation_vector(rotations.multiply(orientation, back)))
            way = position - pose.tip_position_b
            if max(np.abs(way).max(), np.abs(turn).max()) < _CLOSE:
                break
            error = np.concatenate([clipped(way, _LONGEST_STEP), clipped(turn, _LARGEST_TURN)])
            q = self._stepped(q, pose.jacobian, error)
        return q

    def _stepped(self, q: Floats, jacobian: Floats, error: Floats) -> Floats:
        """One iteration; joints at a limit that it would leave are locked one after another."""
        free = np.ones(len(q))
        while True:
            moved = q + self._step(q, jacobian * free, error) * free
            outside = ((moved < self._lower) | (moved > self._upper)) & (free > 0)
            stuck = outside & ((q <= self._lower) | (q >= self._upper))
            if not stuck.any():  # at the latest when none is free
                return np.clip(moved, self._lower, self._upper)
            free[stuck] = 0.0

    def _step(self, q: Floats, jacobian: Floats, error: Floats) -> Floats:
        gram = jacobian @ jacobian.T + _DAMPING**2 * np.eye(6)
        spare = _CENTERING * self._drawn * (self._rest - q)
        return jacobian.T @ np.linalg.solve(gram, error - jacobian @ spare) + spare
