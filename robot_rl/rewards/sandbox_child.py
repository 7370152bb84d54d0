"""The process in which a reward function runs; started by path, imports nothing of ours.

It gives its rights away before it runs a line of the function: a network namespace of its own where
the kernel allows one, bounded memory, no files to write. Over that a hook that cannot be taken off
again refuses every event of the interpreter that reaches beyond numbers: it alone keeps files from
being read.
"""

import ctypes
import difflib
import os
import resource
import struct
import sys
from typing import Any, BinaryIO

import numpy as np
import numpy.fft
import numpy.linalg
import numpy.random

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
"""Flags of unshare(2)."""
_REFUSED = (
    "code.", "compile", "cpython.", "ctypes.", "exec", "fcntl.", "import", "marshal.", "mmap.",
    "open", "os.", "pickle.", "pty.", "resource.", "shutil.", "socket.", "subprocess.", "sys.",
)  # fmt: skip
"""Beginnings of events that are refused (Python's table of audit events)."""
_BUILTINS = (
    "abs", "all", "any", "bool", "dict", "enumerate", "filter", "float", "int", "isinstance", "len",
    "list", "map", "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "str", "sum",
    "tuple", "zip", "KeyError", "ValueError",
)  # fmt: skip
_MODULES = ("math", "numpy")
_DTYPES = {b"f": np.float32, b"b": np.uint8}
_FILE = "reward.py"
"""Name of the function's file in tracebacks."""
_MOST_BYTES = 2000
"""Longest sentence about an error [B]."""
MEMORY = 4 << 30
"""Address space [B]; numpy's libraries reserve much more than they use."""


class UnknownTermError(KeyError):
    """A function asked for a term that an observation does not have."""

    def __str__(self) -> str:
        """The sentence itself; a `KeyError` would put it in quotes."""
        return str(self.args[0])


class Terms(dict[str, np.ndarray]):
    """Arrays by name; a name that is missing is told with the nearest and all that there are."""

    def __missing__(self, name: object) -> np.ndarray:
        """Refuse a name.

        Raises:
            UnknownTermError: Always.
        """
        near = difflib.get_close_matches(str(name), self, n=1, cutoff=0.5)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise UnknownTermError(f"term '{name}' is unknown{hint}; known: {', '.join(sorted(self))}")


def main() -> None:
    """Read the source, give the rights away, then answer until the parent is gone."""
    take = os.fdopen(os.dup(0), "rb")
    give = os.fdopen(os.dup(1), "wb")
    (size,) = struct.unpack("<q", take.read(8))
    code = compile(take.read(size), _FILE, "exec")
    alone = _give_rights_away()
    space: dict[str, Any] = {"__builtins__": _builtins(), "__name__": "reward"}
    allowed = ["exec"]  # once: of the file itself, whose imports are those that are there already

    def guard(event: str, _: object) -> None:
        if event in allowed:
            allowed.remove(event)
        elif event.startswith(_REFUSED):
            raise PermissionError(f"it reached for '{event}'")

    try:
        sys.addaudithook(guard)
        exec(code, space)  # defines the function
        _answer(give, b"\x01" + (b"\x01" if alone else b"\x00"))
        while len(header := take.read(4)) == 4:
            try:
                value = np.asarray(space["reward"](_read(take, header)), dtype=np.float32)
                shape = struct.pack(f"<i{value.ndim}q", value.ndim, *value.shape)
                _answer(give, b"\x01" + shape + value.tobytes())
            except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it
                _answer(give, b"\x00" + _sentence(error))
    except BaseException as error:  # noqa: BLE001 - an exit or a lack of memory too
        _answer(give, b"\x00" + _sentence(error))


def _give_rights_away() -> bool:
    """Leave the network, and bound memory and files; returns whether the network is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    alone = libc.unshare(_NEW_USER | _NEW_NETWORK) == 0
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        resource.setrlimit(kind, (most, most))
    return alone


def _builtins() -> dict[str, Any]:
    """The builtins that a function may use, and an import of what is there already."""
    import builtins

    def importing(name: str, *rest: Any) -> Any:
        # numpy imports parts of itself when it is first asked for a sum.
        if name.partition(".")[0] not in _MODULES or name not in sys.modules:
            raise PermissionError(f"it imports '{name}'")
        return builtins.__import__(name, *rest)

    found = {name: getattr(builtins, name) for name in _BUILTINS}
    return {**found, "__import__": importing}


def _read(take: BinaryIO, header: bytes) -> Terms:
    """Arrays by name: count, then name, kind, shape and bytes of each."""
    obs = Terms()
    for _ in range(*struct.unpack("<i", header)):
        (length,) = struct.unpack("<i", take.read(4))
        name, kind = take.read(length).decode(), take.read(1)
        (ndim,) = struct.unpack("<i", take.read(4))
        shape = struct.unpack(f"<{ndim}q", take.read(8 * ndim))
        dtype = np.dtype(_DTYPES[kind])
        size = int(np.prod(shape)) * dtype.itemsize
        obs[name] = np.frombuffer(take.read(size), dtype).reshape(shape)
    return obs


def _answer(give: BinaryIO, content: bytes) -> None:
    give.write(struct.pack("<q", len(content)) + content)
    give.flush()


def _sentence(error: BaseException) -> bytes:
    """The line of the function's file, where it is known, and the error."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    kind = "" if isinstance(error, UnknownTermError) else f"{type(error).__name__}: "
    return f"{f' in line {line}' if line else ''}: {kind}{error}".encode()[:_MOST_BYTES]


if __name__ == "__main__":
    main()
