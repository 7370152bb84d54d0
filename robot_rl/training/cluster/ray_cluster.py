"""The cluster of Ray that collectors run in: joined, or started for this process alone.

The one file that imports Ray.
"""

import logging
import math
import os
from typing import Any

from robot_rl.core.errors import ConfigError, MissingExtraError
from robot_rl.training.cluster.config import ClusterConfig

try:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it calls home
    import ray
    import ray.exceptions
except ModuleNotFoundError as error:
    raise MissingExtraError("ray", "cluster", "cluster.collectors") from error

_STORE_BYTES = 512 << 20
"""Shared memory of a cluster that is started here: weights and blocks on their way."""


def connect(config: ClusterConfig) -> None:
    """Join the cluster at an address, or start one that ends with this process.

    Raises:
        ConfigError: There is none at the address.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    here = {
        "address": "local",  # else it joins whatever runs on this machine
        "num_cpus": max(os.cpu_count() or 1, math.ceil(config.collectors * config.cpus)),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
    }
    place: dict[str, Any] = {"address": config.address} if config.address else here
    try:
        ray.init(**quiet, **place)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"cluster.address={config.address or '(started here)'}: {last_line(error)}; expected "
            "a cluster of Ray (ray start --head), or leave the address out to start one here"
        ) from error


def check_room(config: ClusterConfig) -> None:
    """Refuse more collectors than fit: one that no machine has room for would wait in silence.

    Raises:
        ConfigError: The cluster is too small.
    """
    there, count = ray.cluster_resources(), config.collectors
    wanted = {"CPU": config.cpus * count}
    if config.device == "cuda":
        wanted["GPU"] = float(count)
    for kind, number in wanted.items():
        if there.get(kind, 0.0) < number:
            raise ConfigError(
                f"cluster.collectors={count} need {number:g} {kind}, and the cluster has "
                f"{there.get(kind, 0.0):g}; take fewer collectors, smaller cluster.cpus, or "
                "add machines (ray start --address=...)"
            )


def last_line(error: BaseException) -> str:
    """What an error of Ray ends with: the cause, below the traceback of another process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
