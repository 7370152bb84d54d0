"""Memory for contacts and constraints of MuJoCo Warp: its size, and the error where it is exceeded.

The size comes from falls of the robot in MuJoCo, whose fullest moments Warp counts.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, LimitError, MissingExtraError
from sim.physics import warp_start
from sim.physics.fault_record import compiled, warnings_unsaid
from sim.physics.warp_start import wp

warp_start.start()
try:
    import mujoco_warp as mjw
except ImportError as error:
    raise MissingExtraError("mujoco-warp", "gpu", "the engine robot.engine=warp") from error

__all__ = ["mjw"]


_FALLS = 8
"""The first from the model's reference pose, the others from drawn ones."""
_SECONDS, _FREED, _HELD = 1.0, 0.25, 0.1
"""Durations of a fall; until bodies that began inside each other are apart; of one control [s]."""
_COUNTABLE = 4096
"""Contacts that can be told apart; the counters go on where that ends."""
_counted: dict[tuple[bytes, str], int] = {}


def most_contacts(model: mujoco.MjModel) -> int:
    """The most contacts of one world that were found, or pairs of shapes whose contact was sought.

    MuJoCo in C simulates a few falls (about 0.1 s of computing), and in the fullest moments of each
    MuJoCo Warp counts, on the present device: between the same shapes it may find other contacts.
    A model is counted once on each device in a process, and always has the same number.

    Args:
        model: Of one world; left as it is.

    Raises:
        NotImplementedError: MuJoCo Warp cannot simulate the model.
    """
    key = hashlib.sha256(compiled(model).tobytes()).digest(), wp.get_device().alias
    if key not in _counted:
        _counted[key] = _most_in_warp(model, list(_fullest_moments(model)))
    return _counted[key]


def _fullest_moments(model: mujoco.MjModel) -> Iterator[NDArray[np.float64]]:
    """Positions of each fall with the most contacts, and where it ended, (nq,) each."""
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
    low, high = _control_range(model)
    steps, freed, held = (
        max(1, round(seconds / model.opt.timestep)) for seconds in (_SECONDS, _FREED, _HELD)
    )
    with warnings_unsaid():
        for fall in range(_FALLS):
            mujoco.mj_resetData(model, data)
            if fall > 0:
                _draw_pose(model, data.qpos, rng)
            fullest, most = data.qpos.copy(), -1
            for step in range(steps):
                if step % held == 0:
                    data.ctrl[:] = rng.uniform(low, high)
                mujoco.mj_step(model, data)
                if step >= freed and data.ncon > most:
                    fullest, most = data.qpos.copy(), data.ncon
            yield from (fullest, data.qpos.copy())


def _control_range(model: mujoco.MjModel) -> NDArray[np.float64]:
    """Controls that pull each joint to one end of its range or the other, (2, nu).

    A motor of a `RobotSpec` is told its stiffness times the place; one of another kind has limits,
    or gets -1 to 1.
    """
    bounds = np.tile([[-1.0], [1.0]], model.nu)
    for motor in range(model.nu):
        joint = model.actuator_trnid[motor, 0]
        affine, direct = model.actuator_biasprm[motor, 1], model.actuator_gainprm[motor, 4]
        on_joint = model.actuator_trntype[motor] == mujoco.mjtTrn.mjTRN_JOINT.value
        if model.actuator_ctrllimited[motor]:
            bounds[:, motor] = model.actuator_ctrlrange[motor]
        elif on_joint and model.jnt_limited[joint] and (affine or direct):
            bounds[:, motor] = abs(affine or direct) * model.jnt_range[joint]
    return bounds


