"""Copies of a network that move behind it: targets of critics, means of policies."""

import copy
from collections.abc import Iterator, Sequence
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor


class Copied(Protocol):
    """The part of a network that is needed here; any `torch.nn.Module` has it."""

    def buffers(self) -> Iterator[Tensor]:
        """Tensors that are kept but not trained."""
        ...

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Switch gradients of all parameters."""
        ...


AnyCopied = TypeVar("AnyCopied", bound=Copied)


def moving_copy(network: AnyCopied) -> AnyCopied:
    """A target: not trained, and one set of buffers, such as a normaliser's, for both."""
    shared = {id(buffer): buffer for buffer in network.buffers()}
    return copy.deepcopy(network, shared).requires_grad_(False)


def soft_update(targets: Sequence[Tensor], sources: Sequence[Tensor], tau: float) -> None:
    """Move targets a share `tau` of the way to their sources, all in one call."""
    with torch.no_grad():
        # Not in torch's list of public names, but what its own optimisers are made of.
        torch._foreach_lerp_(list(targets), list(sources), tau)  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]
