"""Frames of cameras beside the rows of a ring: each is kept once, stacks are numbers of frames.

A camera's observation is a stack of S frames, oldest first, which moves on by one frame in a step:
S - 1 frames of a successor, and all of the next row's observation, are there already. A row names
the S frames of its observation and the S frames of its true successor, so that a terminal frame is
kept and no stack reaches into another episode. Which frames are new is decided by their content: a
stack that moves in another way, as at an episode's start or with a camera that is slower than the
control loop, costs the frames that it does not share, and comes back as it was all the same.

Frames of all envs lie in one ring in the order in which they came. It has room for a frame per
transition and for the starts of episodes; where these are shorter than foreseen, the oldest rows
lose their frames first and are drawn no more.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.saved_rows import SavedRows, Segments
from robot_rl.core.env import EnvSpec, GroupSpec, Obs
from robot_rl.core.errors import ConfigError, ShapeError

_START_STEPS = 16
"""Transitions per episode for whose first frames there is room: 1/16 of the frames."""
_NUMBER_BYTES = 4
"""Of a frame's place in the ring, int32."""


def is_image(group: GroupSpec) -> bool:
    """True for the stacked frames of a camera, uint8 (S, H, W, C)."""
    return group.dtype is torch.uint8 and len(group.shape) == 4


