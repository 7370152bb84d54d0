"""Thousands of multirotors stepped together by one Warp kernel, on CPU or CUDA.

    engine = MultirotorEngine(4096, physics_dt=0.01)
    engine.params[:] = model.row()
    engine.state[mask] = start
    engine.settle(mask, setpoint, noise)
    engine.step(setpoint, noise)  # engine.state, engine.measured

The equations are in `dynamics.py`, the columns in `model.py`. Worlds feel nothing
of each other.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.physics.multirotor_engine.launch import (
    MultirotorLaunches,
    checked_device,
    compile_kernels,
    padded_worlds,
)
from sim.physics.multirotor_engine.model import (
    MEASURED_WIDTH,
    ORIENTATION,
    PARAM_COLUMNS,
    PARAM_WIDTH,
    STATE_WIDTH,
)

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
        self.device = checked_device(device)
        compile_kernels(self.device)

        self._padded = padded_worlds(num_worlds, self.device)
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
        self._launches = MultirotorLaunches(
            (self._state, self._params, self._setpoint_ring, self._measured_ring, self._measured),
            self._fault,
            num_worlds=num_worlds,
            physics_dt=physics_dt,
            decimation=decimation,
        )

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
        self._launches.step(
            setpoint,
            noise,
            self._steps % len(self._setpoint_ring),
            self._steps % len(self._measured_ring),
        )

    def settle(self, mask: Tensor, setpoint: Tensor, noise: Tensor | None) -> None:
        """Forget the past of some worlds, after the caller wrote their `state` or `params`.

        Delayed setpoints become `setpoint`, late measurements the present state, and `measured` is
        taken anew. Worlds outside the mask keep every bit.

        Args:
            mask: Worlds to settle, (N,) bool.
            setpoint: Rotor speeds as if commanded for ever before, (N, 4), in [0, 1].
            noise: Standard normals of the measurement, (N, 12); None measures without noise.
        """
        self._launches.settle(mask, setpoint, noise)

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
