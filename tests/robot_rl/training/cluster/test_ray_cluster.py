"""What is refused before a collector waits for a place that does not exist."""

import importlib

import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.training.cluster.config import ClusterConfig


@pytest.mark.slow
def test_more_collectors_than_fit_are_refused(monkeypatch):
    module = importlib.import_module("robot_rl.training.cluster.ray_cluster")  # takes a second
    monkeypatch.setattr(module.ray, "cluster_resources", lambda: {"CPU": 3.0})
    module.check_room(ClusterConfig(collectors=3))
    module.check_room(ClusterConfig(collectors=6, cpus=0.5))
    with pytest.raises(ConfigError, match=r"collectors=4 need 4 CPU, and the cluster has 3; take"):
        module.check_room(ClusterConfig(collectors=4))
    with pytest.raises(ConfigError, match=r"need 1 GPU, and the cluster has 0"):
        module.check_room(ClusterConfig(collectors=1, device="cuda"))


@pytest.mark.slow
def test_of_an_error_elsewhere_the_cause_is_told():
    module = importlib.import_module("robot_rl.training.cluster.ray_cluster")
    assert (
        module.last_line(RuntimeError("ray::x()\n  File y\nKeyError: 'z'\n\n")) == "KeyError: 'z'"
    )
    assert module.last_line(RuntimeError()) == "RuntimeError"
