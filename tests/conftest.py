"""Settings of every test: one thread, fixed examples, no network, and what is skipped where.

Coverage of `robot_rl` (without its commands) and `policies` is what their own tests reach: others
run untraced, as tracing makes them up to twice as long and adds nothing.
"""

import copy
import functools
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.ros_domains import own_domain

# Before torch is imported anywhere, child processes included: two workers with one thread each are
# faster on two cores than two with two, and results do not depend on the machine's core count.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ.setdefault("WANDB_MODE", "offline")
# Where it is set, every process that a test starts compiles all of our modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products with the same bits, on a GPU

hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # says how busy the machine is
)  # fmt: skip
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--full`."""
    parser.addoption(
        "--full", action="store_true", help="run whole matrices too (marker `full`): make test-all"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the Warp kernels once, in the controller, before workers want them at the same time.

    Warp keeps them in the user's cache, one folder per version; later sessions find them there.
    """
    config = session.config
    has_workers = bool(getattr(config.option, "numprocesses", None))
    if not has_workers or hasattr(config, "workerinput") or config.option.collectonly:
        return
    try:
        from sim.physics.multirotor_engine import compile_kernels
    except (
        ImportError
    ):  # without Warp nothing is compiled; the tests that need it say so themselves
        return
    compile_kernels("cpu")


def pytest_runtest_setup() -> None:
    """Let torch read its table of ONNX operators once: half of every export after the first."""
    if "torch.onnx" in sys.modules:
        _trace_no_export()
    exporter: Any = sys.modules.get("torch.onnx._internal.exporter._registration")
    if exporter is None or hasattr(exporter, "tables"):
        return
    registry = exporter.ONNXRegistry
    exporter.tables = functools.cache(registry.from_torchlib)

    def from_torchlib(**version: int) -> Any:
        """A table of its own, to which an export may add."""
        table = copy.copy(exporter.tables(**version))
        table.functions = {name: list(found) for name, found in table.functions.items()}
        return table

    registry.from_torchlib = staticmethod(from_torchlib)


@functools.cache
def _trace_no_export() -> None:
    """Stop coverage's tracer in exports, which are slowed down by half: they are all Python.

    Of our lines they run those of a network alone, as every other call of the network does.
    """
    onnx: Any = sys.modules["torch.onnx"]
    export = onnx.export

    @functools.wraps(export)
    def untraced(*arguments: Any, **options: Any) -> Any:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return export(*arguments, **options)
        finally:
            sys.settrace(tracer)

    onnx.export = untraced


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that are slow as a whole: importing them takes seconds in every worker."""
    if config.option.markexpr != "not slow" or not collection_path.name.startswith("test_"):
        return None
    return True if _SLOW_FILE.search(collection_path.read_text(encoding="utf-8")) else None


class Unavailable(pytest.Item):
    """One skip instead of all the tests of a class or a function that this machine cannot run."""

    def __init__(self, *, reason: str, **rest: Any) -> None:
        """Take the reason."""
        super().__init__(**rest)
        self.reason = reason

    def runtest(self) -> None:
        """Skip."""
        pytest.skip(self.reason)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Unavailable | None:
    """Collect nothing of what needs a device that this machine lacks: a matrix takes seconds."""
    if not name.startswith(("Test", "test_")):
        return None
    for mark in getattr(obj, "pytestmark", ()):
        if mark.name in _REASONS and (reason := _reason_to_skip(mark.name)):
            return Unavailable.from_parent(collector, name=name, reason=reason)
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why; trace what coverage is measured by."""
    if not config.getoption("full"):
        rest = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=rest)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    for item in items:
        if not item.nodeid.startswith(_MEASURED) or item.nodeid.startswith(_COMMANDS):
            item.add_marker(pytest.mark.no_cover)
        for marker in _REASONS:
            if item.get_closest_marker(marker) and (reason := _reason_to_skip(marker)):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failure when it happens: who stops a long session half way knows it too."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = (crash.message if crash else report.longreprtext).strip().splitlines() or [""]
        print(f"\nfailed ({report.when}, {report.duration:.0f} s): {report.nodeid}\n    {said[0]}")  # noqa: T201


@pytest.fixture(scope="session")
def gl(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where this machine has neither EGL nor OSMesa."""
    from sim.rendering.video import RenderUnavailableError, contact_sheet
    from tests.sim.rendering.shown import spiral

    try:
        contact_sheet(
            spiral(1, 2), tmp_path_factory.mktemp("gl") / "probe.png", times=[0.0],
            cell_width=16, cell_height=16,
        )  # fmt: skip
    except RenderUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No compiled library is loaded or in the cache, nor one of this test after it."""
    from robot_rl.buffers import compiled_returns
    from robot_rl.core import native
    from robot_rl.learners.compiled import library

    monkeypatch.setenv(native.CACHE_VARIABLE, str(tmp_path / "cache"))
    for load in (loads := (compiled_returns.load, library.load)):
        load.cache_clear()
    yield
    for load in loads:
        load.cache_clear()


def _no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device on this machine"


def _no_ros() -> str | None:
    found = importlib.util.find_spec("rclpy") is not None
    return None if found else "rclpy is not installed: pip install -c constraints.txt -e '.[ros2]'"


def _no_browser() -> str | None:
    for package, extra in (("playwright", "dev"), ("viser", "ui")):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: pip install -c constraints.txt -e '.[{extra}]'"
    names = ("chromium", "chromium-browser", "google-chrome")
    return (
        None
        if any(map(shutil.which, names))
        else f"no browser found (looked for {', '.join(names)})"
    )


def _no_robot() -> str | None:
    allowed = os.environ.get("ROBOT_RL_TEST_ROBOT") == "1"
    return None if allowed else "moves real hardware: set ROBOT_RL_TEST_ROBOT=1 beside the robot"


_SLOW_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.slow", re.MULTILINE)
_MEASURED, _COMMANDS = ("tests/robot_rl/", "tests/policies/"), "tests/robot_rl/cli/"
_REASONS = {"gpu": _no_gpu, "ros": _no_ros, "browser": _no_browser, "robot": _no_robot}


@functools.cache
def _reason_to_skip(marker: str) -> str | None:
    return _REASONS[marker]()


@pytest.fixture(scope="session")
def domain() -> Iterator[int]:
    """A ROS domain of this test process alone."""
    with own_domain() as number:
        yield number
