"""The compiled update and its matrix products.

The products are our own (`products.h`), or those of a BLAS that is installed anyway where that is
faster on this machine: MKL inside torch, or OpenBLAS inside numpy. That is measured once, for fp32
and for bf16, and written down beside the library, so that later runs compute the same digits.
"""

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robot_rl.core import native
from robot_rl.learners.optimization import Precision

SOURCE = native.Source(
    path=Path(__file__).with_name("update.cpp"), contract=True,
    headers=(Path(__file__).with_name("products.h"),),
)  # fmt: skip
"""The update in C++."""

_BLAS_SHAPES = ((256, 64, 64), (256, 256, 256))
"""Rows, outputs, inputs of the products that are timed."""
_BLAS_MARGIN = 1.1
"""A library is taken where it is faster than our own products by this factor."""

_PRECISIONS = {Precision.fp32: 0, Precision.bf16: 1}
"""Number formats of products, `Precision` in `products.h`."""
_OWN, _FORTRAN, _CBLAS_64, _CBLAS_32, _CBLAS_BF16 = 0, 1, 2, 3, 4
"""Calling conventions of `set_blas` in `products.h`."""


@dataclass(frozen=True)
class Library:
    """The loaded library."""

    functions: ctypes.CDLL
    """Functions of `update.cpp`; a call lets other Python threads run."""
    products: str
    """Matrix products: `own`, or those of `torch` or `numpy`."""
    bf16_products: str | None
    """Those in bf16: `own`, or those of `torch`; None where the processor or the compiler has no
    AVX512-bf16."""
    compiler: str
    """Program that compiled it."""


@dataclass(frozen=True)
class Blas:
    """Products of one number format."""

    name: str
    """`own`, or the package that brings them."""
    convention: int
    """Calling convention."""
    function: int
    """Address."""


_lock = threading.Lock()
"""Held while the library is loaded and its products are chosen."""
_chosen: dict[Path, str] = {}
"""Products that were chosen in this process, by record: a folder may be read-only."""


@functools.cache
def load() -> Library:
    """Build the library if the cache has none of this source, compiler and processor, and load it.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    with _lock:
        functions, path, compiler = native.load(SOURCE)
        functions.sac_workspace.restype = ctypes.c_int64
        functions.td3_workspace.restype = ctypes.c_int64
        chosen = {
            precision: _choose_blas(functions, precision, path)
            for precision in Precision
            if precision is Precision.fp32 or functions.has_bf16()
        }
    return Library(functions, chosen[Precision.fp32], chosen.get(Precision.bf16), compiler)


def _choose_blas(functions: ctypes.CDLL, precision: Precision, path: Path) -> str:
    """Have the library use the BLAS that was written down, or else the fastest; its name."""
    found = find_products(precision)
    versions = f"torch {torch.__version__}, numpy {np.__version__}"
    digest = hashlib.sha256(versions.encode()).hexdigest()[:8]
    record = path.with_suffix(f".{precision.value}-{digest}.json")
    best = _chosen.get(record) or _read_choice(record)
    if best not in found:
        seconds = {name: _time_products(functions, precision, found[name]) for name in found}
        best = min(seconds, key=lambda name: seconds[name])
        if seconds["own"] < _BLAS_MARGIN * seconds[best]:
            best = "own"
        first = _write_choice(record, {"blas": best, "versions": versions, "seconds": seconds})
        best = first if first in found else best
    _chosen[record] = best
    use_products(functions, precision, found[best])
    return best


def _read_choice(record: Path) -> str:
    """Products that were written down; empty if there are none."""
    try:
        return json.loads(record.read_text())["blas"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _write_choice(record: Path, content: dict[str, object]) -> str:
    """Write a choice down unless another process has done so; the one that is written there."""
    part = record.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):  # read-only, or full: it holds for this process
        part.write_text(json.dumps(content))
        if record.exists() and not _read_choice(record):
            record.unlink()  # damaged
        with contextlib.suppress(FileExistsError):
            os.link(part, record)
    with contextlib.suppress(OSError):
        part.unlink()
    return _read_choice(record)


def find_products(precision: Precision) -> dict[str, Blas]:
    """Products that there are on this machine, by name: `own`, and those of libraries."""
    libraries = {blas.name: blas for blas in _find_libraries(precision)}
    return {"own": Blas("own", _OWN, 0), **libraries}


def use_products(functions: ctypes.CDLL, precision: Precision, blas: Blas) -> None:
    """Have the library compute products of a number format so from now on."""
    functions.set_blas(_PRECISIONS[precision], blas.convention, ctypes.c_void_p(blas.function))


def _find_libraries(precision: Precision) -> Iterator[Blas]:
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
    if precision is Precision.bf16:  # with AMX several times as fast as ours
        names = (("torch", torch_library, "cblas_gemm_bf16bf16f32", _CBLAS_BF16),)
    for name, path, symbol, convention in names:
        try:
            function = getattr(ctypes.CDLL(str(path)), symbol) if path else None
        except (OSError, AttributeError):
            continue
        if function is not None:
            yield Blas(name, convention, ctypes.cast(function, ctypes.c_void_p).value or 0)


def _time_products(functions: ctypes.CDLL, precision: Precision, blas: Blas) -> float:
    """Process time of some products [s], the smallest of several trials."""
    use_products(functions, precision, blas)
    generator = np.random.default_rng(0)
    trials: list[Callable[[], None]] = []
    for rows, outputs, inputs in _BLAS_SHAPES:
        a = generator.standard_normal((rows, inputs), dtype=np.float32)
        b = generator.standard_normal((inputs, outputs), dtype=np.float32)
        c = np.empty((rows, outputs), dtype=np.float32)
        arguments = (
            _PRECISIONS[precision], 0, 0, rows, outputs, inputs,
            a.ctypes.data_as(ctypes.c_void_p), inputs, b.ctypes.data_as(ctypes.c_void_p), outputs,
            c.ctypes.data_as(ctypes.c_void_p), outputs,
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
