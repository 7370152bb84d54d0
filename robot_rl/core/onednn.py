"""Float32 products on the CPU by oneDNN in place of MKL, where the digits are the same.

MKL leaves half of the vector units of an AMD processor idle. torch hands float32 to oneDNN only if
oneDNN may round to bf16 on the way; without AMX units oneDNN does not know how, and computes in
float32 all the same. That this is so is tried once per process.
"""

import functools
from typing import Any

import torch

_TRIED_SHAPES = ((256, 17, 256), (256, 256, 256), (256, 256, 12))
"""Rows, inputs, outputs of the products that are tried: layers of a usual network."""
_MAX_ERROR = 1e-5
"""Relative error that float32 stays below; bf16 has a hundred times as much."""
_MIN_PRODUCTS = 1 << 22
"""Multiplications of the largest product from which on oneDNN pays: small ones it takes longer to
prepare than MKL to compute. Measured with SAC on one thread of a Zen 5, 256 rows: a seventh longer
at width 64, a seventh shorter at 128, 40 % shorter at 256."""


class OneDnnMatmul:
    """Context in which float32 products on the CPU go to oneDNN, if that is wanted and exact.

    The setting is the process's: other threads compute the same digits meanwhile.
    """

    def __init__(self, wanted: bool = True) -> None:
        """Try what oneDNN does, the first time that somebody wants it."""
        self._entered = wanted and is_exact()
        self._before = "none"

    def __enter__(self) -> None:
        """Permit."""
        if self._entered:
            self._before, _settings().fp32_precision = _settings().fp32_precision, "bf16"

    def __exit__(self, *exception: object) -> None:
        """As it was."""
        if self._entered:
            _settings().fp32_precision = self._before


def is_faster(rows: int, weight_size: int) -> bool:
    """True if so many rows through a largest weight of so many entries are faster by oneDNN."""
    return rows * weight_size >= _MIN_PRODUCTS


@functools.cache
def is_exact() -> bool:
    """True if oneDNN computes in float32 where it is permitted to round to bf16."""
    if not torch.backends.mkldnn.is_available():
        return False
    before, _settings().fp32_precision = _settings().fp32_precision, "bf16"
    try:
        return all(_error(*shape) < _MAX_ERROR for shape in _TRIED_SHAPES)
    finally:
        _settings().fp32_precision = before


def _settings() -> Any:
    onednn: Any = torch.backends.mkldnn  # torch does not annotate what it has there
    return onednn.matmul


def _error(rows: int, inputs: int, outputs: int) -> float:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(rows, inputs, generator=generator)
    b = torch.randn(inputs, outputs, generator=generator)
    exact = a.double() @ b.double()
    return float((a @ b - exact).abs().max() / exact.abs().max())
