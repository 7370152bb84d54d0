"""Collectors in this process: what Ray carries, without Ray."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robot_rl.core.seeding import derive_seed
from robot_rl.training.cluster.remote_collector import (
    Block,
    CollectRequest,
    RemoteCollector,
    Weights,
)


class LocalFleet:
    """Works off a request when its block is taken; loses a collector when it is told to."""

    def __init__(self, build: Callable[[int], RemoteCollector], count: int) -> None:
        self._build = build
        self._collectors = [build(number) for number in range(count)]
        self._requests: list[deque[tuple[CollectRequest, Weights]]] = [
            deque() for _ in range(count)
        ]
        self._states: list[Mapping[str, Any] | None] = [None] * count
        self._away = [0] * count
        self._seed = 0
        self._weights: Weights = {}
        self.count = count
        self.lost = 0
        self.most_waiting = 0
        self.given: list[tuple[int, CollectRequest]] = []
        self.taken: list[tuple[int, Block]] = []
        self.closed = False

    def lose(self, collector: int, looks: int) -> None:
        """The next `looks` for a collector find none: it died, and another one comes up."""
        self._away[collector] = looks
        self._requests[collector].clear()
        self.lost += 1
        self._collectors[collector] = self._build(collector)
        purpose = f"again {self.lost}"
        self._collectors[collector].begin(derive_seed(self._seed, purpose), self._states[collector])

    def begin(self, seed: int, states: Sequence[Mapping[str, Any] | None]) -> None:
        self._seed, self._states = seed, list(states)
        for number, (collector, state) in enumerate(zip(self._collectors, states, strict=True)):
            collector.begin(derive_seed(seed, f"first {number}") >> 32, state)

    def publish(self, weights: Weights) -> None:
        self._weights = weights

    def request(self, collector: int, request: CollectRequest) -> None:
        self._requests[collector].append((request, self._weights))
        self.given.append((collector, request))
        self.most_waiting = max(self.most_waiting, len(self._requests[collector]))

    def waiting(self, collector: int) -> int:
        return len(self._requests[collector])

    def up(self, collector: int) -> bool:
        self._away[collector] -= 1
        return self._away[collector] < 0

    def take(self, collector: int) -> Block | None:
        block = self._collectors[collector].collect(*self._requests[collector].popleft())
        self.taken.append((collector, block))
        return block

    def wait(self) -> None:
        """The next look may find one."""

    def states(self) -> list[Mapping[str, Any] | None]:
        self._states = [remote_collector.state() for remote_collector in self._collectors]
        return self._states

    def close(self) -> None:
        self.closed = True
