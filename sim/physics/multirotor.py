"""Thousands of multirotors stepped together by one Warp kernel, on CPU or CUDA.

    engine = MultirotorEngine(4096, physics_dt=0.01)
    engine.params[:] = model.row()
    engine.state[mask] = start
    engine.settle(mask, setpoint, noise)
    engine.step(setpoint, noise)  # engine.state, engine.measured

The equations are in `multirotor_dynamics`, the columns in `multirotor_model`. Worlds feel nothing
of each other.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, DeviceError, ShapeError, SpecMismatchError
from sim.physics import warp_start
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


class MultirotorEngine:
    """N independent multirotors: true state, plant parameters, delayed and noisy measurement.

    `state`, `params`, `measured` and `fault` are live views of the engine's memory: write into
    them, do not replace them. A world whose state would become non-finite keeps its last finite
    one and raises its flag in `fault`, which stays up until the caller lowers it.
    """

    def __init__(
        self,
        num_worlds: int,
        *,
        physics_dt: float,
        decimation: int = 1,
        max_action_delay: int = 0,
        max_latency: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate worlds at rest at the origin: weightless unit plants until `params` is written.

        Args:
            num_worlds: N.
            physics_dt: Length of one integration step [s].
            decimation: Integration steps in one control step.
            max_action_delay: Longest delay from setpoint to rotors [physics steps]; a larger one in
                `params` acts as this one.
            max_latency: Oldest measurement [control steps]; likewise.
            device: "cpu" or a CUDA device.

        Raises:
            ConfigError: A number is out of range.
            DeviceError: This machine lacks the device.
        """
        for name, value, least in (
            ("num_worlds", num_worlds, 1),
            ("decimation", decimation, 1),
            ("max_action_delay", max_action_delay, 0),
            ("max_latency", max_latency, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} is {value!r}; must be a whole number >= {least}")
        if not (math.isfinite(physics_dt) and physics_dt > 0.0):
            raise ConfigError(f"physics_dt is {physics_dt}; must be a positive time [s]")
        self.num_worlds = num_worlds
        self.physics_dt = physics_dt
        self.decimation = decimation
        self.device = _checked_device(device)
        compile_kernels(self.device)

        self._lanes = _lanes(self.device)
        blocks = math.ceil(num_worlds / self._lanes)
        # An odd number of blocks keeps the rows of a world out of the same few cache sets.
        self._padded = self._lanes * (blocks | 1)
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
        self._setpoint_copy = torch.zeros(self._padded, 4, device=self.device)
        self._noise_copy = torch.zeros(self._padded, NOISE_WIDTH, device=self.device)
        self._no_mask = torch.zeros(num_worlds, dtype=torch.bool, device=self.device)
        self._step_launch, self._settle_launch = self._record_launches()

    @property
    def control_dt(self) -> float:
        """Time that one `step` simulates [s]."""
        return self.physics_dt * self.decimation

    @property
    def state(self) -> Tensor:
        """True state, (N, 17): position, orientation, velocity, body rates, rotor speeds."""
        return self._state[:, : self.num_worlds].T

    @property
    def params(self) -> Tensor:
        """Plant of each world, (N, PARAM_WIDTH); columns by name in `PARAM_COLUMNS`."""
        return self._params[:, : self.num_worlds].T

    @property
    def measured(self) -> Tensor:
        """Position, orientation, velocity and body rates as sensed, (N, 13)."""
        return self._measured[:, : self.num_worlds].T

    @property
    def fault(self) -> Tensor:
        """Worlds that would have become non-finite, (N,) bool; lowered by the caller only."""
        return self._fault[: self.num_worlds]

    def step(self, setpoint: Tensor, noise: Tensor | None) -> None:
        """Simulate one control step and measure. One kernel launch, no synchronisation.

        Args:
            setpoint: Wanted rotor speeds, (N, 4), in [0, 1], held for the control step.
            noise: Standard normals of the measurement, (N, 12); None measures without noise.
        """
        self._steps += 1
        launch = self._step_launch
        self._hand_over(launch, setpoint, noise)
        launch.set_param_at_index_from_ctype(3, self._steps % self._setpoint_ring.shape[0])
        launch.set_param_at_index_from_ctype(4, self._steps % self._measured_ring.shape[0])
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
        if mask.shape != (self.num_worlds,) or mask.dtype != torch.bool:
            raise ShapeError(
                f"mask is {tuple(mask.shape)} {mask.dtype}; expected ({self.num_worlds},) bool"
            )
        launch = self._settle_launch
        self._hand_over(launch, setpoint, noise)
        launch.set_param_at_index(3, wp.from_torch(mask))
        self._run(launch)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that decides the future; `load_state_dict` continues bit-equal."""
        steps = torch.tensor(self._steps)
        return {"steps": steps} | {name: view.clone() for name, view in self._views().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state_dict` of an engine with as many worlds and equal largest delays."""
        for name, view in self._views().items():
            got = tuple(state[name].shape) if name in state else None
            if got != view.shape:
                raise SpecMismatchError(
                    f"saved multirotor '{name}' has shape {got}, this engine needs "
                    f"{tuple(view.shape)}; build it with the worlds and delays of the saved one"
                )
        for name, view in self._views().items():
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

    def _record_launches(self) -> tuple[wp.Launch, wp.Launch]:
        """Both launches, arguments packed; `_hand_over` changes the first three at every call."""

        def vectors(tensor: Tensor, width: int) -> wp.array:
            """The same memory as an array of vectors of `width` words."""
            dtype = wp.types.vector(length=width, dtype=wp.float32)
            return wp.from_torch(tensor.view(*tensor.shape[:-1], -1, width), dtype=dtype)

        def blocks(inputs: Tensor) -> wp.array:
            """Rows (worlds, width) as one vector per block of worlds, (blocks, 1)."""
            width = self._lanes * inputs.shape[1]
            return vectors(inputs.view(-1, width), width)

        setpoint, noise = self._setpoint_copy, self._noise_copy
        memory = (
            self._state,
            self._params,
            self._setpoint_ring,
            self._measured_ring,
            self._measured,
        )
        step_inputs = [blocks(setpoint), blocks(noise), False, 0, 0]
        step_inputs += [self.physics_dt, self.decimation]
        step_inputs += [vectors(rows, self._lanes) for rows in memory]
        step_inputs += [wp.from_torch(self._fault.view(-1, self._lanes))]
        settle_inputs = [wp.from_torch(setpoint), wp.from_torch(noise), False]
        settle_inputs += [wp.from_torch(rows) for rows in (self._no_mask, *memory)]
        device = wp.device_from_torch(self.device)
        step, tasks = step_kernel(self._lanes), math.ceil(self.num_worlds / self._lanes)
        return (
            wp.launch(step, tasks, inputs=step_inputs, device=device, record_cmd=True),
            wp.launch(
                settle_kernel, self.num_worlds, inputs=settle_inputs, device=device, record_cmd=True
            ),
        )

    def _hand_over(self, launch: wp.Launch, setpoint: Tensor, noise: Tensor | None) -> None:
        """Point the first arguments of a launch at this call's inputs."""
        # Packed arguments follow the launch bounds; writing an address is all that a call costs.
        launch.params[1].data = self._packed("setpoint", setpoint, self._setpoint_copy)
        if noise is not None:
            launch.params[2].data = self._packed("noise", noise, self._noise_copy)
        launch.set_param_at_index_from_ctype(2, noise is not None)

    def _packed(self, name: str, tensor: Tensor, copy: Tensor) -> int:
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
        """Launch on the stream that torch works on: writes of both happen in program order."""
        if self.device.type == "cuda":
            launch.launch(stream=wp.stream_from_torch(torch.cuda.current_stream(self.device)))
        else:
            launch.launch()


def compile_kernels(device: torch.device | str) -> None:
    """Compile and load the kernels, or find them in Warp's cache (`WARP_CACHE_PATH` moves it)."""
    device = _checked_device(device)
    warp_start.start()
    target = wp.device_from_torch(device)
    for kernel in (step_kernel(_lanes(device)), settle_kernel):
        wp.load_module(kernel.module, device=target)


def _lanes(device: torch.device) -> int:
    return CPU_LANES if device.type == "cpu" else 1


def _checked_device(device: torch.device | str) -> torch.device:
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device '{device}' was asked for; this machine offers 'cpu' only")
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(
            f"device '{device}' was asked for; the multirotor runs on 'cpu' or 'cuda'"
        )
    return device
