"""Sessions in a domain of their own, and bundles of untrained policies."""

from collections.abc import Callable, Iterator

import pytest
import torch

from hardware.ros import robot_inputs
from hardware.ros.compat import inspect_environment
from hardware.ros.session import RosSession

if inspect_environment().rclpy is None:  # tests/hardware/ros/test_session.py says so
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def sessions(domain: int) -> Iterator[Callable[..., RosSession]]:
    """Make nodes that nobody outside this test process hears."""
    made: list[RosSession] = []

    def make(name: str, namespace: str = "/robot") -> RosSession:
        made.append(RosSession(name, namespace=namespace, domain=domain))
        return made[-1]

    yield make
    for session in made:
        session.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements may be as old as a busy machine makes them between two lines of a test."""
    monkeypatch.setattr(robot_inputs, "_LEAST_AGE", 1.5)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
