"""The way of an accelerator, taken on the CPU: everything by masks, nothing that waits for it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from robot_rl.core.env_selection import counting_is_free

_WAITING = ("_local_scalar_dense", "nonzero", "equal", "unique", "masked_select", "item")
"""Operations after which the host knows numbers of the device."""
_READING = ("numpy", "tolist", "cpu", "item", "__array__")
"""The same as methods."""
_HANDING = ("tensor", "as_tensor", "from_numpy")
"""What hands the host's numbers over, which waits too."""


def as_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may count rows from now on: every way that the code has for the CPU is closed."""
    importlib.import_module("sim.physics.warp_engine")  # otherwise only where asked for
    real = counting_is_free
    for module in list(sys.modules.values()):
        if getattr(module, "counting_is_free", None) is real:
            monkeypatch.setattr(module, "counting_is_free", lambda _: False)


class _NothingWaits(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in _WAITING, f"{name} waits for the device"
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            masks = [each for each in args[1] if each is not None and each.dtype == torch.bool]
            assert not masks, f"{name} by a mask waits for the device"
        return func(*args, **(kwargs or {}))


def _hand(real: Any, value: Any, *rest: Any, **more: Any) -> Any:
    assert isinstance(value, torch.Tensor), "numbers are handed over in every step"
    return real(value, *rest, **more)


@contextmanager
def nothing_waits() -> Iterator[None]:
    """Fail where the host would wait for an accelerator, or take its numbers."""
    with pytest.MonkeyPatch.context() as patch, _NothingWaits():
        for name in _READING:

            def refuse(*_: Any, name: str = name, **__: Any) -> None:
                raise AssertionError(f"Tensor.{name} waits for the device")

            patch.setattr(torch.Tensor, name, refuse)
        for name in _HANDING:
            patch.setattr(torch, name, partial(_hand, getattr(torch, name)))
        yield
