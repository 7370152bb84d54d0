"""Simulated sensors: what lies between what is true and what a robot measures.

One control period after another: a sensor whose time has come takes a sample of the truth, with its
bias and noise, in steps of its resolution. The sample may be lost; then the one before stays. What
was taken is seen later, in whole control periods: a latency, drawn anew for every look where it
jitters, is rounded to the nearest. No sensor goes back in time: whatever would arrive after a newer
sample is not seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot import SensorSpec


class SimulatedSensors:
    """Measures N worlds once per control period.

    `extra_latency` and the factors scale what the sensors declare, world by world, from the next
    reset on. After a reset all samples in flight are of the new episode's start.
    """

    def __init__(
        self,
        sensors: Mapping[str, SensorSpec],
        widths: Mapping[str, int],
        *,
        attitudes: Mapping[str, Sequence[int]],
        num_worlds: int,
        control_dt: float,
        longest_extra_latency: float,
        largest_jitter_factor: float,
        device: torch.device,
        seed: int,
    ) -> None:
        """Allocate samples of zeros.

        Args:
            widths: Number of entries of each; columns lie in this order.
            attitudes: First entries of the unit quaternions in a sensor, by its name. They are
                turned by bias and noise about their body axes [rad], and stay of length one.
            longest_extra_latency: Largest entry of `extra_latency` [s].
            largest_jitter_factor: Largest entry of `jitter_factor`.
        """
        self._sensors = [sensors[name] for name in widths]
        self.columns: dict[str, slice] = {}
        """Columns of each sensor."""
        turned: list[int] = []
        stop = 0
        for name, width in widths.items():
            self.columns[name] = slice(stop, stop + width)
            turned += [stop + first for first in attitudes.get(name, ())]
            stop += width
        self._turned = [slice(first, first + 4) for first in turned]
        self._device, self._control_dt = device, control_dt
        longest = max((s.latency + s.jitter * largest_jitter_factor for s in self._sensors),
                      default=0.0)  # fmt: skip
        slots = round((longest + longest_extra_latency) / control_dt) + 1
        self._samples = torch.zeros(slots, num_worlds, stop, device=device)
        self._newest = 0
        self._late = slots > 1
        self.values = torch.zeros_like(self._samples[0]) if self._late else self._samples[0]
        """Present measurements, (N, W); overwritten in place."""
        self.views = {name: self.values[:, c] for name, c in self.columns.items()}
        """The same by sensor, (N, width) each."""
        ones = torch.ones(num_worlds, device=device)
        self.extra_latency = 0 * ones
        """Further latency of each world's sensors, (N,), [s]."""
        self.noise_factor, self.bias_factor, self.jitter_factor = ones, ones.clone(), ones.clone()
        """Factors on noise, on bias and its walk, and on jitter of each world's sensors, (N,)."""
        self.bias = torch.zeros_like(self.values)
        """Offset of each entry, (N, W); of an attitude the first three, as a rotation vector."""
        self._noise = self._per_column("noise", widths)
        self._deviation = self._noise.expand_as(self.values).clone()  # (N, W), of `noise_factor`
        self._bias = self._per_column("bias", widths)
        self._walk = self._per_column("bias_walk", widths) * control_dt**0.5
        self._resolution = self._per_column("resolution", widths)
        owner = [i for i, width in enumerate(widths.values()) for _ in range(width)]
        self._owner = torch.tensor(owner, dtype=torch.int64, device=device)  # (W,)
        self._latency = self._per_sensor("latency")
        self._jitter = self._per_sensor("jitter")
        self._dropout = self._per_sensor("dropout")
        self._period = (1 / (self._per_sensor("rate_hz") * control_dt)).clamp_min(1.0)
        self._noisy, self._biased = self._any("noise"), self._any("bias", "bias_walk")
        self._drifts, self._stepped = self._any("bias_walk"), self._any("resolution")
        self._slow = bool((self._period > 1 + 1e-6).any())
        self._lossy, self._jitters = self._any("dropout"), self._any("jitter")
        # Control periods since the start, exact however long a robot runs.
        self._taken = torch.zeros(num_worlds, 1, dtype=torch.int64, device=device)
        self._age = torch.zeros(num_worlds, len(self._sensors), dtype=torch.int64, device=device)
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(seed)
        self._normals = torch.zeros_like(self.values)
        self._normals.normal_(generator=self._generator)

    def measure(self, truth: Sequence[Tensor]) -> None:
        """Take a sample of all worlds.

        Args:
            truth: True values in the order of `columns`, (N, W) in one tensor or several.
        """
        if not self.columns:
            return
        if self._drifts:
            self._normals.normal_(generator=self._generator)
            self.bias += self._walk * self.bias_factor[:, None] * self._normals
        if self._noisy:
            self._normals.normal_(generator=self._generator)
        before = self._samples[self._newest]
        self._newest = (self._newest + 1) % len(self._samples)
        sample = self._samples[self._newest]
        fresh = self._fresh() if self._slow or self._lossy else None
        kept = before.clone() if fresh is not None else before
        self._spoil(_joined(truth), self._normals, self._deviation, self.bias, out=sample)
        if fresh is not None:
            sample.copy_(torch.where(fresh[:, self._owner], sample, kept))
        if self._late:
            age = self._ages()[:, self._owner]  # (N, W)
            slot = (self._newest - age) % len(self._samples)
            torch.gather(self._samples, 0, slot[None], out=self.values[None])

    def reset(self, rows: EnvSelection, truth: Sequence[Tensor]) -> None:
        """Begin the picked worlds with samples of their start and a newly drawn bias.

        Args:
            truth: As of `measure`, of all N worlds.
        """
        if not self.columns:
            return
        if self._biased:  # of all worlds: what one draws does not depend on who begins with it
            drawn = self._bias * torch.randn(
                self.bias.shape, generator=self._generator, device=self._device
            )
            rows.put(self.bias, rows.take(drawn * self.bias_factor[:, None]))
        started = rows.take(_joined(truth))  # a row of each would cost more
        sample = torch.empty_like(started)
        # The normals of the last step serve again: nobody sees both samples of a world.
        normals = rows.take(self._normals)
        deviation = self._noise * rows.take(self.noise_factor)[:, None]
        rows.put(self._deviation, deviation)
        bias = rows.take(self.bias) if self._biased else self.bias
        self._spoil(started, normals, deviation, bias, out=sample)
        for slot in self._samples:
            rows.put(slot, sample)
        if self._late:
            rows.put(self.values, sample)
        if self._slow or self._lossy:
            rows.put(self._taken, 0)
        if self._jitters:
            rows.put(self._age, 0)

    def reseed(self, seed: int) -> None:
        """Restart the stream of all that is drawn."""
        self._generator.manual_seed(seed)
        self._normals.normal_(generator=self._generator)

    def biases(self) -> dict[str, Tensor]:
        """Present offsets of the sensors that have one, (N, width) each, an attitude's (N, 3)."""
        return {
            name: self.bias[:, columns][:, :3] if columns in self._turned else self.bias[:, columns]
            for (name, columns), spec in zip(self.columns.items(), self._sensors, strict=True)
            if spec.bias > 0 or spec.bias_walk > 0
        }

    def state_dict(self) -> dict[str, Any]:
        """Samples in flight, bias and the stream of noise, copied."""
        state = {name: getattr(self, name).clone() for name in _KEPT}
        return {**state, "newest": self._newest, "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name in _KEPT:
            getattr(self, name).copy_(state[name])
        torch.mul(self._noise, self.noise_factor[:, None], out=self._deviation)
        self._newest = int(state["newest"])
        self._generator.set_state(state["generator"])

    def _spoil(
        self, truth: Tensor, normals: Tensor, deviation: Tensor, bias: Tensor, *, out: Tensor
    ) -> None:
        """Add bias and noise to true values (count, W), written to `out`."""
        if self._noisy or self._biased:
            error = deviation * normals
            if self._biased:
                error += bias
            turned = [
                quaternion.multiply(
                    truth[:, columns],
                    quaternion.from_rotation_vector(error[:, columns.start : columns.start + 3]),
                )
                for columns in self._turned
            ]
            torch.add(truth, error, out=out)
            for columns, attitude in zip(self._turned, turned, strict=True):
                out[:, columns] = attitude
        else:
            out.copy_(truth)
        if self._stepped:
            step = torch.where(self._resolution > 0, self._resolution, 1.0)
            rounded = (out / step).round() * step
            out.copy_(torch.where(self._resolution > 0, rounded, out))
            for columns in self._turned:  # attitudes stay of length one
                attitude = out[:, columns]
                attitude /= attitude.norm(dim=-1, keepdim=True).clamp_min(1e-6)

    def _fresh(self) -> Tensor:
        """Sensors whose new sample arrives, (N, S) bool."""
        self._taken += 1
        # A little early: a whole number of periods must not fall short by a rounding.
        taken = self._taken.double()
        due = ((taken + 1e-3) / self._period).floor()
        fresh = due > ((taken - 1 + 1e-3) / self._period).floor()
        if self._lossy:
            unit = torch.rand(fresh.shape, generator=self._generator, device=self._device)
            fresh &= unit >= self._dropout
        return fresh

    def _ages(self) -> Tensor:
        """Age of what each sensor shows, (N, S), [control periods]."""
        latency = self._latency + self.extra_latency[:, None]
        if self._jitters:
            unit = torch.rand(self._age.shape, generator=self._generator, device=self._device)
            latency = latency + self._jitter * self.jitter_factor[:, None] * (2 * unit - 1)
        age = (latency / self._control_dt).round().long().clamp(0, len(self._samples) - 1)
        if self._jitters:
            torch.minimum(age, self._age + 1, out=self._age)
            return self._age
        return age

    def _any(self, *names: str) -> bool:
        return any(getattr(sensor, name) > 0 for sensor in self._sensors for name in names)

    def _per_sensor(self, name: str) -> Tensor:
        return torch.tensor([getattr(s, name) for s in self._sensors], device=self._device)

    def _per_column(self, name: str, widths: Mapping[str, int]) -> Tensor:
        each = zip(self._sensors, widths.values(), strict=True)
        values = [getattr(s, name) for s, width in each for _ in range(width)]
        return torch.tensor(values, device=self._device)


def _joined(truth: Sequence[Tensor]) -> Tensor:
    return truth[0] if len(truth) == 1 else torch.cat(list(truth), dim=-1)


_KEPT = ("values", "extra_latency", "noise_factor", "bias_factor", "jitter_factor", "bias",
         "_samples", "_taken", "_age", "_normals")  # fmt: skip
"""Tensors that decide what is measured next."""
