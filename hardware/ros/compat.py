"""Finds ROS 2 and imports it: the one place in this project that imports rclpy.

Two installations are known. On a robot ROS comes from its own packages (`source
/opt/ros/<distro>/setup.bash`); on a workstation it may come from wheels (the extra `ros2`, Linux on
x86-64 only). Either is fine. Both at once are not: which libraries are loaded then depends on the
order of a search path that the wheels build from a set, so it changes from start to start.

A wrong `RMW_IMPLEMENTATION` must be found before rclpy starts: it would end the process with exit
code 102 instead of raising anything.
"""

import ctypes
import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from robot_rl.core.errors import RobotRLError

_REMEDIES = (
    "on a robot or with ROS installed: source /opt/ros/<distro>/setup.bash and use a virtual "
    "environment made with --system-site-packages by the same Python; on Linux x86-64 without ROS: "
    "pip install 'robot_rl[ros2]'"
)
_PLUGINS_THAT_ARE_NONE = ("rmw_dds_common", "rmw_security_common")
_UNSET = "unset PYTHONPATH AMENT_PREFIX_PATH LD_LIBRARY_PATH"


class RosError(RobotRLError):
    """ROS 2 is absent, or cannot be used as it is set up."""


@dataclass(frozen=True, kw_only=True)
class RosFacts:
    """Traces of ROS 2 before anything of it is imported."""

    rclpy: Path | None
    """Folder of the package rclpy that would be imported; None where there is none."""
    prefix: Path
    """This interpreter's environment."""
    extension: str
    """Ending of C extensions that this interpreter loads, such as `.cpython-311-...so`."""
    wheels: bool
    """The wheels are installed in this environment."""
    environ: Mapping[str, str]

    @property
    def sourced(self) -> list[Path]:
        """Prefixes of ROS installations that were sourced."""
        found = self.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
        return [Path(entry) for entry in found if entry and Path(entry) != self.prefix]


@dataclass(frozen=True, kw_only=True)
class RosInstallation:
    """The one that will be used."""

    origin: str
    """`wheels` in this environment, or a `system` that was sourced."""
    rclpy: Path
    distro: str
    """Such as `kilted`; "unknown" where nobody says."""
    implementations: list[str]
    """RMW implementations that are installed."""
    rmw: str
    """The one that was asked for; empty leaves the choice to ROS."""


def inspect_environment() -> RosFacts:
    """Traces of ROS 2 that this process sees; imports nothing of it."""
    spec = importlib.util.find_spec("rclpy")
    places = list(spec.submodule_search_locations or []) if spec else []
    site = Path(sysconfig.get_path("purelib"))
    return RosFacts(
        rclpy=Path(places[0]) if places else None,
        prefix=Path(sys.prefix),
        extension=str(sysconfig.get_config_var("EXT_SUFFIX")),
        wheels=any(site.glob("ros_rclpy-*.dist-info")),
        environ=dict(os.environ),
    )


def choose_installation(facts: RosFacts) -> RosInstallation:
    """Decide which installation is used.

    Raises:
        RosError: There is none, there are two, or it was made for another Python or without the
            RMW implementation that is asked for; the message says what to do.
    """
    if facts.rclpy is None:
        raise RosError(f"ROS 2 was asked for, but Python finds no package rclpy; {_REMEDIES}")
    ours = facts.rclpy.is_relative_to(facts.prefix)
    if facts.wheels and (not ours or facts.sourced):
        others = ", ".join(map(str, facts.sourced)) or str(facts.rclpy)
        raise RosError(
            f"two ROS 2 installations are visible: wheels in {facts.prefix} and {others}; which "
            f"libraries would be loaded is a matter of luck. To use the wheels: {_UNSET}; to use "
            "the other: take a virtual environment without the extra ros2"
        )
    if not any(facts.rclpy.glob(f"_rclpy_pybind11{facts.extension}")):
        built = [path.name.partition(".")[2] for path in facts.rclpy.glob("_rclpy_pybind11.*")]
        raise RosError(
            f"rclpy in {facts.rclpy} was built for {', '.join(built) or 'no Python at all'}, but "
            f"this interpreter loads {facts.extension.lstrip('.')}; {_REMEDIES}"
        )
    known = _implementations([facts.prefix] if ours else facts.sourced)
    rmw = facts.environ.get("RMW_IMPLEMENTATION", "")
    if rmw and known and rmw not in known:
        raise RosError(
            f"RMW_IMPLEMENTATION={rmw} is not installed; installed: {', '.join(known)}; unset it "
            "or choose one of these (ROS would end this process without an exception)"
        )
    return RosInstallation(
        origin="wheels" if ours else "system",
        rclpy=facts.rclpy,
        distro=_distro(facts, ours),
        implementations=known,
        rmw=rmw,
    )


