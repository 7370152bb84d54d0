"""Transitions of up to n steps by a compiled library, in place of the operations of `Returns`.

`gather.cpp` reads the rows of a ring where they lie, follows every sample to its end and copies
each part of it into a tensor of its own, in one pass. Results equal those of `Returns` to the last
bit on the processors tried. Rewards of several terms are still multiplied by their weights in
PyTorch: the digits of such a product depend on the processor.
"""

import ctypes
import functools
from ctypes import c_float, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from robot_rl.buffers.returns import Returns, RowLayout
from robot_rl.core import native
from robot_rl.core.transition import Batch

SOURCE = native.Source(path=Path(__file__).with_name("gather.cpp"), contract=False)
"""The gather in C++."""

_ALIGNED = 16
"""Floats of 64 bytes, at which tensors begin and vector instructions are aligned."""


class _Part(ctypes.Structure):
    """Columns that are copied into a tensor of their own."""

    _fields_ = [("column", c_int64), ("width", c_int64), ("of_last", c_int64), ("out", c_void_p)]


class _Ring(ctypes.Structure):
    """The rows and their columns."""

    _fields_ = [
        ("rows", c_void_p), ("width", c_int64), ("num_envs", c_int64), ("capacity", c_int64),
        ("held", c_int64), ("oldest", c_int64), ("terminated", c_int64), ("truncated", c_int64),
        ("valid", c_int64), ("reward", c_int64), ("terms", c_int64), ("action", c_int64),
        ("action_size", c_int64),
    ]  # fmt: skip


class _Sample(ctypes.Structure):
    """Beginnings of transitions, and the tensors to fill."""

    _fields_ = [
        ("count", c_int64), ("n_step", c_int64), ("gamma", c_float), ("position", c_void_p),
        ("parts", c_void_p), ("part_count", c_int64), ("index", c_void_p), ("discount", c_void_p),
        ("weight", c_void_p), ("steps", c_void_p), ("terms", c_void_p), ("terms_step", c_int64),
        ("terms_stride", c_int64), ("chunk", c_void_p), ("chunk_valid", c_void_p),
    ]  # fmt: skip


