"""Settings of a whole process: origin of its packages, environment of its children, allocator.

Needs the standard library only, so that it can speak before anything else is imported.
"""

import ctypes
import gc
import importlib.util
import os
import re
import resource
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from robot_rl.core.errors import RobotRLError

PACKAGES = ("robot_rl", "sim", "hardware", "policies", "configs")
"""The packages that are installed together and must be found together."""

_ROS_GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"
_ROS_LIBRARIES = re.compile(r"^(?P<prefix>.+)/lib/python[\d.]+t?/site-packages/ros_[^/]*\.libs/?$")


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


class InstallationError(RobotRLError):
    """The packages of this project are not found, or not in one place."""


def put_own_packages_first(*, modules_too: bool) -> None:
    """Let our packages be found, whatever folders of their names lie where a program is called.

    `python -m` looks in the present folder first, and an editable installation comes last, behind
    even a folder without `__init__.py`. Processes that are started from here inherit the order.

    Args:
        modules_too: Pass folders with modules by, as a command may; a program's own would vanish.
    """
    roots = {name: _root_of(name) for name in PACKAGES}
    root = roots[PACKAGES[0]]
    strangers = {name: found for name, found in roots.items() if found not in (None, root)}
    if not modules_too and any(found and _has_modules(found, n) for n, found in strangers.items()):
        return
    for name in strangers:
        stranger = _root_of(name)  # may be passed by already
        if stranger is None or stranger == root:
            continue
        places = [Path(entry or ".").resolve() for entry in sys.path]
        first = places.index(stranger) if stranger in places else 0
        if root not in places:
            sys.path.insert(first, str(root))
        elif stranger in places:
            sys.path.append(sys.path.pop(first))
        importlib.invalidate_caches()


def check_one_root(packages: Sequence[str] = PACKAGES) -> Path:
    """Check that all packages lie in one folder, and return it. Imports none of them.

    `sim` and `configs` are names that others use too: a stray folder earlier on the path would be
    imported instead of ours, and the failure would surface far away.

    Raises:
        InstallationError: A package is missing, or lies elsewhere than `packages[0]`.
    """
    roots = {name: _root_of(name) for name in packages}
    expected = roots[packages[0]]
    missing = [name for name, root in roots.items() if root is None]
    strange = {name: root for name, root in roots.items() if root not in (None, expected)}
    if strange:
        found = " and ".join(f"{root / name}" for name, root in strange.items() if root)
        names = ", ".join(strange)
        raise InstallationError(
            f"{found} would be imported in the place of robot_rl's own {names}, which "
            f"{'lies' if len(strange) == 1 else 'lie'} in {expected}: rename yours, start from "
            "another folder or take it off PYTHONPATH, or put your modules into a package "
            "(robot-rl new project makes one)"
        )
    if expected is None or missing:
        raise InstallationError(
            f"the packages {', '.join(packages)} are installed together, but "
            f"{', '.join(missing)} cannot be found; install again: pip install robot_rl, or "
            "pip install -e . in its source"
        )
    return expected


def clean_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a child process, without what the ROS 2 wheels leave behind in ours.

    At interpreter start the wheels' bootstrapper (0.1.2) adds `<prefix>/lib` and each
    `<prefix>/.../site-packages/ros_*.libs` to LD_LIBRARY_PATH, sets a guard variable and starts the
    interpreter again. A child that inherits both and belongs to another environment silently loads
    the libraries of this one. Without them each child finds its own. Entries that the user set are
    kept in order, with one exception: an own `<prefix>/lib` looks the same as the bootstrapper's.
    """
    environ = dict(os.environ)
    if environ.pop(_ROS_GUARD, None):
        entries = [entry for entry in environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
        matches = [_ROS_LIBRARIES.match(entry) for entry in entries]
        prefixes = {sys.prefix, *(match["prefix"] for match in matches if match)}
        libraries = {os.path.realpath(os.path.join(prefix, "lib")) for prefix in prefixes}
        kept = [
            entry
            for entry, match in zip(entries, matches, strict=True)
            if not match and os.path.realpath(entry) not in libraries
        ]
        environ.pop("LD_LIBRARY_PATH", None)
        if kept:
            environ["LD_LIBRARY_PATH"] = ":".join(kept)
    environ.update(extra or {})
    return environ


def _has_modules(place: Path, name: str) -> bool:
    """True if a folder holds a package or a module of this name, and not only files."""
    inside = ("*.py", "*/*.py")
    return (place / f"{name}.py").is_file() or any(any((place / name).glob(p)) for p in inside)


def _root_of(package: str) -> Path | None:
    """Folder that holds the package's folder; None where the package is not found."""
    loaded = sys.modules.get(package)
    if loaded is not None:
        places = list(getattr(loaded, "__path__", []))
    else:
        spec = importlib.util.find_spec(package)
        places = list(spec.submodule_search_locations or []) if spec else []
        if spec and not places and spec.origin:  # a module of that name, `sim.py`
            places = [spec.origin]
    # A folder without __init__.py that lies in several places counts as the first, as on import.
    return Path(places[0]).resolve().parent if places else None


def keep_freed_memory() -> None:
    """Make the allocator keep what tensors give back, instead of returning it to the system.

    glibc maps every block above 128 KiB anew, and the kernel zeroes its pages at first touch: for
    networks over thousands of envs that costs as much as the arithmetic. Does nothing elsewhere.
    """
    try:
        allocator = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    if not hasattr(allocator, "mallopt"):
        return
    allocator.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the largest that glibc takes
    allocator.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


@contextmanager
def nothing_collected() -> Generator[None]:
    """Meanwhile no garbage is collected: what it gives back would be part of a captured graph."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def peak_bytes() -> int:
    """Most memory that this program has had; `ru_maxrss` begins with that of who started it."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass  # not Linux
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