def _draw_pose(model: mujoco.MjModel, qpos: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Turn what floats, over some place of a height field, and draw joints within limits."""
    free, ball = mujoco.mjtJoint.mjJNT_FREE.value, mujoco.mjtJoint.mjJNT_BALL.value
    for joint, kind in enumerate(model.jnt_type):
        first = model.jnt_qposadr[joint]
        if kind in (free, ball):
            turned = first + 3 if kind == free else first
            quaternion = rng.normal(size=4)
            qpos[turned : turned + 4] = quaternion / np.linalg.norm(quaternion)
            if kind == free and model.nhfield:
                extent, height = model.hfield_size[0, :2], model.hfield_size[0, 2]
                qpos[first : first + 3] += [*rng.uniform(-0.8, 0.8, 2) * extent, height]
        elif model.jnt_limited[joint]:
            qpos[first] = rng.uniform(*model.jnt_range[joint])


def _most_in_warp(model: mujoco.MjModel, moments: list[NDArray[np.float64]]) -> int:
    on_device: Any = mjw.put_model(model)
    on_device.opt.warn_overflow = 0
    world: Any = mjw.make_data(model, nworld=1, nconmax=_COUNTABLE, njmax=1)
    most = 0
    for qpos in moments:
        wp.copy(world.qpos, wp.array(qpos[None], dtype=float))
        mjw.kinematics(on_device, world)
        mjw.com_pos(on_device, world)
        mjw.collision(on_device, world)
        most = max(most, int(world.nacon.numpy()[0]), int(world.ncollision.numpy()[0]))
    return most


_logger = logging.getLogger(__name__)
_LEAST, _LEAST_ON_TERRAIN = 48, 96
"""Contacts of a world on average over all, on a floor and on a height field, whose cells each make
one."""
_SPARE_FACTOR = 2
"""Times as many contacts as the fullest moment had that was found."""
SERIOUS = int(
    mjw.OverflowType.ALL & ~(mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS)
)
"""Bits of `Data.overflow` after which a world means nothing: a solver that ends at its iteration
limit does what the model asked for."""
_SHARED = mjw.OverflowType.BROADPHASE | mjw.OverflowType.NARROWPHASE | mjw.OverflowType.CCD
_MEMORY = _SHARED | mjw.OverflowType.NEFC | mjw.OverflowType.NJMAX_NNZ
"""Overflows that more memory prevents; of them, those of memory that all envs share."""
_STEP_FACTOR = 1.5
"""A step takes up to a third more than the worlds do (G1; other robots less)."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """Contacts and constraints that one env has memory for."""

    contacts: int
    """Contacts, on average over all worlds: they share one memory."""
    constraints: int
    """Rows of the constraint Jacobian, of each world."""

    @classmethod
    def of(cls, model: mujoco.MjModel, contacts: int = 0) -> "Room":
        """For a model, on the present device.

        Args:
            contacts: That a world has room for; 0 for what falls of this model suggest.

        Raises:
            ConfigError: MuJoCo Warp cannot simulate the model.
        """
        if contacts == 0:
            least = _LEAST_ON_TERRAIN if model.nhfield else _LEAST
            with _clear_refusal():
                contacts = max(least, _SPARE_FACTOR * most_contacts(model))
        widths = [1, *model.geom_condim.tolist(), *model.pair_dim.tolist()]
        pyramidal = model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL.value
        rows = max(max(1, 2 * (width - 1)) if pyramidal else width for width in widths)
        fixed = (
            6 * model.neq + model.nv  # friction may be drawn for every joint
            + np.count_nonzero(model.tendon_frictionloss)
            + 2 * (np.count_nonzero(model.jnt_limited) + np.count_nonzero(model.tendon_limited))
        )  # fmt: skip
        return cls(contacts=contacts, constraints=int(fixed) + rows * contacts)

    def memory(self, model: mujoco.MjModel, num_worlds: int) -> int:
        """Memory of N envs between two steps, from the arrays of one and of two [bytes]."""
        with wp.ScopedDevice("cpu"):
            one, two = (_size(self._data(model, count)) for count in (1, 2))
        return one + (num_worlds - 1) * (two - one)

    def make(self, model: mujoco.MjModel, num_worlds: int) -> tuple[Any, Any]:
        """The model and N worlds on the present device.

        Raises:
            ConfigError: MuJoCo Warp cannot simulate the model, or there is no memory for so many
                worlds on a GPU.
        """
        device = wp.get_device()
        if device.is_cuda or _logger.isEnabledFor(logging.INFO):
            self._tell_memory(model, num_worlds, device)
        with _clear_refusal():
            on_device = mjw.put_model(model)
        on_device.opt.warn_overflow = 0  # kernels would print; `overflow` is read instead
        return on_device, self._data(model, num_worlds)

    def _tell_memory(self, model: mujoco.MjModel, num_worlds: int, device: Any) -> None:
        """Log what the worlds will take; on a GPU refuse those that have no room."""
        taken = self.memory(model, num_worlds)
        _logger.info("%d worlds of MuJoCo Warp: %.0f MB on %s", num_worlds, taken / 1e6, device)
        needed = _STEP_FACTOR * taken
        if device.is_cuda:
            torch.cuda.empty_cache()  # PyTorch keeps what an earlier run in this process had
        if device.is_cuda and needed > device.free_memory:
            raise ConfigError(
                f"{num_worlds} worlds of MuJoCo Warp take {needed / 1e6:,.0f} MB, but only "
                f"{device.free_memory / 1e6:,.0f} MB are free on {device}; lower num_envs or "
                f"robot.contacts ({self.contacts})"
            )

    def _data(self, model: mujoco.MjModel, num_worlds: int) -> Any:
        return mjw.make_data(
            model, nworld=num_worlds, nconmax=self.contacts, njmax=self.constraints
        )

    def error(self, bits: int, worlds: Sequence[int]) -> LimitError | None:
        """Error that names what did not fit; None where more memory is no remedy.

        What else ran over is told in the log: those worlds are at fault.
        """
        if others := _names(bits & SERIOUS & ~int(_MEMORY)):
            _logger.warning(
                "MuJoCo Warp left something out in %d env(s), which were reset: %s; "
                "robot.contacts does not change it", len(worlds), ", ".join(others),
            )  # fmt: skip
        bits &= int(_MEMORY)
        if not bits:
            return None
        shown = ", ".join(map(str, worlds[:5])) + (", ..." if len(worlds) > 5 else "")
        where = "among all envs" if bits & _SHARED else f"in {len(worlds)} env(s) ({shown})"
        return LimitError(
            f"{where} MuJoCo Warp left out what did not fit into its "
            f"memory ({', '.join(_names(bits))}): there is room for {self.contacts} contacts and "
            f"{self.constraints} constraint rows per env; set robot.contacts="
            f"{2 * self.contacts} or more"
        )


@contextmanager
def _clear_refusal() -> Iterator[None]:
    try:
        yield
    except NotImplementedError as error:
        raise ConfigError(
            f"MuJoCo Warp cannot simulate the model ({error}); use robot.engine=batch"
        ) from error


def _names(bits: int) -> list[str]:
    return [bit.name for bit in mjw.OverflowType
            if bit & bits and bit.name and bit.name != "ALL"]  # fmt: skip


def _size(part: Any) -> int:
    """Bytes of all arrays in a structure of MuJoCo Warp."""
    values = [getattr(part, each.name) for each in fields(part)]
    arrays = [value for value in values if isinstance(value, wp.array)]
    inner = [value for value in values if is_dataclass(value)]
    return sum(array.size * wp.types.type_size_in_bytes(array.dtype) for array in arrays) + sum(
        map(_size, inner)
    )