@functools.cache
def load() -> tuple[ctypes.CDLL, str]:
    """The compiled functions, built if they are not yet, and the name of the compiler.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    functions, _, compiler = native.load(SOURCE)
    return functions, compiler


def find_gather(device: torch.device, compile: bool) -> tuple[ctypes.CDLL | None, str]:
    """The compiled functions, or None; and what makes the samples, and why.

    Args:
        device: Where the rows are.
        compile: Take the library where there is a compiler.
    """
    if device.type != "cpu":
        return None, "PyTorch operations"
    if not compile:
        return None, "PyTorch operations (learner.compile=false)"
    try:
        functions, compiler = load()
    except native.CompileError as error:
        return None, f"PyTorch operations ({error})"
    return functions, f"compiled ({compiler})"


class CompiledReturns:
    """Makes transitions of up to n steps out of the rows of a ring."""

    def __init__(
        self, functions: ctypes.CDLL, returns: Returns, layout: RowLayout, rows: Tensor,
        *, gamma: float, n_step: int, chunks: bool, interventions: bool = False,
        last: bool = False,
    ) -> None:  # fmt: skip
        """Describe a ring.

        Args:
            functions: From `find_gather`.
            returns: Values the reward terms.
            layout: Columns of the rows.
            rows: The ring, (T, N, W), whose memory stays where it is.
            gamma, n_step, chunks, interventions, last: As of `Returns`.
        """
        self._functions, self._returns, self._layout = functions, returns, layout
        self._rows = rows  # kept alive: the library knows the address alone
        self._gamma, self._n_step, self._chunks, self._last = gamma, n_step, chunks, last
        columns = layout.columns
        self._terms = columns["reward"].stop - columns["reward"].start
        self._action_size = columns["action"].stop - columns["action"].start
        self._ring = _Ring(
            rows=rows.data_ptr(), width=layout.width, num_envs=rows.shape[1],
            capacity=rows.shape[0] * rows.shape[1], terms=self._terms,
            action_size=self._action_size,
            **{name: columns[name].start
               for name in ("terminated", "truncated", "valid", "reward", "action")},
        )  # fmt: skip
        self._copied = [
            (name, columns[name].start, columns[name].stop - columns[name].start)
            for name in columns
            if name == "action" or "/" in name or (interventions and name == "intervened")
        ]
        self._terms_offset, self._terms_stride = 0, 1
        if self._terms > 1:
            # As aligned as among the columns of a row: the last digits of a product depend on it.
            self._terms_offset = columns["reward"].start % _ALIGNED
            self._terms_stride = self._terms + (layout.width - self._terms) % _ALIGNED

    def transitions(self, position: Tensor, held: int, oldest: int) -> Batch:
        """Transitions as of `Returns.several_steps`, or `one_step`; every tensor is contiguous.

        Args:
            position: Rows where transitions begin, counted from the oldest one, (B,) int64.
            held: Rows that are filled.
            oldest: Index of the oldest row, which the filled ones follow round the ring.
        """
        count, n_step = len(position), self._n_step
        position = position.contiguous()
        parts = {name: torch.empty(count, width) for name, _, width in self._copied}
        structures = (_Part * len(parts))(*(
            (column, width, name.startswith("next_obs/"), parts[name].data_ptr())
            for name, column, width in self._copied
        ))  # fmt: skip
        discount, weight = torch.empty(count), torch.empty(count)
        index, steps = (torch.empty(count, dtype=torch.int64) for _ in range(2))
        terms, terms_step = self._empty_terms(count)
        extra = {"index": index}
        sample = _Sample(
            count=count, n_step=n_step, gamma=self._gamma, position=position.data_ptr(),
            parts=ctypes.addressof(structures), part_count=len(parts), index=index.data_ptr(),
            discount=discount.data_ptr(), weight=weight.data_ptr(), steps=steps.data_ptr(),
            terms=terms.data_ptr(), terms_step=terms_step, terms_stride=self._terms_stride,
        )  # fmt: skip
        if self._chunks:
            chunk = torch.empty(count, n_step, self._action_size)
            done = torch.empty(count, n_step, dtype=torch.bool)
            sample.chunk, sample.chunk_valid = chunk.data_ptr(), done.data_ptr()
            extra |= {"chunk": chunk, "valid": done}
        ring = _Ring.from_buffer_copy(self._ring)  # another thread may draw from a longer one
        ring.held, ring.oldest = held, oldest
        self._functions.gather_rows(ctypes.byref(ring), ctypes.byref(sample))
        if self._last and (n_step > 1 or self._chunks):
            extra["last"] = (index + (steps - 1) * ring.num_envs) % ring.capacity
        if "intervened" in parts:
            extra["intervened"] = parts["intervened"][:, 0] > 0
        return Batch(
            obs=self._layout.obs(parts, "obs/"),
            action=parts["action"],
            reward=self._sum(terms, sample),
            discount=discount,
            next_obs=self._layout.obs(parts, "next_obs/"),
            weight=weight,
            extra=extra,
        )

    def _empty_terms(self, count: int) -> tuple[Tensor, int]:
        """Room for the reward terms of n rows of every sample, (n, B, K), and its first stride."""
        shape = (self._n_step, count, self._terms)
        if self._terms == 1:
            return torch.empty(shape), count
        floats = self._terms_offset + count * self._terms_stride
        step = -(-floats // _ALIGNED) * _ALIGNED
        room = torch.empty(self._n_step * step)
        return room.as_strided(shape, (step, self._terms_stride, 1), self._terms_offset), step

    def _sum(self, terms: Tensor, sample: _Sample) -> Tensor:
        """Discounted sums of rewards, (B,)."""
        if self._n_step == 1:
            return self._returns.paid(terms[0])
        if self._terms == 1:
            rewards = self._returns.paid(terms)
        else:  # one by one: the digits of a product depend on the number of its rows
            rewards = torch.stack([self._returns.paid(each) for each in terms])
        total = torch.empty(terms.shape[1])
        self._functions.sum_rewards(
            ctypes.byref(sample), c_void_p(rewards.data_ptr()), c_void_p(total.data_ptr())
        )
        return total
