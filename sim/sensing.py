"""Simulated sensors: white noise and latency between what is true and what a robot measures."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_parts import SensorSpec
from robot_rl.core.rows import Rows


class DelayedSensors:
    """Measures N worlds once per control period.

    A sample gets its noise when it is taken and is seen `latency` later, in whole control periods;
    `delay` adds to the latency of a world's sensors and `noise_factor` scales their noise. After a
    reset all samples in flight are of the new episode's start.
    """

    def __init__(
        self,
        sensors: Mapping[str, SensorSpec],
        widths: Mapping[str, int],
        *,
        owner: str,
        num_worlds: int,
        control_dt: float,
        max_delay: int,
        device: torch.device,
        seed: int,
    ) -> None:
        """Allocate samples of zeros.

        Args:
            sensors: How each is measured, by name.
            widths: Number of entries of each; columns lie in this order.
            owner: Who declares them, for errors.
            num_worlds: N.
            control_dt: Time between two measurements [s].
            max_delay: Largest entry of `delay` [control periods].
            device: Where the worlds live.
            seed: Seed of the noise.

        Raises:
            ConfigError: A sensor is slower than the control loop, which is not simulated.
        """
        noise: list[float] = []
        latency: list[int] = []
        self.columns: dict[str, slice] = {}
        """Columns of each sensor."""
        for name, width in widths.items():
            sensor = sensors[name]
            if sensor.rate_hz * control_dt < 1 - 1e-6:
                raise ConfigError(
                    f"{owner}: sensor '{name}' has a rate of {sensor.rate_hz:g} Hz, "
                    f"below that of the control loop, {1 / control_dt:g} Hz; such a sensor is not "
                    "simulated: raise rate_hz or control more slowly"
                )
            self.columns[name] = slice(len(noise), len(noise) + width)
            noise += [sensor.noise] * width
            latency += [round(sensor.latency / control_dt)] * width
        self.values = torch.zeros(num_worlds, len(noise), device=device)
        """What is measured now, (N, W); overwritten in place."""
        self.views = {name: self.values[:, c] for name, c in self.columns.items()}
        """The same by sensor, (N, width) each."""
        self.delay = torch.zeros(num_worlds, dtype=torch.int64, device=device)
        """Further latency of each world's sensors, (N,), [control periods]."""
        self.noise_factor = torch.ones(num_worlds, device=device)
        """Factor on the noise of each world's sensors, (N,)."""
        self._noise = torch.tensor(noise, device=device)
        self._latency = torch.tensor(latency, device=device)
        self._noisy, self._late = any(noise), max(latency, default=0) + max_delay > 0
        slots = max(latency, default=0) + max_delay + 1
        self._samples = torch.zeros(slots, *self.values.shape, device=device)
        self._newest = 0
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(seed)
        self._normals = torch.zeros_like(self.values)
        self._normals.normal_(generator=self._generator)

    def measure(self, truth: Sequence[Tensor]) -> None:
        """Take a sample of all worlds.

        Args:
            truth: True value of every sensor in the order of `columns`, each (N, width).
        """
        if not self.columns:
            return
        if self._noisy:
            self._normals.normal_(generator=self._generator)
        self._newest = (self._newest + 1) % len(self._samples)
        sample = self._samples[self._newest]
        for columns, value in zip(self.columns.values(), truth, strict=True):
            sample[:, columns] = value
        if self._noisy:
            sample += self._noise * self.noise_factor[:, None] * self._normals
        if self._late:
            age = self._latency + self.delay[:, None]  # (N, W)
            slot = (self._newest - age) % len(self._samples)
            torch.gather(self._samples, 0, slot[None], out=self.values[None])
        else:
            self.values.copy_(sample)

    def reset(self, rows: Rows, truth: Sequence[Tensor]) -> None:
        """Begin the picked worlds with samples of their start.

        Args:
            rows: Worlds that begin.
            truth: As of `measure`, of all N worlds.
        """
        if not self.columns:
            return
        sample = torch.cat([rows.take(value) for value in truth], dim=-1).to(self.values.dtype)
        # The normals of the last step serve again: nobody sees both samples of a world.
        scale = self._noise * rows.take(self.noise_factor)[:, None]
        sample += scale * rows.take(self._normals)
        for slot in self._samples:
            rows.put(slot, sample)
        rows.put(self.values, sample)

    def reseed(self, seed: int) -> None:
        """Restart the stream of noise."""
        self._generator.manual_seed(seed)
        self._normals.normal_(generator=self._generator)

    def state_dict(self) -> dict[str, Any]:
        """Samples in flight and the stream of noise, copied."""
        return {
            "values": self.values.clone(),
            "samples": self._samples.clone(),
            "newest": self._newest,
            "delay": self.delay.clone(),
            "noise_factor": self.noise_factor.clone(),
            "normals": self._normals.clone(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.values.copy_(state["values"])
        self._samples.copy_(state["samples"])
        self._newest = int(state["newest"])
        self.delay.copy_(state["delay"])
        self.noise_factor.copy_(state["noise_factor"])
        self._normals.copy_(state["normals"])
        self._generator.set_state(state["generator"])
