"""Thousands of multirotors stepped together by one Warp kernel, on CPU or CUDA.

    engine = MultirotorEngine(4096, physics_dt=0.01)
    engine.params[:] = model.row()
    engine.state[mask] = start
    engine.settle(mask, setpoint, noise)
    engine.step(setpoint, noise)  # engine.state, engine.measured

Equations are in `multirotor_kernel.py`, columns in `multirotor_model.py`. Envs feel nothing of each
other. Torch owns all memory; Warp reads and writes it in place. On CUDA, launches go to the stream
that torch works on, so that the writes of both happen in program order.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import DeviceError, ShapeError, SpecMismatchError
from sim.physics import multirotor_kernel, warp_start
from sim.physics.multirotor_kernel import CPU_LANES, settle_kernel, step_kernel
from sim.physics.multirotor_model import (
    MEASURED_WIDTH,
    NOISE_WIDTH,
    ORIENTATION,
    PARAM_COLUMNS,
    PARAM_WIDTH,
    STATE_WIDTH,
)
from sim.physics.warp_start import wp

__all__ = ["MultirotorEngine", "compile_kernels"]


class MultirotorEngine:
    """N independent multirotors: true state, plant parameters, delayed and noisy measurement.

    `state`, `params`, `measured` and `fault` are live views of the engine's memory: write into
    them, do not replace them. A world whose state would become non-finite, or that turns by more
    than a radian in an integration step, which the integrator no longer follows, keeps its last
    state and raises its flag in `fault`, which stays up until the caller lowers it.
    """

    def __init__(
        self,
        num_worlds: int,
        *,
        physics_dt: float,
        decimation: int = 1,
        max_action_delay: float = 0,
        max_latency: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate worlds at rest at the origin: weightless unit plants until `params` is written.

        Args:
            physics_dt: Length of one integration step [s].
            decimation: Integration steps in one control step.
            max_action_delay: Longest delay from setpoint to rotors [physics steps]; a larger one in
                `params` acts as this one. In a step in which a setpoint gives way to the next, the
                rotors follow the mean of both over the step.
            max_latency: Oldest measurement [control steps]; likewise.
            device: "cpu" or a CUDA device.

        Raises:
            DeviceError: This machine lacks the device.
        """
        self.num_worlds = num_worlds
        self.physics_dt = physics_dt
        self.decimation = decimation
        self.device = checked_device(device)
        compile_kernels(self.device)

        self._lanes = lanes = _lanes(self.device)
        # Whole blocks of worlds, and room between the rows of a world: a power of two would put
        # all of them into the same few cache sets.
        self._padded = lanes * (math.ceil(num_worlds / lanes) | 1)
        # A setpoint holds for a control step, so its ring counts control steps.
        setpoints = 1 + math.ceil(max_action_delay / decimation)
        self._state = self._zeros(STATE_WIDTH)
        self._params = self._zeros(PARAM_WIDTH)
        self._setpoint_ring = self._zeros(setpoints, 4)
        self._measured_ring = self._zeros(1 + max_latency, MEASURED_WIDTH)
        self._measured = self._zeros(MEASURED_WIDTH)
        self._fault = torch.zeros(self._padded, dtype=torch.bool, device=self.device)
        for attitude in (self._state, self._measured, self._measured_ring):
            attitude[..., ORIENTATION.start, :] = 1.0
        for name in ("mass", "inertia", "rotor_rise_time", "rotor_fall_time"):
            self._params[PARAM_COLUMNS[name]] = 1.0
        self._steps = 0
        self._setpoint = torch.zeros(self._padded, 4, device=self.device)
        self._noise = torch.zeros(self._padded, NOISE_WIDTH, device=self.device)
        self.control_dt = physics_dt * decimation
        """Time that one `step` simulates [s]."""
        self.state = self._state[:, :num_worlds].T
        """True state, (N, 17): position, orientation, velocity, body rates, rotor speeds."""
        self.params = self._params[:, :num_worlds].T
        """Plant of each world, (N, PARAM_WIDTH); columns by name in `PARAM_COLUMNS`."""
        self.measured = self._measured[:, :num_worlds].T
        """Position, orientation, velocity and body rates as sensed, (N, 13)."""
        self.fault = self._fault[:num_worlds]
        """Worlds that would have become non-finite, (N,) bool; lowered by the caller only."""
        self._record_launches()

    def step(self, setpoint: Tensor, noise: Tensor | None) -> None:
        """Simulate one control step and measure. One kernel launch, no synchronisation.

        Args:
            setpoint: Wanted rotor speeds, (N, 4), in [0, 1], held for the control step.
            noise: Standard normals of the measurement, (N, 12); None measures without noise.
        """
        self._steps += 1
        launch = self._step
        self._hand_over(launch, setpoint, noise)
        # Where this step's entries go in the rings.
        launch.set_param_at_index_from_ctype(3, self._steps % len(self._setpoint_ring))
        launch.set_param_at_index_from_ctype(4, self._steps % len(self._measured_ring))
        self._run(launch)

    def settle(self, mask: Tensor, setpoint: Tensor, noise: Tensor | None) -> None:
        """Forget the past of some worlds, after the caller wrote their `state` or `params`.

        Delayed setpoints become `setpoint`, late measurements the present state, and `measured` is
        taken anew. Worlds outside the mask keep every bit.

        Args:
            mask: Worlds to settle, (N,) bool.
            setpoint: Rotor speeds as if commanded for ever before, (N, 4), in [0, 1].
            noise: Standard normals of the measurement, (N, 12); None measures without noise.
        """
        self._hand_over(self._settle, setpoint, noise)
        self._settle.set_param_at_index(3, wp.from_torch(mask))
        self._run(self._settle)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that decides the future; `load_state_dict` continues bit-equal."""
        steps = torch.tensor(self._steps)
        return {"steps": steps} | {name: view.clone() for name, view in self._views().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state_dict` of an engine with as many worlds and equal largest delays."""
        views = self._views()
        for name, view in views.items():
            got = tuple(state[name].shape) if name in state else None
            if got != view.shape:
                raise SpecMismatchError(
                    f"saved multirotor '{name}' has shape {got}, this engine needs "
                    f"{tuple(view.shape)}; build it with the worlds and delays of the saved one"
                )
        for name, view in views.items():
            view.copy_(state[name])
        self._steps = int(state["steps"])

    def _views(self) -> dict[str, Tensor]:
        return {
            "state": self.state,
            "params": self.params,
            "measured": self.measured,
            "fault": self.fault,
            "setpoint_ring": self._setpoint_ring[..., : self.num_worlds],
            "measured_ring": self._measured_ring[..., : self.num_worlds],
        }

    def _zeros(self, *rows: int) -> Tensor:
        """Rows of one number per world: neighbouring worlds are neighbouring words."""
        return torch.zeros(*rows, self._padded, device=self.device)

    def _record_launches(self) -> None:
        """Pack all arguments of the step and settle kernels; inputs change at every call."""
        lanes, mask = self._lanes, torch.zeros(self.num_worlds, dtype=torch.bool).to(self.device)
        inputs = [self._setpoint, self._noise]
        rows = [self._state, self._params, self._setpoint_ring, self._measured_ring, self._measured]
        fault = self._fault.view(torch.uint8).view(-1, lanes)
        self._step = self._record(
            step_kernel(lanes),
            math.ceil(self.num_worlds / lanes),
            # One vector holds a whole block of worlds, and their inputs row after row.
            [_vectors(i.view(-1, lanes * i.shape[1]), lanes * i.shape[1]) for i in inputs]
            + [False, 0, 0, self.physics_dt, self.decimation]
            + [_vectors(tensor, lanes) for tensor in rows]
            + [_vectors(fault, lanes)],
        )
        self._settle = self._record(
            settle_kernel,
            self.num_worlds,
            [wp.from_torch(i) for i in inputs]
            + [False, wp.from_torch(mask)]
            + [wp.from_torch(tensor) for tensor in rows],
        )

    def _record(self, kernel: Any, tasks: int, inputs: Sequence[Any]) -> wp.Launch:
        device = wp.device_from_torch(self.device)
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
        expected = (self.num_worlds, copy.shape[1])
        if tensor.shape != expected or tensor.dtype != torch.float32:
            raise ShapeError(
                f"{name} is {tuple(tensor.shape)} {tensor.dtype}; expected {expected} float32"
            )
        if tensor.device != self.device:
            raise ShapeError(f"{name} is on {tensor.device}; the engine is on {self.device}")
        if self.num_worlds % self._lanes == 0 and tensor.is_contiguous():
            return tensor.data_ptr()
        copy[: self.num_worlds].copy_(tensor)
        return copy.data_ptr()

    def _run(self, launch: wp.Launch) -> None:
        if self.device.type == "cuda":
            launch.launch(stream=wp.stream_from_torch(torch.cuda.current_stream(self.device)))
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


def _lanes(device: torch.device) -> int:
    return CPU_LANES if device.type == "cpu" else 1


def _vectors(tensor: Tensor, width: int) -> wp.array:
    """The same memory with the last axis cut into vectors of `width` words."""
    dtype = wp.types.vector(length=width, dtype=wp.dtype_from_torch(tensor.dtype))
    return wp.from_torch(tensor.view(*tensor.shape[:-1], -1, width), dtype=dtype)
