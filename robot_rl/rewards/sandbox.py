"""Runs a reward function in a process of its own that may compute, and nothing else.

The child (`sandbox_child.py`) has no network, files or processes, and bounded memory; an answer
that takes too long ends it. Arrays cross the pipes as plain bytes: neither side unpickles.
"""

import contextlib
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import RewardError
from robot_rl.rewards.function import check_source

_START_SECONDS = 30.0
"""Longest start: numpy is imported, on a machine that may be busy."""
_MOST_BYTES = 1 << 28
"""Longest answer [B]."""
_KINDS = {np.dtype(np.float32): b"f", np.dtype(np.uint8): b"b"}


class SandboxedFunction:
    """A `RewardFunction` out of a file, in a child process."""

    def __init__(self, path: Path | str, *, seconds: float = 1.0) -> None:
        """Read the file, refuse what is no plain function, and start the child.

        Args:
            path: Python file that defines `reward(obs)`.
            seconds: Longest time of an answer [s].

        Raises:
            RewardError: The file is refused, or does not run.
        """
        self.path, self._seconds = Path(path), seconds
        source = check_source(self.path).encode()
        child = Path(__file__).with_name("sandbox_child.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, bufsize=0, cwd="/",
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        try:
            self._send(struct.pack("<q", len(source)) + source, _START_SECONDS)
            answer = self._receive(_START_SECONDS)
        except RewardError:
            self.close()
            raise
        self.has_no_network = answer == b"\x01"
        """True where the kernel gave the child a network of its own, with nothing in it; else only
        the interpreter refuses to speak to one."""

    def __call__(self, obs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Rewards of N frames, of whatever shape the function gave.

        Raises:
            RewardError: It raised, took too long, or the child is gone.
        """
        self._send(_encoded(obs), self._seconds)
        content = self._receive(self._seconds)
        (ndim,) = struct.unpack_from("<i", content)
        shape = struct.unpack_from(f"<{ndim}q", content, 4)
        return np.frombuffer(content[4 + 8 * ndim :], np.float32).reshape(shape).copy()

    def close(self) -> None:
        """End the child; allowed more than once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def _send(self, content: bytes, seconds: float) -> None:
        assert self._process.stdin is not None
        pipe, end = self._process.stdin.fileno(), time.monotonic() + seconds
        left = memoryview(content)
        while left:
            if not select.select([], [pipe], [], max(0.0, end - time.monotonic()))[1]:
                raise self._late(seconds)
            try:
                left = left[os.write(pipe, left[: 1 << 16]) :]
            except OSError:
                raise self._gone() from None

    def _receive(self, seconds: float) -> bytes:
        end = time.monotonic() + seconds
        (size,) = struct.unpack("<q", self._read(8, end, seconds))
        if not 0 < size < _MOST_BYTES:
            self.close()
            raise RewardError(f"the reward function {self.path} answered with {size:,} bytes")
        content = self._read(size, end, seconds)
        if content[:1] == b"\x00":
            raise RewardError(
                f"the reward function {self.path} failed{content[1:].decode(errors='replace')}"
            )
        return content[1:]

    def _read(self, size: int, end: float, seconds: float) -> bytes:
        assert self._process.stdout is not None
        pipe, parts = self._process.stdout.fileno(), bytearray()
        while len(parts) < size:
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                raise self._late(seconds)
            found = os.read(pipe, min(1 << 20, size - len(parts)))
            if not found:
                raise self._gone()
            parts += found
        return bytes(parts)

    def _late(self, seconds: float) -> RewardError:
        self.close()
        return RewardError(
            f"the reward function {self.path} took longer than {seconds:g} s and was ended; "
            "expected a function of arrays without loops over frames"
        )

    def _gone(self) -> RewardError:
        self.close()
        return RewardError(
            f"the process of the reward function {self.path} ended with the code "
            f"{self._process.returncode}: it asked for more memory than it may have, or was killed"
        )


def _encoded(obs: Mapping[str, NDArray[Any]]) -> bytes:
    parts = [struct.pack("<i", len(obs))]
    for name, value in obs.items():
        array = np.ascontiguousarray(value, None if value.dtype == np.uint8 else np.float32)
        text = name.encode()
        parts += [
            struct.pack("<i", len(text)), text, _KINDS[array.dtype],
            struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape), array.tobytes(),
        ]  # fmt: skip
    return b"".join(parts)
