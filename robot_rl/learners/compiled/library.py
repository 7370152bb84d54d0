"""The compiled update and its matrix products.

The products of `update.cpp` are its own, or those of a BLAS that is installed anyway where that is
faster on this machine: MKL inside torch, or OpenBLAS inside numpy. That is measured once and
written down beside the library, so that later runs compute the same digits.
"""

import ctypes
import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robot_rl.core import native

SOURCE = native.Source(path=Path(__file__).with_name("update.cpp"), contract=True)
"""The update in C++."""

_BLAS_SHAPES = ((256, 64, 64), (256, 256, 256))
"""Rows, outputs, inputs of the products that are timed."""
_BLAS_MARGIN = 1.1
"""A library is taken where it is faster than our own products by this factor."""

_OWN, _FORTRAN, _CBLAS_64, _CBLAS_32 = 0, 1, 2, 3
"""Calling conventions of `set_blas` in `update.cpp`."""


@dataclass(frozen=True)
class Library:
    """The loaded library."""

    functions: ctypes.CDLL
    """Functions of `update.cpp`; a call lets other Python threads run."""
    products: str
    """Matrix products: `own`, or those of `torch` or `numpy`."""
    compiler: str
    """Program that compiled it."""


@dataclass(frozen=True)
class _Blas:
    name: str
    convention: int
    function: int
    """Address."""


@functools.cache
def load() -> Library:
    """Build the library if the cache has none of this source, compiler and processor, and load it.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    functions, path, compiler = native.load(SOURCE)
    functions.sac_workspace.restype = ctypes.c_int64
    functions.td3_workspace.restype = ctypes.c_int64
    blas = _choose_blas(functions, path.with_suffix(".json"))
    functions.set_blas(blas.convention, ctypes.c_void_p(blas.function))
    return Library(functions, blas.name, compiler)


def _choose_blas(functions: ctypes.CDLL, record: Path) -> _Blas:
    """The BLAS that was written down, or else the fastest one."""
    found = {"own": _Blas("own", _OWN, 0), **{blas.name: blas for blas in _find_blas()}}
    versions = {"torch": torch.__version__, "numpy": np.__version__}
    try:
        kept: Mapping[str, Any] = json.loads(record.read_text())
    except (OSError, ValueError):
        kept = {}
    if kept.get("versions") == versions and kept.get("blas") in found:
        return found[kept["blas"]]
    seconds = {name: _time_products(functions, blas) for name, blas in found.items()}
    best = min(seconds, key=lambda name: seconds[name])
    if seconds["own"] < _BLAS_MARGIN * seconds[best]:
        best = "own"
    part = record.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps({"blas": best, "versions": versions, "seconds": seconds}))
    os.replace(part, record)
    return found[best]


def _find_blas() -> Iterator[_Blas]:
    torch_library = next(Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"), None)
    numpy_libraries = [
        path
        for folder in (Path(np.__file__).parent.with_name("numpy.libs"),
                       Path(np.__file__).parent / ".dylibs")
        for path in sorted(folder.glob("*openblas*"))
    ]  # fmt: skip
    names = (
        ("torch", torch_library, "sgemm_", _FORTRAN),
        *(("numpy", path, "scipy_cblas_sgemm64_", _CBLAS_64) for path in numpy_libraries),
        *(("numpy", path, "cblas_sgemm", _CBLAS_32) for path in numpy_libraries),
    )
    for name, path, symbol, convention in names:
        try:
            function = getattr(ctypes.CDLL(str(path)), symbol) if path else None
        except (OSError, AttributeError):
            continue
        if function is not None:
            yield _Blas(name, convention, ctypes.cast(function, ctypes.c_void_p).value or 0)


def _time_products(functions: ctypes.CDLL, blas: _Blas) -> float:
    """Process time of some products [s], the smallest of several trials."""
    functions.set_blas(blas.convention, ctypes.c_void_p(blas.function))
    generator = np.random.default_rng(0)
    trials: list[Callable[[], None]] = []
    for rows, outputs, inputs in _BLAS_SHAPES:
        a = generator.standard_normal((rows, inputs), dtype=np.float32)
        b = generator.standard_normal((inputs, outputs), dtype=np.float32)
        c = np.empty((rows, outputs), dtype=np.float32)
        arguments = (
            0, 0, rows, outputs, inputs, a.ctypes.data_as(ctypes.c_void_p), inputs,
            b.ctypes.data_as(ctypes.c_void_p), outputs, c.ctypes.data_as(ctypes.c_void_p), outputs,
        )  # fmt: skip

        def trial(arguments: Any = arguments, kept: Any = (a, b, c)) -> None:
            functions.multiply(*arguments)

        trials.append(trial)

    def seconds() -> float:
        start = time.process_time()
        for trial in trials:
            for _ in range(20):
                trial()
        return time.process_time() - start

    seconds()
    return min(seconds() for _ in range(5))
