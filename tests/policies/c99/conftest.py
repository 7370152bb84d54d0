"""Compiles what was written and calls it from here."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from policies.c99.network import NetworkWriter, read_graph

STRICT = "-std=c99 -O2 -Wall -Wextra -Werror -pedantic -Wdouble-promotion -Wconversion -Wshadow"

Compile = Callable[..., Path]

_SHIM = """
#include "{name}.c"
int state_bytes(void) {{ return (int)sizeof({name}_state); }}
int inputs_bytes(void) {{ return (int)sizeof({name}_inputs); }}
int command_bytes(void) {{ return (int)sizeof({name}_command); }}
"""


@pytest.fixture(scope="session")
def compile_c() -> Compile:
    """Compile a file strictly: `compile_c(source, "-lm")` -> what it became."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler to test C99 with; install gcc")

    def run(source: Path, *flags: str) -> Path:
        made = source.with_suffix(".out")
        command = [compiler, *STRICT.split(), *flags, source.name, "-o", made.name, "-lm"]
        done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return made

    return run


@pytest.fixture
def self_test(compile_c: Compile) -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """Compile a source with its self-test and run that."""

    def run(source: Path) -> subprocess.CompletedProcess[str]:
        program = compile_c(source, "-DPOLICY_SELF_TEST")
        return subprocess.run([program], capture_output=True, text=True)

    return run


class CPolicy:
    """N instances of a compiled policy."""

    def __init__(self, library: Path, name: str, count: int) -> None:
        self._library, self._name = ctypes.CDLL(str(library)), name
        sizes = [getattr(self._library, f"{k}_bytes")() for k in ("state", "inputs", "command")]
        self.states, self.inputs, self.commands = (
            np.zeros((count, size // 4), np.float32) for size in sizes
        )
        """Bytes of the structures as numbers, (N, ...): they hold nothing else but one int."""

    def reset(self, i: int) -> None:
        self._call("reset", self.states[i])

    def step(self, i: int) -> int:
        return self._call("step", self.states[i], self.inputs[i], self.commands[i])

    def accept(self, i: int) -> None:
        self._call("accept", self.states[i], self.commands[i])

    def _call(self, function: str, *arrays: np.ndarray) -> int:
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        return getattr(self._library, f"{self._name}_{function}")(*pointers)


@pytest.fixture
def c_policy(compile_c: Compile) -> Callable[..., CPolicy]:
    """Make instances of a written policy: `c_policy(folder, "policy", count=3)`."""

    def make(folder: Path, name: str, count: int) -> CPolicy:
        shim = folder / "shim.c"
        shim.write_text(_SHIM.format(name=name))
        return CPolicy(compile_c(shim, "-shared", "-fPIC"), name, count)

    return make


@pytest.fixture
def run_in_c(compile_c: Compile, tmp_path: Path) -> Callable[..., np.ndarray]:
    """Run rows through a network in C: `run_in_c(model, rows (B, D))` -> (B, A)."""

    def run(model: onnx.ModelProto, rows: np.ndarray) -> np.ndarray:
        graph = read_graph(model.SerializeToString())
        network = NetworkWriter(graph, "policy").write()
        work = [f"float work_{i}[{size}];" for i, size in enumerate(network.work)]
        source = tmp_path / "network.c"
        lines = [
            "#include <math.h>",
            f"typedef struct {{ float observation[{rows.shape[1]}]; {' '.join(work)} }}",
            "policy_state;",
            *network.constants,
            *network.functions,
            "void run(policy_state *s, float *action);",
            "void run(policy_state *s, float *action) { run_network(s, action); }",
        ]
        source.write_text("\n".join(lines))
        library = ctypes.CDLL(str(compile_c(source, "-shared", "-fPIC")))
        results = np.zeros((len(rows), graph.size("action")), np.float32)
        for row, result in zip(rows, results, strict=True):
            state = np.concatenate([row, np.zeros(sum(network.work), np.float32)])
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (state, result)]
            library.run(*pointers)
        return results

    return run
