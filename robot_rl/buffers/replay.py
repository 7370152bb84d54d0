"""Replay ring: packed rows of all worlds; n-step returns and seams are decided in one place."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.buffers.row_layout import RowLayout
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import CheckpointError, ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch

_SEGMENT_BYTES = 64 << 20
"""Rows are saved in pieces of about this size: each is held in memory twice while it is written."""


class Segments(Protocol):
    """Durable storage for parts of a buffer, referred to by entries of plain values."""

    def write(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Store tensors under a name; returns the entry to read them back with."""
        ...

    def read(self, entry: Mapping[str, Any]) -> dict[str, Tensor]:
        """Tensors of an entry."""
        ...


class ReplayBuffer:
    """Ring of T steps x N worlds. Row (t, n) is followed in time by row (t + 1, n).

    The rules of episode ends live here and nowhere else:

    - a termination ends the sum and the future: discount 0;
    - a truncation ends the sum, the future counts from the true successor: discount gamma^k;
    - an invalid row, and the newest row of the ring, are seams: the sum stops before the former and
      after the latter, and the future counts from the last valid successor;
    - a row that is itself invalid gets weight 0.
    """

    def __init__(
        self,
        spec: EnvSpec,
        groups: Sequence[str],
        *,
        capacity: int,
        gamma: float,
        n_step: int = 1,
        seed: int = 0,
    ) -> None:
        """Allocate the ring on the environment's device.

        Args:
            spec: Environment whose transitions are stored.
            groups: Observation groups to store.
            capacity: Transitions kept, rounded down to whole steps of N worlds.
            gamma: Discount per step.
            n_step: Steps per sampled transition.
            seed: Seed of the sampling.
        """
        self.num_steps = capacity // spec.num_envs
        if self.num_steps < n_step or n_step < 1:
            raise ConfigError(
                f"replay: capacity {capacity} holds {self.num_steps} steps of {spec.num_envs} "
                f"worlds; n_step {n_step} needs at least {max(1, n_step)}; raise the capacity"
            )
        self.layout = RowLayout(spec, groups)
        self.gamma = gamma
        self.n_step = n_step
        self.total_steps = 0
        """Steps ever added; the newest lies in slot (total_steps - 1) mod T."""
        self._num_envs = spec.num_envs
        self._rows = torch.zeros(
            self.num_steps, spec.num_envs, self.layout.width, device=spec.device
        )
        self._stamps = torch.zeros(self.num_steps, 2, dtype=torch.int64)  # [ns], policy version
        self._weights = torch.ones(max(1, len(spec.reward_names)), device=spec.device)
        self._generator = torch.Generator(device=spec.device)
        self._generator.manual_seed(derive_seed(seed, "replay"))
        self._entries: list[dict[str, Any]] = []
        self._saved_steps = 0

    def __len__(self) -> int:
        """Transitions held."""
        return min(self.total_steps, self.num_steps) * self._num_envs

    @property
    def capacity(self) -> int:
        """Transitions that fit."""
        return self.num_steps * self._num_envs

    @property
    def num_bytes(self) -> int:
        """Memory of the ring [bytes]."""
        return self._rows.numel() * self._rows.element_size()

    def add(self, obs: Obs, step: EnvStep, *, stamp_ns: int = 0, policy_version: int = 0) -> None:
        """Store one step of N worlds; copies everything.

        Args:
            obs: What was acted on, groups (N, ...).
            step: What came of it; its reward weights apply to all stored terms from now on.
            stamp_ns: When the step was measured [ns]; 0 in simulation.
            policy_version: Which policy acted.
        """
        slot = self.total_steps % self.num_steps
        self.layout.pack(obs, step, self._rows[slot])
        self._stamps[slot, 0] = stamp_ns
        self._stamps[slot, 1] = policy_version
        if step.reward_weights is not None:
            self._weights.copy_(step.reward_weights)
        self.total_steps += 1

    def sample(self, batch_size: int) -> Batch:
        """Draw transitions uniformly, with replacement.

        Returns:
            B transitions of up to n steps; `extra` names their `index` (slot * N + world).
        """
        if self.total_steps == 0:
            raise ConfigError("replay: nothing can be sampled before the first step is added")
        held = min(self.total_steps, self.num_steps)
        # Position 0 is the oldest step held.
        drawn = torch.randint(
            held * self._num_envs,
            (batch_size,),
            generator=self._generator,
            device=self._rows.device,
        )
        if self.n_step == 1:
            index = self._slot(drawn)
            rows = self._flat.index_select(0, index)
            return self._one_step(rows, index)
        return self._n_steps(drawn, held)

    def _one_step(self, rows: Tensor, index: Tensor) -> Batch:
        part = self.layout.part
        return Batch(
            obs=self.layout.obs(rows, "obs/"),
            action=part(rows, "action"),
            reward=part(rows, "reward") @ self._weights,
            discount=self.gamma * (1 - part(rows, "terminated")[:, 0]),
            next_obs=self.layout.obs(rows, "next_obs/"),
            weight=part(rows, "valid")[:, 0],
            extra={"index": index},
        )

    def _n_steps(self, drawn: Tensor, held: int) -> Batch:
        part = self.layout.part
        first = self._flat.index_select(0, self._slot(drawn))
        last = first  # (B, W): row whose successor is bootstrapped from
        reward = part(first, "reward") @ self._weights
        discount = torch.full_like(reward, self.gamma)
        going = self._goes_on(first)
        for k in range(1, self.n_step):
            later = drawn + k * self._num_envs
            inside = later < held * self._num_envs
            rows = self._flat.index_select(0, self._slot(torch.where(inside, later, drawn)))
            going = going & inside & (part(rows, "valid")[:, 0] > 0)
            reward = reward + going * discount * (part(rows, "reward") @ self._weights)
            discount = torch.where(going, discount * self.gamma, discount)
            last = torch.where(going[:, None], rows, last)
            going = going & self._goes_on(rows)
        return Batch(
            obs=self.layout.obs(first, "obs/"),
            action=part(first, "action"),
            reward=reward,
            discount=discount * (1 - part(last, "terminated")[:, 0]),
            next_obs=self.layout.obs(last, "next_obs/"),
            weight=part(first, "valid")[:, 0],
            extra={"index": self._slot(drawn)},
        )

    def _goes_on(self, rows: Tensor) -> Tensor:
        part = self.layout.part
        ended = part(rows, "terminated") + part(rows, "truncated")
        return (ended[:, 0] == 0) & (part(rows, "valid")[:, 0] > 0)

    def _slot(self, position: Tensor) -> Tensor:
        """Row index in the ring of a position counted from the oldest step."""
        if self.total_steps <= self.num_steps:
            return position
        oldest = (self.total_steps % self.num_steps) * self._num_envs
        return (position + oldest) % (self.num_steps * self._num_envs)

    @property
    def _flat(self) -> Tensor:
        return self._rows.view(-1, self.layout.width)

    def state_dict(self, segments: Segments | None) -> dict[str, Any]:
        """Counters, RNG and, with `segments`, the rows: only those added since the last save.

        Args:
            segments: Where rows are written; None leaves them out (announced by the caller).
        """
        if segments is not None:
            self._save_rows(segments)
        return {
            "total_steps": self.total_steps,
            "shape": list(self._rows.shape),
            "weights": self._weights.clone(),
            "stamps": self._stamps.clone(),
            "generator": self._generator.get_state(),
            "entries": [] if segments is None else list(self._entries),
            "rows_saved": segments is not None,
        }

    def load_state_dict(self, state: Mapping[str, Any], segments: Segments | None) -> None:
        """Restore `state_dict`; without saved rows the ring starts empty.

        Raises:
            CheckpointError: The saved ring has another shape.
        """
        if list(state["shape"]) != list(self._rows.shape):
            raise CheckpointError(
                f"the saved replay has (steps, worlds, floats) {list(state['shape'])}, this run "
                f"makes {list(self._rows.shape)}; resume with the settings it was saved with"
            )
        self._generator.set_state(state["generator"])
        if not state["rows_saved"] or segments is None:
            self.total_steps = self._saved_steps = 0
            self._entries = []
            return
        self.total_steps = self._saved_steps = int(state["total_steps"])
        self._weights.copy_(state["weights"])
        self._stamps.copy_(state["stamps"])
        self._entries = [dict(entry) for entry in state["entries"]]
        for entry in self._entries:
            rows = segments.read(entry)["rows"]
            for offset in range(rows.shape[0]):
                self._rows[(entry["first_step"] + offset) % self.num_steps].copy_(rows[offset])

    def _save_rows(self, segments: Segments) -> None:
        first = max(self._saved_steps, self.total_steps - self.num_steps)
        step_bytes = self._rows[0].numel() * self._rows.element_size()
        count = max(1, _SEGMENT_BYTES // step_bytes)  # steps per segment
        for start in range(first, self.total_steps, count):
            steps = torch.arange(start, min(start + count, self.total_steps))
            rows = self._rows[(steps % self.num_steps).to(self._rows.device)].cpu()
            entry = segments.write(f"steps_{start:012d}", {"rows": rows})
            self._entries.append({**entry, "first_step": start, "num_steps": len(steps)})
        oldest = self.total_steps - self.num_steps
        self._entries = [e for e in self._entries if e["first_step"] + e["num_steps"] > oldest]
        self._saved_steps = self.total_steps
