"""Loader of C++ files: the system's compiler builds each once into a cache folder.

A file that is built so needs no headers but the standard ones. There is no build step in an
installation: a machine without a compiler takes another way, and says why.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "ROBOT_RL_CACHE"
"""Environment variable that names another folder for what is compiled."""

_FLAGS = (
    "-std=c++17", "-O2", "-ftree-vectorize", "-march=native", "-fopenmp-simd", "-fno-math-errno",
    "-fno-trapping-math", "-shared", "-fPIC",
)  # fmt: skip
"""None of them lets the compiler assume that there are no NaN."""

_BUILD_SECONDS = 120
"""Time after which a compiler is given up."""


class CompileError(Exception):
    """A file could not be compiled or loaded; its message says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A C++ file, and how it is compiled."""

    path: Path
    """The library is named after it."""
    contract: bool
    """Let the compiler join a product and a sum into one instruction, which rounds once: faster,
    and other last digits than two operations."""
    headers: tuple[Path, ...] = ()
    """Files of ours that it includes."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Options of the compiler."""
        return (*_FLAGS, "-ffp-contract=fast" if self.contract else "-ffp-contract=off")


def load(source: Source) -> tuple[ctypes.CDLL, Path, str]:
    """Build a library if the cache has none of this source, compiler and processor, and load it.

    Returns:
        Its functions, whose calls let other Python threads run; its file; and the name of the
        compiler.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    compiler, path = _find_compiler(), library_path(source)
    try:
        try:
            functions = ctypes.CDLL(str(path))
        except OSError:  # there is none yet, or it is damaged
            _build(source, compiler, path)
            functions = ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"{path} could not be written or loaded: {error}") from error
    return functions, path, Path(compiler).name


def library_path(source: Source) -> Path:
    """File of the library of this source, compiler and processor.

    Raises:
        CompileError: There is no compiler.
    """
    return cache_folder() / f"{source.path.stem}-{_key(source, _find_compiler())}.so"


def cache_folder() -> Path:
    """Folder of compiled libraries: `$ROBOT_RL_CACHE`, or `robot_rl` in the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robot_rl"


def _find_compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "clang++", "c++"]:
        found = shutil.which(name)
        if found:
            return found
    raise CompileError(
        f"the compiler named by CXX, '{wanted}', was not found" if wanted
        else "no C++ compiler was found (g++, clang++ or c++)"
    )  # fmt: skip


def _key(source: Source, compiler: str) -> str:
    """Digest of everything that decides the machine code."""
    try:
        version = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"{compiler} --version failed: {error}") from error
    text = "".join(path.read_text() for path in (source.path, *source.headers))
    parts = (text, " ".join(source.flags), compiler, version, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Units of the processor: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "model name", "CPU part")
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(wanted)}))


def _build(source: Source, compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved: several processes may build at once, and one may be killed.
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".so.part")
    os.close(handle)
    try:
        subprocess.run(
            [compiler, *source.flags, "-o", name, str(source.path)],
            capture_output=True, text=True, timeout=_BUILD_SECONDS, check=True,
        )  # fmt: skip
        os.replace(name, path)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line] or ["no message"]
        raise CompileError(f"{compiler} failed: {lines[0].strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"{compiler} took more than {_BUILD_SECONDS} s") from error
    finally:
        Path(name).unlink(missing_ok=True)
