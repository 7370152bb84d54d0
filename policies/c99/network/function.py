"""A network as one function in C, with its weights and the memory that it computes in."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from policies.c99.literals import array
from policies.c99.network.graph import Graph, Node
from policies.c99.network.moves import MOVES, Run, copy_lines, moved
from policies.c99.network.operations import ELEMENTWISE, lines_of
from policies.c99.network.products import PRODUCTS, dense_function, weights_of
from policies.c99.network.statements import indented, loop

INPUT_PLACES = {"actor": "s->observation", "state": "s->recurrent"}
"""Where the inputs of a network are in C; `s` is the state of an instance."""
_OUTPUT_PLACES = {"action": "action", "next_state": "s->recurrent"}


@dataclass(frozen=True, kw_only=True)
class NetworkSource:
    """A network in C."""

    constants: list[str]
    """Lines of its weights."""
    functions: list[str]
    """Lines of `run_network(state, action)` and of what it calls."""
    work: list[int]
    """Sizes of the arrays `work_<i>` of the state that it computes in."""


class NetworkWriter:
    """Gives every value of a graph a place, and writes its operations in order.

    Values that are no longer needed give their place away, so that memory is what the two or three
    widest layers take.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        """Look through a graph; `name` is that of the policy in C."""
        self._graph, self._name = graph, name
        self._runs: dict[str, list[Run]] = {}
        self._source: dict[str, str] = {}  # a value that is another under a new name
        for node in graph.nodes:
            self._find_runs(node)
        last = {self._root(v): i for i, node in enumerate(graph.nodes) for v in node.inputs}
        self._last_use = last | {self._root(value): len(graph.nodes) for value in graph.outputs}
        self._places = _Places(graph)
        self._slots: dict[str, int] = {}  # value -> its work array
        self._alive: set[str] = set()
        self._work: list[int] = []
        self._free: set[int] = set()

    def write(self) -> NetworkSource:
        """The whole network.

        Raises:
            ConfigError: It has operations that C99 is not written for here.
        """
        body: list[str] = []
        for i, node in enumerate(self._graph.nodes):
            body += self._lines(i, node)
        for value in self._graph.outputs:
            source, target = self._place(value), _OUTPUT_PLACES[value]
            body += loop(self._graph.size(value), f"{target}[i] = {source}[i];")
        head = f"static void run_network({self._name}_state *s, float *action)"
        products = any(node.kind in PRODUCTS for node in self._graph.nodes)
        return NetworkSource(
            constants=self._places.arrays(),
            functions=[
                *([*dense_function(), ""] if products else []),
                *(head, "{", *indented(body), "}"),
            ],
            work=self._work,
        )

    def _find_runs(self, node: Node) -> None:
        if node.kind not in MOVES:
            return
        for name, runs in moved(node, self._graph).items():
            self._runs[name] = runs
            source = runs[0][0] if runs else ""
            if source in self._graph.shapes and runs == [(source, 0, 1, self._graph.size(source))]:
                self._source[name] = self._root(source)

    def _lines(self, index: int, node: Node) -> list[str]:
        made = [value for value in node.outputs if value not in self._source]
        self._release(index, self._overwritable(node))
        for value in made:
            self._take(value)
        if node.kind in PRODUCTS:
            layer = node.inputs[1].removesuffix(".weight")
            for part, weights in weights_of(node, self._graph).items():
                self._places.add(f"{node.outputs[0]}/{part}", f"{layer}_{part}", weights)
        for value in [*node.inputs, *node.outputs]:
            if value in self._graph.shapes:
                self._places[value] = self._place(value)
        lines = []
        if node.kind in MOVES:
            for value in made:
                lines += copy_lines(self._runs[value], self._places, self._places[value])
        else:
            lines = lines_of(node, self._graph, self._places)
        self._release(index, [*node.inputs, *node.outputs])
        return [f"/* {node.kind} */", *lines] if lines else []

    def _root(self, value: str) -> str:
        return self._source.get(value, value)

    def _place(self, value: str) -> str:
        root = self._root(value)
        if root in self._slots:
            return f"s->work_{self._slots[root]}"
        return INPUT_PLACES[root] if root in self._graph.inputs else self._places[root]

    def _overwritable(self, node: Node) -> list[str]:
        """Inputs whose place the output may take although it is still being read."""
        if node.kind not in ELEMENTWISE:
            return []
        size = self._graph.size(node.outputs[0])
        return [name for name in node.inputs if name and self._graph.size(name) == size]

    def _release(self, index: int, values: Iterable[str]) -> None:
        for root in map(self._root, values):
            if root in self._alive and self._last_use.get(root, index) == index:
                self._alive.remove(root)
                self._free.add(self._slots[root])

    def _take(self, value: str) -> None:
        size = self._graph.size(value)
        if not self._free:
            self._free.add(len(self._work))
            self._work.append(0)
        fitting = [slot for slot in self._free if self._work[slot] >= size]
        slot = min(fitting, key=self._work.__getitem__) if fitting else max(
            self._free, key=self._work.__getitem__
        )  # fmt: skip
        self._free.remove(slot)
        self._work[slot] = max(self._work[slot], size)
        self._slots[value] = slot
        self._alive.add(value)


class _Places(dict[str, str]):
    """Names of arrays in C; constants get one when they are first asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self._constants: dict[str, np.ndarray] = {}

    def __missing__(self, value: str) -> str:
        """Place of a constant."""
        self.add(value, value, self._graph.constants[value].ravel())
        return self[value]

    def add(self, value: str, called: str, entries: np.ndarray) -> None:
        """Give entries a place whose name is like `called`."""
        name = plain = "w_" + re.sub(r"\W+", "_", called.removeprefix("policy."))
        copies = 1
        while name in self._constants:
            copies += 1
            name = f"{plain}_{copies}"
        self._constants[name] = entries
        self[value] = name

    def arrays(self) -> list[str]:
        """Lines of all constants."""
        return [line for name, v in self._constants.items() for line in array("float", name, v)]
