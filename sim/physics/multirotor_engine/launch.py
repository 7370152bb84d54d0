"""The multirotor kernels bound to one engine's memory: packed once, then launched with little cost.

Torch owns all memory; Warp reads and writes it in place. On CUDA, launches go to the stream that
torch works on, so that the writes of both happen in program order.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import DeviceError, ShapeError
from sim.physics import warp_start
from sim.physics.multirotor_engine import kernel as multirotor_kernel
from sim.physics.multirotor_engine.kernel import CPU_LANES, settle_kernel, step_kernel
from sim.physics.multirotor_engine.model import NOISE_WIDTH
from sim.physics.warp_start import wp


class MultirotorLaunches:
    """The step and settle kernels with their arguments; checks and hands over the inputs."""

    def __init__(
        self,
        rows: Sequence[Tensor],
        fault: Tensor,
        *,
        num_worlds: int,
        physics_dt: float,
        decimation: int,
    ) -> None:
        """Pack all arguments; inputs change at every call.

        Args:
            rows: State, params, setpoint ring, measured ring and measured, (..., P) each, where P
                is `padded_worlds(N)`.
            fault: (P,) bool.
            num_worlds: N.
            physics_dt: Length of one integration step [s].
            decimation: Integration steps in one control step.
        """
        self._device = fault.device
        self._num_worlds = num_worlds
        self._lanes = lanes = _lanes(self._device)
        padded = len(fault)
        self._setpoint = torch.zeros(padded, 4, device=self._device)
        self._noise = torch.zeros(padded, NOISE_WIDTH, device=self._device)
        mask = torch.zeros(num_worlds, dtype=torch.bool, device=self._device)

        inputs = [self._setpoint, self._noise]
        self._step = self._record(
            step_kernel(lanes),
            math.ceil(num_worlds / lanes),
            # One vector holds a whole block of worlds, and their inputs row after row.
            [_vectors(i.view(-1, lanes * i.shape[1]), lanes * i.shape[1]) for i in inputs]
            + [False, 0, 0, physics_dt, decimation]
            + [_vectors(tensor, lanes) for tensor in rows]
            + [_vectors(fault.view(torch.uint8).view(-1, lanes), lanes)],
        )
        self._settle = self._record(
            settle_kernel,
            num_worlds,
            [wp.from_torch(i) for i in inputs]
            + [False, wp.from_torch(mask)]
            + [wp.from_torch(tensor) for tensor in rows],
        )

    def step(
        self, setpoint: Tensor, noise: Tensor | None, setpoint_slot: int, measured_slot: int
    ) -> None:
        """Run one control step; the slots are where this step's ring entries go."""
        self._hand_over(self._step, setpoint, noise)
        self._step.set_param_at_index_from_ctype(3, setpoint_slot)
        self._step.set_param_at_index_from_ctype(4, measured_slot)
        self._run(self._step)

    def settle(self, mask: Tensor, setpoint: Tensor, noise: Tensor | None) -> None:
        """Settle the masked worlds."""
        if mask.shape != (self._num_worlds,) or mask.dtype != torch.bool:
            raise ShapeError(
                f"mask is {tuple(mask.shape)} {mask.dtype}; expected ({self._num_worlds},) bool"
            )
        self._hand_over(self._settle, setpoint, noise)
        self._settle.set_param_at_index(3, wp.from_torch(mask))
        self._run(self._settle)

    def _record(self, kernel: Any, tasks: int, inputs: Sequence[Any]) -> wp.Launch:
        device = wp.device_from_torch(self._device)
        launch = wp.launch(kernel, tasks, inputs=inputs, device=device, record_cmd=True)
        assert isinstance(launch, wp.Launch)
        return launch

    def _hand_over(self, launch: wp.Launch, setpoint: Tensor, noise: Tensor | None) -> None:
        """Point the first arguments of a launch (its bounds stand before them) at the inputs."""
        launch.params[1].data = self._address("setpoint", setpoint, self._setpoint)
        if noise is not None:
            launch.params[2].data = self._address("noise", noise, self._noise)
        launch.set_param_at_index_from_ctype(2, noise is not None)

    def _address(self, name: str, tensor: Tensor, copy: Tensor) -> int:
        """Address of whole blocks of contiguous rows: the caller's own, or those of a copy."""
        expected = (self._num_worlds, copy.shape[1])
        if tensor.shape != expected or tensor.dtype != torch.float32:
            raise ShapeError(
                f"{name} is {tuple(tensor.shape)} {tensor.dtype}; expected {expected} float32"
            )
        if tensor.device != self._device:
            raise ShapeError(f"{name} is on {tensor.device}; the engine is on {self._device}")
        if self._num_worlds % self._lanes == 0 and tensor.is_contiguous():
            return tensor.data_ptr()
        copy[: self._num_worlds].copy_(tensor)
        return copy.data_ptr()

    def _run(self, launch: wp.Launch) -> None:
        if self._device.type == "cuda":
            launch.launch(stream=wp.stream_from_torch(torch.cuda.current_stream(self._device)))
        else:
            launch.launch()


def compile_kernels(device: torch.device | str) -> None:
    """Compile and load the kernels, or find them in Warp's cache (`WARP_CACHE_PATH` moves it)."""
    device = checked_device(device)
    warp_start.start()
    target = wp.device_from_torch(device)
    wp.load_module(multirotor_kernel, device=target)
    wp.load_module(step_kernel(_lanes(device)).module, device=target)


def checked_device(device: torch.device | str) -> torch.device:
    """The device as tensors name it ("cuda" becomes "cuda:0"), or a DeviceError."""
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device '{device}' was asked for; multirotors run on 'cpu' and 'cuda'")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device '{device}' was asked for; this machine offers 'cpu' only")
    return torch.empty(0, device=device).device


def padded_worlds(num_worlds: int, device: torch.device) -> int:
    """Worlds to allocate: whole blocks, and room between the rows of a world."""
    lanes = _lanes(device)
    blocks = math.ceil(num_worlds / lanes)
    # A power of two would put all rows of a world into the same few cache sets.
    return lanes * (blocks | 1)


def _lanes(device: torch.device) -> int:
    return CPU_LANES if device.type == "cpu" else 1


def _vectors(tensor: Tensor, width: int) -> wp.array:
    """The same memory with the last axis cut into vectors of `width` words."""
    dtype = wp.types.vector(length=width, dtype=wp.dtype_from_torch(tensor.dtype))
    return wp.from_torch(tensor.view(*tensor.shape[:-1], -1, width), dtype=dtype)
