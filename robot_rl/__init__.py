"""Off-policy learning for robots; the names below are the whole of it from Python.

They are loaded when they are first asked for: `import robot_rl` itself needs no torch. Their types
are in `__init__.pyi`.
"""

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from robot_rl.core.process import check_one_root, put_own_packages_first

try:
    __version__ = version("robot_rl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_API = ("train", "load_run", "TrainedRun", "Report", "make_env", "make_learner",
        "make_replay", "Policy")  # fmt: skip
_PLACES = dict.fromkeys(_API, "robot_rl.cli.api") | {
    "load_bundle": "policies.bundle", "load_policy": "policies.env_policy"
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        near = get_close_matches(name, _PLACES, n=1)
        raise AttributeError(
            f"module 'robot_rl' has no attribute '{name}'; it has {', '.join(_PLACES)}"
            + (f"; did you mean '{near[0]}'?" if near else "")
        )
    put_own_packages_first(modules_too=False)
    check_one_root()
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return ["__version__", *_PLACES]