def _implementations(prefixes: list[Path]) -> list[str]:
    names = {
        path.stem.removeprefix("lib")
        for prefix in prefixes
        for path in prefix.glob("lib/librmw_*.so")
        if "__" not in path.stem and "shared" not in path.stem
    }
    return sorted(names - {*_PLUGINS_THAT_ARE_NONE, "rmw_implementation"})


def _distro(facts: RosFacts, ours: bool) -> str:
    if not ours:
        return facts.environ.get("ROS_DISTRO", "unknown")
    site = Path(sysconfig.get_path("purelib"))
    named = sorted(path.name.split("_")[1] for path in site.glob("ros_*_rclpy-*.dist-info"))
    return named[0] if named else "unknown"


@lru_cache(maxsize=1)
def require_ros() -> RosInstallation:
    """Make rclpy importable and import it; the second call costs nothing.

    Raises:
        RosError: As `choose_installation`, or the libraries of ROS cannot be loaded.
    """
    found = choose_installation(inspect_environment())
    try:
        importlib.import_module("rclpy")
    except ImportError:
        try:
            if found.origin == "system":
                raise
            for name in [name for name in sys.modules if name.partition(".")[0] == "rclpy"]:
                del sys.modules[name]
            _load_libraries(Path(sys.prefix))
            importlib.import_module("rclpy")
        except ImportError as again:
            raise RosError(f"rclpy in {found.rclpy} cannot be loaded: {again}") from None
    return found


def rclpy(part: str = "") -> ModuleType:
    """The package rclpy, or a module of it, such as `rclpy("qos")`.

    Raises:
        RosError: See `require_ros`.
    """
    require_ros()
    return importlib.import_module(f"rclpy.{part}" if part else "rclpy")


def message(package: str, name: str) -> type:
    """A message or service type, such as `message("sensor_msgs", "JointState")`.

    Raises:
        RosError: There is no ROS 2, or it lacks the package.
    """
    require_ros()
    for kind in ("msg", "srv"):
        try:
            module = importlib.import_module(f"{package}.{kind}")
        except ModuleNotFoundError:
            continue
        if hasattr(module, name):
            return getattr(module, name)
    wheel = f"ros-{package.replace('_', '-')}"
    raise RosError(
        f"ROS 2 has no {package}/{name}; install ros-<distro>-{package.replace('_', '-')} beside a "
        f"system ROS, or the wheel {wheel} (extra ros2)"
    )


def _load_libraries(prefix: Path) -> None:
    """Load every library of the wheels by its path, as long as another one can be loaded.

    Needed where LD_LIBRARY_PATH was taken away after the wheels' bootstrapper had set it (service
    managers), or is ignored (file capabilities): the loader then finds none of them by name.
    """
    site = Path(sysconfig.get_path("purelib"))
    # Several wheels bring copies of the same library: one of each name is enough.
    found = {path.name: path for path in [*prefix.glob("lib/lib*.so"), *site.glob("ros_*.libs/*")]}
    waiting = list(found.values())
    while waiting:
        left = [path for path in waiting if not _loads(path)]
        if len(left) == len(waiting):
            return
        waiting = left


def _loads(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError:
        return False
    return True
