"""Collectors as actors of Ray, which finds them a place on any machine of a cluster.

Every collector is created by the learner, also the one that takes the
place of another: Ray restarts none by itself, so that a new one never repeats what an old one drew.
"""

import logging
import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robot_rl.core.errors import ConfigError, MissingExtraError, NonFiniteError, RankError
from robot_rl.core.seeding import derive_seed
from robot_rl.training.cluster.remote_collector import (
    Block,
    CollectRequest,
    RemoteCollector,
    Weights,
)
from robot_rl.training.config import ClusterConfig

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
    """Last line of an error of Ray: the cause, below the traceback of another process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


_logger = logging.getLogger(__name__)
_TRIES = 3
"""Collectors that may be lost in one place before any of them has delivered a block."""


class _Station:
    """Actor in a collector's process."""

    def __init__(self, build: Callable[[int], RemoteCollector], number: int) -> None:
        self._collector = build(number)
        self._failed: Exception | None = None

    def ready(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()

    def begin(self, seed: int, state: Mapping[str, Any] | None) -> None:
        try:
            self._collector.begin(seed, state)
        except Exception as error:  # noqa: BLE001 - nobody waits for this answer: the next does
            self._failed = error

    def collect(self, request: CollectRequest, weights: Weights) -> Block:
        if self._failed is not None:
            raise self._failed
        return self._collector.collect(request, weights)

    def state(self) -> dict[str, Any]:
        return self._collector.state()


@dataclass
class _Slot:
    """A collector's place, whoever fills it."""

    actor: Any
    ready: Any
    """Its answer that it is up."""
    born: float
    """Time at which the present one was created [s]."""
    up: bool = False
    """It has answered."""
    late: bool = False
    """It was told that it has not for long."""
    losses: int = 0
    """In a row, without a block between them."""
    lives: int = 0
    """Collectors that have begun here."""
    pending: deque[Any] = field(default_factory=deque)
    """Blocks that were requested."""
    state: Mapping[str, Any] | None = None
    """Last state of its envs."""
    where: tuple[str, int] = ("", 0)
    """Machine and process."""


class RayFleet:
    """K collectors in a cluster of Ray, which is joined or, for this process alone, started."""

    def __init__(self, config: ClusterConfig, build: Callable[[int], RemoteCollector]) -> None:
        """Create the collectors and wait until they are up.

        Args:
            build: Makes a collector by its number, in the collector's process;
                what it consists of must be importable there.

        Raises:
            ConfigError: The cluster is not there, or has no place for so many.
            RankError: A collector does not come up.
        """
        self._config = config
        self._build = build
        self._weights: Any = None
        self._seed = 0
        self.lost = 0
        """Collectors that were lost and replaced."""
        self._mine = not ray.is_initialized()
        self._slots: list[_Slot] = []
        if self._mine:
            connect(config)
        try:
            check_room(config)
            options: dict[str, Any] = {"num_cpus": config.cpus, "max_restarts": 0}
            if config.device == "cuda":
                options["num_gpus"] = 1
            self._actors = ray.remote(**options)(_Station)
            self._slots = [self._slot(number) for number in range(config.collectors)]
            self._await_all()
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """K."""
        return len(self._slots)

    @property
    def processes(self) -> list[tuple[str, int]]:
        """Machine and process of each."""
        return [slot.where for slot in self._slots]

    def begin(self, seed: int, states: Sequence[Mapping[str, Any] | None]) -> None:
        """All begin new episodes."""
        self._seed = seed
        for number, (slot, state) in enumerate(zip(self._slots, states, strict=True)):
            slot.state = state
            slot.pending.clear()
            self._begin(number)

    def publish(self, weights: Weights) -> None:
        """Weights that go with every request from now on."""
        self._weights = ray.put(dict(weights))

    def request(self, collector: int, request: CollectRequest) -> None:
        """Give one a request."""
        slot = self._slots[collector]
        slot.pending.append(slot.actor.collect.remote(request, self._weights))

    def waiting(self, collector: int) -> int:
        """Orders whose blocks have not been taken."""
        return len(self._slots[collector].pending)

    def up(self, collector: int) -> bool:
        """True if it works; false while one that takes the place of another is coming up."""
        slot = self._slots[collector]
        if slot.up:
            return True
        if not ray.wait([slot.ready], timeout=0)[0]:
            self._warn_once(collector)
            return False
        try:
            slot.where, slot.up = ray.get(slot.ready), True
        except ray.exceptions.RayTaskError as error:
            raise _told(collector, slot, error) from None
        except ray.exceptions.RayError as error:
            self._replace(collector, _reason(error))
            return False
        _logger.info("collector %d is up again", collector)
        return True

    def take(self, collector: int) -> Block | None:
        """Its oldest block; None where it was lost just now."""
        slot, limit = self._slots[collector], self._config.answer_seconds
        first = slot.pending.popleft()
        try:
            block: Any = ray.get(first, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self._replace(collector, f"no block in {limit:g} s")
            return None
        except ray.exceptions.RayTaskError as error:
            raise _told(collector, slot, error) from None
        except ray.exceptions.RayError as error:  # its process, its machine, or the block with it
            self._replace(collector, _reason(error))
            return None
        slot.losses = 0
        return block

    def wait(self) -> None:
        """Wait until any collector is up."""
        limit = self._config.start_seconds
        if not ray.wait([slot.ready for slot in self._slots], num_returns=1, timeout=limit)[0]:
            raise RankError(
                f"no collector of {self.count} has come up in {limit:g} s; the last checkpoint is "
                "intact: look at the cluster (ray status), then resume with resume=..."
            )

    def states(self) -> list[Mapping[str, Any] | None]:
        """State that the envs of each go on from."""
        asked = [slot.actor.state.remote() if slot.up else None for slot in self._slots]
        for number, (slot, answer) in enumerate(zip(self._slots, asked, strict=True)):
            if answer is None:
                continue
            limit = (1 + len(slot.pending)) * self._config.answer_seconds  # behind its blocks
            try:
                slot.state = ray.get(answer, timeout=limit)
            except ray.exceptions.RayError as error:  # if lost, its next block tells it, too
                _logger.warning(
                    "the state of collector %d is not saved anew: %s", number, _reason(error)
                )
        return [slot.state for slot in self._slots]

    def close(self) -> None:
        """End them all."""
        if not ray.is_initialized():
            return
        for slot in self._slots:
            ray.kill(slot.actor)
        self._slots = []
        if self._mine:
            ray.shutdown()

    def _slot(self, number: int) -> _Slot:
        actor: Any = self._actors.remote(self._build, number)
        return _Slot(actor=actor, ready=actor.ready.remote(), born=time.monotonic())

    def _begin(self, number: int) -> None:
        slot = self._slots[number]
        purpose = f"collector {number}, life {slot.lives}"
        slot.lives += 1
        # Gymnasium takes 32 bits.
        slot.actor.begin.remote(derive_seed(self._seed, purpose) >> 32, slot.state)

    def _replace(self, number: int, reason: str) -> None:
        slot = self._slots[number]
        slot.losses += 1
        if slot.losses >= _TRIES:
            raise RankError(
                f"collector {number} was lost {slot.losses} times before it had a block "
                f"({reason}); the last checkpoint is intact: go on from it with resume=..."
            )
        self.lost += 1
        _logger.warning("%s is lost: %s; replacing it", _name(number, slot), reason)
        ray.kill(slot.actor)
        fresh = self._slot(number)
        fresh.lives, fresh.losses, fresh.state = slot.lives, slot.losses, slot.state
        self._slots[number] = fresh
        self._begin(number)

    def _warn_once(self, number: int) -> None:
        """Say that a collector is long in coming: no machine may have room for it."""
        slot, limit = self._slots[number], self._config.start_seconds
        if not slot.late and time.monotonic() - slot.born > limit:
            slot.late = True
            _logger.warning("collector %d is not up after %g s; others go on", number, limit)

    def _await_all(self) -> None:
        limit = self._config.start_seconds
        answers = [slot.ready for slot in self._slots]
        try:
            for slot, where in zip(self._slots, ray.get(answers, timeout=limit), strict=True):
                slot.where, slot.up = where, True
        except ray.exceptions.GetTimeoutError:
            raise RankError(
                f"{self.count} collectors have not come up in {limit:g} s; expected room for all "
                "of them (ray status), or set cluster.start_seconds"
            ) from None
        except ray.exceptions.RayError as error:
            raise RankError(f"a collector cannot be built: {last_line(error)}") from None


def _told(number: int, slot: _Slot, error: ray.exceptions.RayTaskError) -> Exception:
    """Error that ended a collector, with its place."""
    cause = error.cause
    name = _name(number, slot)
    if isinstance(cause, NonFiniteError):
        return NonFiniteError(f"{name}: {cause}")
    _logger.info("%s ended", name, exc_info=error)
    return RankError(
        f"{name} ended: {type(cause).__name__}: {str(cause).partition(chr(10))[0]}; the last "
        "checkpoint is intact: go on from it with resume=..."
    )


def _name(number: int, slot: _Slot) -> str:
    """A collector, and its process if it has come up."""
    place = f"process {slot.where[1]} on {slot.where[0]}" if slot.up else "not up yet"
    return f"collector {number} ({place})"


def _reason(error: ray.exceptions.RayError) -> str:
    """Why a collector is gone, without Ray's advice."""
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "its machine does not answer"
    return last_line(error).partition(". ")[0]
