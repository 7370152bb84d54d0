"""Replay ring: packed rows of all envs and frames of cameras, drawn uniformly or by priority."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.compiled_returns import CompiledReturns, find_gather
from robot_rl.buffers.frames import image_stacks, make_frames
from robot_rl.buffers.priorities import Priorities, ReplayConfig
from robot_rl.buffers.returns import Returns, RowLayout, describe_rows
from robot_rl.buffers.saved_rows import SavedRows, Segments
from robot_rl.buffers.trajectories import MonteCarlo, Trajectories
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import CheckpointError, ConfigError
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch


class ReplayBuffer:
    """Ring of T steps x N envs. Row (t, n) is followed in time by row (t + 1, n).

    How episodes end is decided in `returns.py`, how images are kept in `frames.py`.
    """

    def __init__(
        self,
        spec: EnvSpec,
        groups: Sequence[str],
        *,
        capacity: int,
        gamma: float,
        n_step: int = 1,
        chunks: bool = False,
        interventions: bool = False,
        config: ReplayConfig | None = None,
        returns: MonteCarloReturns | None = None,
        compile: bool = True,
        seed: int = 0,
    ) -> None:
        """Allocate the ring on the environment's device.

        Args:
            capacity: Transitions kept, rounded down to whole steps of N envs.
            chunks: Hand out with every row the n actions from it on.
            interventions: Hand out with every row whether a person acted in it.
            config: What is drawn how often; by default all rows equally.
            returns: Hand out with every row the return that was reached from it.
            compile: On the CPU, make samples by a compiled library, where there is a C++ compiler;
                they are the same.
        """
        self.num_steps = capacity // spec.num_envs
        if self.num_steps < n_step or n_step < 1:
            raise ConfigError(
                f"replay: capacity {capacity} holds {self.num_steps} steps of {spec.num_envs} "
                f"envs; n_step {n_step} needs at least {max(1, n_step)}; raise the capacity"
            )
        self.capacity = self.num_steps * spec.num_envs
        """Transitions that fit."""
        self.layout = RowLayout(spec, groups)
        self.description = describe_rows(self.layout, spec)
        """Content of the rows, in plain values."""
        self.gamma = gamma
        self.n_step, self.chunks, self.interventions = n_step, chunks, interventions
        self.total_steps = 0
        """Steps ever added; the newest lies in slot (total_steps - 1) mod T."""
        self._num_envs = spec.num_envs
        self._rows = torch.zeros(
            self.num_steps, spec.num_envs, self.layout.width, device=spec.device
        )
        self._frames = make_frames(spec, groups, self.num_steps)
        self.num_bytes = self._rows.numel() * self._rows.element_size() + sum(
            ring.num_bytes for ring in self._frames.values()
        )
        """Memory of the rows and frames [bytes]."""
        self._stamps = torch.zeros(self.num_steps, 2, dtype=torch.int64)  # [ns], policy version
        self._returns = Returns(
            self.layout, gamma, n_step, spec.device, chunks=chunks, interventions=interventions,
            last=self.has_images,
        )  # fmt: skip
        self.compile = compile
        """As asked for; a device or a missing compiler may forbid it."""
        self._compiled: CompiledReturns | None = None
        functions, _ = find_gather(spec.device, compile)
        if functions is not None:
            self._compiled = CompiledReturns(
                functions, self._returns, self.layout, self._rows, gamma=gamma, n_step=n_step,
                chunks=chunks, interventions=interventions, last=self.has_images,
            )  # fmt: skip
        self.generator = torch.Generator(device=spec.device)
        """Random stream of uniform draws."""
        self.generator.manual_seed(derive_seed(seed, "replay"))
        self._saved = SavedRows()
        self._config = config or ReplayConfig()
        self._chance_below: Tensor | None = None  # sums of the chances, by position
        self.monte_carlo: MonteCarlo | None = None
        """Returns that were reached, where somebody asked for them."""
        if returns is not None:
            self.monte_carlo = MonteCarlo(
                self.num_steps, spec.num_envs, returns, gamma, spec.device
            )
        self.prioritized = self._config.priority > 0
        """True where rows are drawn by priority."""
        self._priorities: Priorities | None = None
        if self.prioritized:
            self._priorities = Priorities(
                self.capacity, self._config.priority, spec.device, derive_seed(seed, "priorities")
            )

    def __len__(self) -> int:
        return self._held * self._num_envs

    @property
    def has_images(self) -> bool:
        """True if rows have stacks of frames."""
        return bool(self._frames)

    @property
    def stacks(self) -> dict[str, int]:
        """Frames in an observation of each camera, by group."""
        return {name: ring.stack for name, ring in self._frames.items()}

    @property
    def _held(self) -> int:
        """Steps that can be drawn."""
        return self.total_steps - self._first_step

    @property
    def _first_step(self) -> int:
        """Oldest step that can be drawn, counted from the first ever added."""
        first = max(0, self.total_steps - self.num_steps)
        return max([first, *(ring.first_step for ring in self._frames.values())])

    @property
    def added(self) -> int:
        """Transitions that were added, the capacity at most; of images fewer may still be there."""
        return min(self.total_steps, self.num_steps) * self._num_envs

    def add(self, obs: Obs, step: EnvStep, *, stamp_ns: int = 0, policy_version: int = 0) -> None:
        """Store one step of N envs; copies everything.

        Args:
            obs: What was acted on, groups (N, ...).
            step: What came of it; its reward weights apply to all stored terms from now on.
            stamp_ns: When the step was measured [ns]; 0 in simulation.
        """
        slot = self.total_steps % self.num_steps
        self.layout.pack(obs, step, self._rows[slot])
        first = self._first_step
        for name, ring in self._frames.items():
            ring.add(self.total_steps, obs[name], step.next_obs[name])
        if self._priorities is not None:
            self._priorities.on_add(slot * self._num_envs, step.valid)
        if self.monte_carlo is not None:
            self.monte_carlo.on_add(slot, step.success)
        self._stamps[slot, 0] = stamp_ns
        self._stamps[slot, 1] = policy_version
        if step.reward_weights is not None:
            self._returns.weights.copy_(step.reward_weights)
        self.total_steps += 1
        if self._priorities is not None and self._frames:
            first = max(first, self.total_steps - self.num_steps)  # older ones are overwritten
            for lost in range(first, self._first_step):
                self._priorities.forget(lost % self.num_steps * self._num_envs, self._num_envs)

    def amend(
        self, step: int, *, reward: float, terminated: bool, truncated: bool, valid: bool,
        success: bool,
    ) -> bool:  # fmt: skip
        """Judge a stored step of a single env anew, as a person does later.

        Args:
            step: Steps that had been added before it.

        Returns:
            False where newer steps have overwritten it.

        Raises:
            ConfigError: There are several envs, or rewards of several terms.
        """
        if self._num_envs != 1 or self.layout.reward_names:
            raise ConfigError("replay: only steps of one env with a single reward can be amended")
        if not max(0, self.total_steps - self.num_steps) <= step < self.total_steps:
            return False
        row = self._rows[step % self.num_steps, 0]
        values = {"reward": reward, "terminated": terminated, "truncated": truncated}
        for name, value in {**values, "valid": valid}.items():
            row[self.layout.columns[name]] = float(value)
        if self.monte_carlo is not None:
            self.monte_carlo.success[step % self.num_steps, 0] = success
            self.monte_carlo.forget()
        return True

    def ordered_rows(self) -> Tensor:
        """Copy of all rows held, oldest first, (T, N, W)."""
        return self._rows[self._slots()]

    def sample(self, batch_size: int, *, progress: float = 1.0) -> Batch:
        """Draw transitions with replacement, uniformly or by priority.

        Args:
            progress: Part of the training that is over, in [0, 1]; at 1 importance weights correct
                all that priorities favour.

        Returns:
            B transitions of up to n steps; `extra` names their `index` (slot * N + env).
        """
        if self.total_steps == 0:
            raise ConfigError("replay: nothing can be sampled before the first step is added")
        held = self._held
        if held == 0:
            raise ConfigError(
                "replay: the frames of every step held are overwritten already, as episodes are "
                "too short for this ring; raise training.replay_capacity"
            )
        if self._priorities is not None:
            index = self._priorities.draw(batch_size)
            batch = self._transitions(self._position(index), held)
            correction = self._config.correction + (1 - self._config.correction) * progress
            weight = self._priorities.weight(index, correction)
            return replace(batch, weight=batch.weight * weight)
        if self._chance_below is not None:
            return self._transitions(self._favoured(self._chance_below, batch_size), held)
        # Position 0 is the oldest step held.
        drawn = torch.randint(
            held * self._num_envs,
            (batch_size,),
            generator=self.generator,
            device=self._rows.device,
        )
        return self._transitions(drawn, held)

    def strided_sample(self, count: int) -> Batch:
        """Up to `count` transitions, evenly spread over time and envs; draws nothing."""
        place = torch.linspace(
            0, len(self) - 1, min(count, len(self)), dtype=torch.float64, device=self._rows.device
        )
        return self._transitions(place.round().long(), self._held)

    def set_sampling_weights(self, chance: Tensor) -> None:
        """Draw rows by chances (T, N) in order of time; nothing may be added to the ring after."""
        self._chance_below = chance.flatten().double().cumsum(0)

    def _favoured(self, below: Tensor, count: int) -> Tensor:
        place = torch.rand(
            count, generator=self.generator, dtype=torch.float64, device=below.device
        )
        index = torch.searchsorted(below, place * below[-1], right=True)
        return index.clamp_(max=len(below) - 1)

    def set_reward_weights(self, weights: Tensor) -> None:
        """Value all rewards by weights of the terms, (K,), until a step brings others."""
        self._returns.weights.copy_(weights)

    def trajectories(self) -> Trajectories:
        """The rows in order of time, as episodes."""
        slots, part = self._slots(), self.layout.split(self._rows)
        # Of these columns alone: a copy of all rows would take the replay's memory again.
        reward, valid, terminated, truncated = (
            part[name][slots] for name in ("reward", "valid", "terminated", "truncated")
        )
        return Trajectories.of(
            self._returns.paid(reward), valid[..., 0] > 0, (terminated + truncated)[..., 0] > 0
        )

    def _slots(self) -> Tensor:
        """Slots of the steps held, in order of time."""
        steps = torch.arange(self._first_step, self.total_steps, device=self._rows.device)
        return steps % self.num_steps

    def _with_return(self, batch: Batch) -> Batch:
        """With the return that was reached from each row, (B,)."""
        known, held = self.monte_carlo, self._held
        if known is None:
            return batch
        weights = self._returns.weights
        if known.due(self.total_steps, held, weights):
            known.find(self.trajectories(), self._slots(), self.total_steps, weights)
        reached = known.value.flatten().index_select(0, batch.extra["index"])
        return replace(batch, extra={**batch.extra, "monte_carlo_return": reached})

    def set_priorities(self, index: Tensor, error: Tensor) -> None:
        """Tell how wrong the learner was about sampled transitions.

        Args:
            index: Of a sampled batch, (B,).
            error: (B,), such as a temporal difference.
        """
        if self._priorities is not None:
            self._priorities.set(index, error)

    def _transitions(self, position: Tensor, held: int) -> Batch:
        """Transitions that begin at positions counted from the oldest step, (B,)."""
        batch = self._with_return(self._of_rows(position, held))
        return self._with_images(batch) if self._frames else batch

    def _with_images(self, batch: Batch) -> Batch:
        """With the stacks of every camera."""
        extra = dict(batch.extra)
        index = extra["index"]
        last = extra.pop("last", index)
        return replace(
            batch, extra=extra,
            obs=batch.obs | image_stacks(self._frames, index, successor=False),
            next_obs=batch.next_obs | image_stacks(self._frames, last, successor=True),
        )  # fmt: skip

    def _of_rows(self, position: Tensor, held: int) -> Batch:
        """The same without images and returns."""
        if self._compiled is not None:
            return self._compiled.transitions(position, held * self._num_envs, self._oldest)
        index = self._slot(position)
        if self.n_step == 1 and not self.chunks:
            return self._returns.one_step(self._flat.index_select(0, index), index)

        def later(k: int) -> tuple[Tensor, Tensor]:
            there = position + k * self._num_envs
            inside = there < held * self._num_envs
            return self._slot(torch.where(inside, there, position)), inside

        return self._returns.several_steps(self._flat, index, later)

    def _slot(self, position: Tensor) -> Tensor:
        """Row index in the ring of a position counted from the oldest step."""
        oldest = self._oldest
        return (position + oldest) % self.capacity if oldest else position

    def _position(self, index: Tensor) -> Tensor:
        """Inverse of `_slot`."""
        oldest = self._oldest
        return (index - oldest) % self.capacity if oldest else index

    @property
    def _oldest(self) -> int:
        """Row index of the oldest step."""
        return self._first_step % self.num_steps * self._num_envs

    @property
    def _flat(self) -> Tensor:
        return self._rows.view(-1, self.layout.width)

    def refill(self, steps: Iterable[Tensor]) -> None:
        """Add steps stored before, oldest first, of this layout: (N, W), or several, (S, N, W)."""
        for rows in steps:
            block = rows.reshape(-1, *self._rows.shape[1:])
            while len(block):
                slot = self.total_steps % self.num_steps
                part, block = block.tensor_split([self.num_steps - slot])
                self._rows[slot : slot + len(part)].copy_(part)
                self.total_steps += len(part)

    def add_frames(self, name: str, stacks: Tensor) -> None:
        """Take the stacks of a camera that belong to the rows of an episode added by `refill`.

        Args:
            name: Observation group.
            stacks: Of its T steps and of what came after the last, (T + 1, S, H, W, C).
        """
        ring = self._frames[name]
        for step in range(len(stacks) - 1):
            ring.add(self.total_steps + step, stacks[step, None], stacks[step + 1, None])

    def copy_frames(self, other: "ReplayBuffer") -> None:
        """Take the frames of a replay of one env whose rows this one is refilled with.

        Raises:
            ConfigError: It is of several envs, or has overwritten rows: frames lie elsewhere then.
        """
        if self._frames and (other._num_envs > 1 or other.total_steps > other.num_steps):
            raise ConfigError(
                f"replay: pictures of {other._num_envs} envs, {len(other)} of "
                f"{other.total_steps * other._num_envs} steps held, were asked for one after the "
                "other; expected one env that has overwritten none: make a data set of episodes "
                "with pictures (robot-rl collect, teleop) and name that one"
            )
        for name, ring in self._frames.items():
            ring.copy(other._frames[name])

    def copy_successes(self, other: "ReplayBuffer") -> None:
        """Take which steps succeeded from the replay whose rows this one was refilled with."""
        if self.monte_carlo is not None and other.monte_carlo is not None:
            told = other.monte_carlo.success[other._slots()].T.reshape(-1, 1)
            self.monte_carlo.success[: len(told)] = told

    def take_saved(
        self, saved: Mapping[str, Any], steps: Iterable[Tensor], segments: Segments
    ) -> None:  # fmt: skip
        """Take the rows of a saved replay of as many steps and envs, and the frames beside them.

        Args:
            saved: Its `state_dict`.
            steps: Its rows in this layout, from the oldest that is held.
            segments: Where its frames are.
        """
        self.total_steps = max(0, int(saved["total_steps"]) - self.num_steps)
        self.refill(steps)
        for name, ring in self._frames.items():
            ring.load_state_dict(saved["frames"][name], segments)

    def share_weights(self, other: "ReplayBuffer") -> None:
        """Value all rewards, from now on, by the newest weights of another replay."""
        self._returns.weights = other._returns.weights

    def export(self, segments: Segments) -> dict[str, Any]:
        """All rows in segments, apart from `state_dict`; plain values that say where they are.

        Raises:
            ConfigError: There are images.
        """
        if self._frames:
            raise ConfigError(
                "a data set of replay rows holds no images, and this replay has "
                f"{', '.join(self._frames)}; expected a replay of vectors alone"
            )
        saved = SavedRows()
        saved.save(self._rows, self.total_steps, segments)
        return {
            "rows": self.description,
            "shape": list(self._rows.shape),
            "total_steps": self.total_steps,
            "entries": saved.entries,
        }

    def save_rows(self, segments: Segments) -> None:
        """Write the rows added since the last save; `state_dict` names them, and has less to do.

        Raises:
            StorageError: The disk refused.
        """
        self._saved.save(self._rows, self.total_steps, segments)
        for ring in self._frames.values():
            ring.save(segments)

    def state_dict(self, segments: Segments | None) -> dict[str, Any]:
        """Counters, RNG and, with `segments`, the rows: only those added since the last save."""
        if segments is not None:
            self.save_rows(segments)
        return {
            "total_steps": self.total_steps,
            "rows": self.description,
            "shape": list(self._rows.shape),
            "weights": self._returns.weights.clone(),
            "stamps": self._stamps.clone(),
            "generator": self.generator.get_state(),
            "entries": [] if segments is None else list(self._saved.entries),
            "rows_saved": segments is not None,
            "priorities": {} if self._priorities is None else self._priorities.state_dict(),
            "returns": {} if self.monte_carlo is None else self.monte_carlo.state_dict(),
            "frames": {
                name: ring.state_dict(segments is not None) for name, ring in self._frames.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any], segments: Segments | None) -> None:
        """Restore `state_dict`; without saved rows the ring starts empty.

        Raises:
            CheckpointError: The saved ring has another shape.
        """
        if list(state["shape"]) != list(self._rows.shape):
            raise CheckpointError(
                f"the saved replay has (steps, envs, floats) {list(state['shape'])}, this run "
                f"makes {list(self._rows.shape)}; resume with the settings it was saved with"
            )
        self.generator.set_state(state["generator"])
        if self._priorities is not None:
            self._priorities.load_state_dict(state["priorities"])
        if not state["rows_saved"] or segments is None:
            self.total_steps = 0
            self._saved.forget()
            for ring in self._frames.values():
                ring.clear()
            if self._priorities is not None:
                self._priorities.clear()
            return
        self.total_steps = int(state["total_steps"])
        self._returns.weights.copy_(state["weights"])
        self._stamps.copy_(state["stamps"])
        if self.monte_carlo is not None:
            self.monte_carlo.load_state_dict(state["returns"])
        self._saved.load(self._rows, self.total_steps, state["entries"], segments)
        for name, ring in self._frames.items():
            ring.load_state_dict(state["frames"][name], segments)
