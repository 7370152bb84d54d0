"""Work that MuJoCo Warp does in a step or a reset, captured as graphs, with our own kernels.

A control period ends with the first half of a MuJoCo step (`step1`: positions and velocities), so
that sensors tell of the present, and begins with it again, because anybody may have written into
the state meanwhile. A graph holds addresses: no array is replaced after it was captured, or
`forget` is called.
"""

# Warp compiles these functions: their arguments are arrays of the device, not what pyright sees.
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportArgumentType=false

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from sim.physics.fault_record import STATE
from sim.physics.warp_memory import SERIOUS, Room, mjw
from sim.physics.warp_start import Graphs, wp

LARGEST = wp.constant(1e10)
"""Positions, velocities and accelerations beyond this are given up, as by MuJoCo (mjMAXVAL)."""


@wp.func
def broken(values: wp.array2d[float], world: int) -> int:
    """Count the entries of a row that are too large or not finite."""
    count = wp.int32(0)
    for i in range(values.shape[1]):
        if not wp.abs(values[world, i]) <= LARGEST:
            count += 1
    return count


@wp.kernel
def find_faults(
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    qacc: wp.array2d[float],
    overflow: wp.array[int],
    serious: int,
    bad: wp.array[bool],
    fault: wp.array[bool],
    overflowed: wp.array[int],
) -> None:
    """Tell worlds that ran away (`bad`), and all that mean nothing any more (`fault`)."""
    world = wp.tid()
    gone = broken(qpos, world) + broken(qvel, world) + broken(qacc, world)
    bits = overflow[world] & serious
    overflow[world] = 0
    overflowed[world] = overflowed[world] | bits
    bad[world] = gone > 0
    if gone > 0 or bits != 0:
        fault[world] = True


@wp.kernel
def present(
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    sensordata: wp.array2d[float],
    felt: wp.array2d[float],
    is_felt: wp.array[bool],
    force: wp.array2d[float],
    picked: wp.array[bool],
    beginning: bool,
    motion_out: wp.array2d[float],
    sensordata_out: wp.array2d[float],
    force_out: wp.array2d[float],
) -> None:
    """Lay out what callers read.

    In a step `picked` worlds have just been put back: they feel nothing. At a beginning only they
    feel anew, and the others keep what they felt.
    """
    world = wp.tid()
    nq = qpos.shape[1]
    for i in range(nq):
        motion_out[world, i] = qpos[world, i]
    for i in range(qvel.shape[1]):
        motion_out[world, nq + i] = qvel[world, i]
    feels = picked[world] == beginning
    for i in range(sensordata.shape[1]):
        if not is_felt[i]:
            sensordata_out[world, i] = sensordata[world, i]
        elif feels:
            sensordata_out[world, i] = felt[world, i]
        elif not beginning:
            sensordata_out[world, i] = 0.0
    for i in range(force.shape[1]):
        if feels:
            force_out[world, i] = force[world, i]
        elif not beginning:
            force_out[world, i] = 0.0


_FORCES = mujoco.mjtStage.mjSTAGE_ACC.value