def num_frames(num_steps: int, num_envs: int, stack: int) -> int:
    """Frames that a ring of so many steps of so many envs keeps of one camera."""
    # Twice a stack more: what the oldest row reaches back to, and what one step may add.
    return num_envs * (num_steps + -(-num_steps // _START_STEPS) + 2 * stack)


def image_bytes(spec: EnvSpec, groups: Sequence[str], capacity: int) -> int:
    """Memory of all frames, and of the numbers by which rows name them [bytes].

    Args:
        groups: Observation groups of a learner; vectors among them take nothing here.
        capacity: Transitions of the ring.
    """
    steps, total = capacity // spec.num_envs, 0
    for name in groups:
        if is_image(spec.groups[name]):
            stack, *frame = spec.groups[name].shape
            size = int(torch.Size(frame).numel())
            total += num_frames(steps, spec.num_envs, stack) * size
            total += steps * spec.num_envs * 2 * stack * _NUMBER_BYTES
    return total


class FrameRing:
    """Frames of one camera of N envs, and the stacks of T x N rows."""

    def __init__(self, name: str, group: GroupSpec, num_steps: int, spec: EnvSpec) -> None:
        """Allocate the ring.

        Args:
            name: Observation group, such as `image/front`.
            group: Its shape (S, H, W, C).
            num_steps: T, steps of the rows' ring.
            spec: Number of envs and device.
        """
        self.stack, *frame = group.shape
        self.name, self._shape = name, tuple(group.shape)
        count = num_frames(num_steps, spec.num_envs, self.stack)
        if count >= 1 << 31:
            raise ConfigError(
                f"replay: {count:,} frames of '{name}' are more than the 2^31 that can be numbered;"
                " lower training.replay_capacity"
            )
        self._frames = torch.zeros(count, *frame, dtype=torch.uint8, device=spec.device)
        self._places = torch.zeros(
            num_steps, spec.num_envs, 2, self.stack, dtype=torch.int32, device=spec.device
        )
        self._longest = max(1, (count - num_steps * spec.num_envs) // 2)  # half of what is to spare
        # Numbers count all frames that ever came; a frame lies in slot number mod capacity.
        self._newest = torch.full((spec.num_envs, self.stack), -1, device=spec.device)
        self._oldest = [0] * num_steps  # smallest number that a step's rows name, by slot
        self.total = 0
        """Frames ever kept."""
        self.first_step = 0
        """Oldest step, counted from the first ever added, all of whose frames are still here."""
        self._saved = SavedRows("frames_" + name.replace("/", "_"))

    @property
    def num_bytes(self) -> int:
        """Memory of frames and numbers [bytes]."""
        return self._frames.numel() + self._places.numel() * _NUMBER_BYTES

    def add(self, step: int, obs: Tensor, next_obs: Tensor) -> None:
        """Keep what is new in a step of all envs.

        Args:
            step: Steps added before it.
            obs: What was acted on, (N, S, H, W, C).
            next_obs: The true successor, likewise.

        Raises:
            ShapeError: They are not what the environment's spec says.
        """
        self._check(obs, next_obs)
        capacity = len(self._frames)
        known = self._frames[(self._newest % capacity).flatten()].view_as(obs)
        # A picture that stays is kept again now and then: rows of all envs would go with the frame.
        same = _equal(known, obs) & (self._newest[:, 0] >= max(0, self.total - self._longest))
        held = _equal(obs, next_obs)  # the camera has taken no picture since
        moved = _equal(obs[:, 1:], next_obs[:, :-1])
        keep = torch.stack([
            ~same[:, None] & _new_frames(obs),
            ~held[:, None] & _new_frames(next_obs, moved),
        ], dim=1)  # (N, 2, S)  # fmt: skip
        number = (self.total - 1 + keep.flatten().cumsum(0)).view_as(keep)
        before = torch.where(same[:, None], self._newest, _numbers(number[:, 0], keep[:, 0]))
        shifted = torch.cat([before[:, 1:], number[:, 1, -1:]], dim=1)
        after = torch.where(moved[:, None], shifted, _numbers(number[:, 1], keep[:, 1]))
        after = torch.where(held[:, None], before, after)
        added = 0
        # On a GPU the host waits three times a step: how many frames are new decides what is lost.
        for frames, kept, at in zip((obs, next_obs), keep.unbind(1), number.unbind(1), strict=True):
            new = kept.nonzero(as_tuple=True)
            self._frames[at[new] % capacity] = frames[new]
            added += len(new[0])
        slot = step % len(self._places)
        self._places[slot] = torch.stack([before, after], dim=1) % capacity
        self._newest = after
        self.total += added
        self._oldest[slot] = int(before.min())
        self._forget(step + 1)

    def _forget(self, total_steps: int) -> None:
        """Leave out the steps whose frames are overwritten."""
        steps, gone = len(self._places), self.total - len(self._frames)
        self.first_step = max(self.first_step, total_steps - steps)
        while self.first_step < total_steps and self._oldest[self.first_step % steps] < gone:
            self.first_step += 1

    def stacks(self, rows: Tensor, *, successor: bool) -> Tensor:
        """Stacks of rows, (B, S, H, W, C) uint8.

        Args:
            rows: Indices slot * N + env, (B,).
            successor: Of what came after the row's action, not of what it was chosen by.
        """
        places = self._places.flatten(0, 1)[rows, int(successor)]  # (B, S)
        frames = self._frames.index_select(0, places.flatten())
        return frames.view(len(rows), *self._shape)

    def save(self, segments: Segments) -> None:
        """Write the frames kept since the last save."""
        self._saved.save(self._rows, self.total, segments)

    def state_dict(self, saved: bool) -> dict[str, Any]:
        """Numbers of all rows, and with `saved` where the frames are on the disk."""
        return {
            "total": self.total, "first_step": self.first_step, "oldest": list(self._oldest),
            "places": self._places.clone(), "newest": self._newest.clone(),
            "shape": list(self._shape),
            "entries": list(self._saved.entries) if saved else [],
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any], segments: Segments) -> None:
        """Restore `state_dict`; the frames come from the disk."""
        self.total, self.first_step = int(state["total"]), int(state["first_step"])
        self._oldest = [int(number) for number in state["oldest"]]
        self._places.copy_(state["places"])
        self._newest = state["newest"].to(self._newest.device, copy=True)
        self._saved.load(self._rows, self.total, state["entries"], segments)

    def copy(self, other: "FrameRing") -> None:
        """Take over all frames of a ring of one env that has lost none; nothing was added yet."""
        count, steps = other.total, min(len(self._places), len(other._places))
        assert self.total == 0
        assert count <= min(len(self._frames), len(other._frames))
        self._frames[:count] = other._frames[:count]
        self._places[:steps] = other._places[:steps]
        self._oldest[:steps] = other._oldest[:steps]
        self._newest, self.total = other._newest.clone(), count

    def clear(self) -> None:
        """Begin as if nothing had been added."""
        self.total = self.first_step = 0
        self._newest.fill_(-1)
        self._saved.forget()

    @property
    def _rows(self) -> Tensor:
        """Frames as the rows of a ring of one env, (F, 1, H * W * C)."""
        return self._frames.view(len(self._frames), 1, -1)

    def _check(self, obs: Tensor, next_obs: Tensor) -> None:
        expected = (self._newest.shape[0], *self._shape)
        for kind, given in (("obs", obs), ("next_obs", next_obs)):
            if given.shape != expected or given.dtype is not torch.uint8:
                raise ShapeError(
                    f"{kind} of '{self.name}': expected {expected} of torch.uint8 (envs, frames, "
                    f"height, width, channels), got {tuple(given.shape)} of {given.dtype}"
                )


def _equal(one: Tensor, two: Tensor) -> Tensor:
    """True for envs whose frames are the same, (N,); none at all are the same."""
    return (one == two).flatten(1).all(1)


def _new_frames(stacks: Tensor, moved: Tensor | None = None) -> Tensor:
    """Frames of a stack that is not known yet that must be kept, (N, S).

    The last one alone where all are equal, as at an episode's start, or where all others moved on.
    """
    alike = _equal(stacks[:, 1:], stacks[:, :-1])
    last_only = alike if moved is None else alike | moved
    keep = (~last_only)[:, None].repeat(1, stacks.shape[1])
    keep[:, -1] = True
    return keep


def _numbers(number: Tensor, keep: Tensor) -> Tensor:
    """Numbers of a new stack's frames, (N, S): one for all where the last one alone was kept."""
    return torch.where(keep[:, :1], number, number[:, -1:])


def make_frames(
    spec: EnvSpec, groups: Sequence[str], num_steps: int
) -> dict[str, FrameRing]:  # fmt: skip
    """Rings of the cameras among the groups that a learner reads."""
    return {
        name: FrameRing(name, spec.groups[name], num_steps, spec)
        for name in groups
        if is_image(spec.groups[name])
    }


def image_stacks(rings: Mapping[str, FrameRing], rows: Tensor, *, successor: bool) -> Obs:
    """Stacks of all cameras; arguments as of `FrameRing.stacks`."""
    return {name: ring.stacks(rows, successor=successor) for name, ring in rings.items()}
