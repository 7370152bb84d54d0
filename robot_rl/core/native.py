"""Loader of C++ files: the system's compiler builds each once into a cache folder.

A file that is built so needs no headers but the standard ones. There is no build step in an
installation: a machine without a compiler takes another way, and says why.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
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

    Without a compiler the newest that the cache has of this source and processor will do.

    Returns:
        Its functions, whose calls let other Python threads run; its file; and the name of the
        compiler.

    Raises:
        CompileError: There is no compiler, or it fails; a second call says so at once.
    """
    loaded = _load(source, cache_folder(), os.environ.get("CXX") or "")
    if isinstance(loaded, str):
        raise CompileError(loaded)
    return loaded


@functools.cache
def _load(source: Source, folder: Path, wanted: str) -> tuple[ctypes.CDLL, Path, str] | str:
    """`load`, or why there is none: a compiler that hangs is waited for once."""
    try:
        return _load_or_build(source, folder, wanted)
    except CompileError as error:
        return str(error)
    except OSError as error:
        return f"a library in {folder} could not be written or loaded: {error}"


def _load_or_build(source: Source, folder: Path, wanted: str) -> tuple[ctypes.CDLL, Path, str]:
    try:
        compiler = _find_compiler(wanted)
    except CompileError:
        # Of a version that is not known: its name tells nothing else.
        built = sorted(folder.glob(f"{_stem(source)}-*.so"), key=lambda path: path.stat().st_mtime)
        if not built:
            raise
        return ctypes.CDLL(str(built[-1])), built[-1], "the cache, without a compiler"
    path = folder / f"{_stem(source)}-{_digest(_version(compiler))}.so"
    name = Path(compiler[0]).name
    try:
        return ctypes.CDLL(str(path)), path, name
    except OSError:  # there is none yet, or it is damaged
        _build(source, compiler, path)
        return ctypes.CDLL(str(path)), path, name


def library_path(source: Source) -> Path:
    """File of the library of this source, compiler and processor.

    Raises:
        CompileError: There is no compiler.
    """
    compiler = _find_compiler(os.environ.get("CXX") or "")
    return cache_folder() / f"{_stem(source)}-{_digest(_version(compiler))}.so"


def cache_folder() -> Path:
    """Folder of compiled libraries: `$ROBOT_RL_CACHE`, or `robot_rl` in the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robot_rl"


def _find_compiler(wanted: str) -> list[str]:
    """Words of the command that compiles, those of CXX if it is set."""
    for words in [shlex.split(wanted)] if wanted else [["g++"], ["clang++"], ["c++"]]:
        found = shutil.which(words[0]) if words else None
        if found:
            return [found, *words[1:]]
    raise CompileError(
        f"the compiler named by CXX, '{wanted}', was not found" if wanted
        else "no C++ compiler was found (g++, clang++ or c++)"
    )  # fmt: skip


def _version(compiler: list[str]) -> str:
    """Command and version of a compiler."""
    try:
        said = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"{shlex.join(compiler)} --version failed: {error}") from error
    return "\0".join((*compiler, said))


def _stem(source: Source) -> str:
    """First part of a library's name: source, options and processor."""
    text = "".join(path.read_text() for path in (source.path, *source.headers))
    return f"{source.path.stem}-{_digest(text, ' '.join(source.flags), _processor())}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Units of the processor: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "model name", "CPU part")
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(wanted)}))


def _build(source: Source, compiler: list[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved: several processes may build at once, and one may be killed.
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".so.part")
    os.close(handle)
    try:
        subprocess.run(
            [*compiler, *source.flags, "-o", name, str(source.path)],
            capture_output=True, text=True, timeout=_BUILD_SECONDS, check=True,
        )  # fmt: skip
        os.chmod(name, 0o755)  # other users may share the folder
        os.replace(name, path)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line] or ["no message"]
        raise CompileError(f"{shlex.join(compiler)} failed: {lines[0].strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"{shlex.join(compiler)} took more than {_BUILD_SECONDS} s") from error
    finally:
        Path(name).unlink(missing_ok=True)