class Programs:
    """N worlds on a device, and what can be done with all of them at once."""

    def __init__(
        self, model: mujoco.MjModel, num_worlds: int, decimation: int, device: torch.device,
        room: Room,
    ) -> None:  # fmt: skip
        """Make worlds in the model's reference pose."""
        self._graphs = Graphs(device)
        self._num_worlds, self._decimation = num_worlds, decimation
        with wp.ScopedDevice(self._graphs.device):
            self.model, self.data = room.make(model, num_worlds)

        def zeros(width: int) -> Tensor:
            return torch.zeros(num_worlds, width, device=device)

        def flags() -> Tensor:
            return torch.zeros(num_worlds, dtype=torch.bool, device=device)

        self.motion = zeros(model.nq + model.nv)
        """Positions and velocities side by side, (N, nq + nv)."""
        self.sensordata = zeros(model.nsensordata)
        """All sensors, (N, columns)."""
        self.actuator_force = zeros(model.nu)
        """Of the last substep, (N, nu)."""
        self.before = zeros(mujoco.mj_stateSize(model, STATE.value))
        """State before the last step, (N, size), on the CPU, where looking at it is free."""
        self.ramp = torch.zeros(decimation, num_worlds, model.nu, device=device)
        """Controls of every substep, (decimation, N, nu)."""
        self.chosen, self.bad, self.fault = flags(), flags(), flags()
        """Worlds that begin anew; those that ran away in the last step; those that mean nothing
        since some step, (N,) bool each."""
        self.overflow = torch.zeros(num_worlds, dtype=torch.int32, device=device)
        """Bits of what did not fit into memory, (N,), sticky."""
        self._force, self._felt = zeros(model.nu), zeros(model.nsensordata)
        felt = np.zeros(model.nsensordata, dtype=bool)
        parts = zip(model.sensor_adr, model.sensor_dim, model.sensor_needstage, strict=True)
        for start, width, stage in parts:
            felt[start : start + width] = stage == _FORCES
        self._is_felt = torch.from_numpy(felt).to(device)

    def step(self, *, ramps: bool) -> None:
        """Simulate a control period, with the controls of `ramp` or those that stand."""
        self._graphs.run("ramp" if ramps else "step", lambda: self._step(ramps=ramps))

    def clear(self) -> None:
        """Put the chosen worlds back to the reference pose; nothing of their past remains."""
        self._graphs.run(
            "clear", lambda: mjw.reset_data(self.model, self.data, reset=warp(self.chosen))
        )

    def begin(self) -> None:
        """Compute what the chosen worlds feel; the others stand as they did."""
        self._graphs.run("begin", self._begin)

    def forget(self) -> None:
        """Drop the graphs: an array that they know was replaced."""
        self._graphs.forget()

    def state(self) -> Tensor:
        """State of all worlds, (N, size), a new tensor."""
        state = torch.zeros_like(self.before)
        with self._graphs.in_order():
            mjw.get_state(self.model, self.data, warp(state), STATE.value)
        return state

    def restore(self, state: Tensor) -> None:
        """Put all worlds into a `state`."""
        with self._graphs.in_order():
            mjw.set_state(self.model, self.data, warp(state), STATE.value)
            self.data.overflow.zero_()
            self.overflow.zero_()

    def derive_constants(self) -> None:
        """Recompute what the model derives from masses and inertias."""
        with self._graphs.in_order():
            mjw.set_const(self.model, self.data)

    def _step(self, *, ramps: bool) -> None:
        m, d = self.model, self.data
        if not self._graphs.device.is_cuda:
            mjw.get_state(m, d, warp(self.before), STATE.value)
        for k in range(self._decimation):
            if ramps:
                wp.copy(d.ctrl, warp(self.ramp[k]))
            mjw.step1(m, d)
            mjw.step2(m, d)
        wp.copy(warp(self._felt), d.sensordata)
        self._look_for_faults()
        mjw.step1(m, d)
        self._present(d.actuator_force, self.bad, beginning=False)

    def _begin(self) -> None:
        m, d = self.model, self.data
        mjw.forward(m, d)
        wp.copy(warp(self._felt), d.sensordata)
        wp.copy(warp(self._force), d.actuator_force)
        mjw.step1(m, d)
        self._present(warp(self._force), self.chosen, beginning=True)

    def _look_for_faults(self) -> None:
        d = self.data
        self._launch(
            find_faults,
            d.qpos, d.qvel, d.qacc, d.overflow, SERIOUS, warp(self.bad),
            warp(self.fault), warp(self.overflow),
        )  # fmt: skip
        mjw.reset_data(self.model, d, reset=warp(self.bad))

    def _present(self, force: Any, picked: Tensor, *, beginning: bool) -> None:
        d = self.data
        self._launch(
            present,
            d.qpos, d.qvel, d.sensordata, warp(self._felt), warp(self._is_felt), force,
            warp(picked), beginning, warp(self.motion), warp(self.sensordata),
            warp(self.actuator_force),
        )  # fmt: skip

    def _launch(self, kernel: Any, *inputs: Any) -> None:
        wp.launch(kernel, dim=self._num_worlds, inputs=inputs, device=self._graphs.device)


def warp(tensor: Tensor) -> Any:
    """The same memory as Warp sees it."""
    return wp.from_torch(tensor)
