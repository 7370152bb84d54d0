"""Reads who imports whom, without importing anything; `test_architecture.py` holds the rules.

Every import statement counts: at the top, inside a function, under TYPE_CHECKING, and
`import_module("name")` with a literal name.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOF = "robot_rl.cli"
"""Assembles all others, so that it counts as a wing of its own."""


@dataclass(frozen=True)
class Module:
    """One source file: what it imports of ours (dotted names) and of others (top-level names)."""

    name: str
    path: Path
    own: frozenset[str]
    foreign: frozenset[str]

    @property
    def wing(self) -> str:
        """Top-level package, such as `sim`, or the roof."""
        return ROOF if _inside(self.name, ROOF) else self.name.partition(".")[0]


def read_modules(root: Path, wings: Sequence[str]) -> dict[str, Module]:
    """All modules in the folders `wings` below `root`, by dotted name."""
    paths = {
        _dotted(path.relative_to(root)): path for w in wings for path in (root / w).rglob("*.py")
    }
    modules = {}
    for name, path in sorted(paths.items()):
        own, foreign = set(), set()
        for target in _targets(path, name):
            found = _ours(target, name, paths, wings)
            if found:
                own.add(found)
            elif target.split(".")[0] not in sys.stdlib_module_names:
                # The first two wrap a package of another name: they count as what they load.
                # The third has a home of its own, unlike the rest of torch.
                alias = {
                    "array_api_compat.torch": "torch",
                    "torch.utils.tensorboard": "tensorboard",
                    "torch.distributed": "torch.distributed",
                }
                known = next((a for p, a in alias.items() if _inside(target, p)), None)
                foreign.add(known or target.split(".")[0])
        modules[name] = Module(name, path, frozenset(own - {name}), frozenset(foreign))
    return modules


def forbidden_arrows(
    modules: Mapping[str, Module], allowed: Mapping[str, Iterable[str]]
) -> list[str]:
    """Sentences about imports that `allowed` does not list.

    Args:
        modules: From `read_modules`.
        allowed: Room (dotted prefix) to the rooms it may import; itself is always allowed. The
            longest prefix that fits a module is its room.
    """
    faults = []
    for module in modules.values():
        room = max((r for r in allowed if _inside(module.name, r)), key=len, default=None)
        if room is None:
            faults.append(f"{module.name} is in no room of the table; give it a row on purpose")
            continue
        for target in sorted(module.own):
            if not any(_inside(target, entry) for entry in (room, *allowed[room])):
                rooms = ", ".join(allowed[room]) or "nothing of ours"
                faults.append(f"{module.name} imports {target}; {room} may import: {rooms}")
    return faults


def circles(modules: Mapping[str, Module]) -> list[str]:
    """Each circle of imports once, written `a -> b -> a`."""
    found: list[str] = []
    finished: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            found.append(" -> ".join([*trail[trail.index(name) :], name]))
        elif name in modules and name not in finished:
            for target in sorted(modules[name].own):
                visit(target, [*trail, name])
            finished.add(name)

    for name in modules:
        visit(name, [])
    return found


def loaded_packages(modules: Mapping[str, Module], name: str) -> dict[str, str]:
    """Packages of others that importing `name` can load, each with the module of ours that does it.

    Follows imports of imports, and the `__init__.py` of every parent, as the interpreter does.
    """
    loaded: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        waiting.append(current.rpartition(".")[0])
        if current in modules:
            waiting += modules[current].own
            loaded.update(dict.fromkeys(modules[current].foreign, current))
    return loaded


def _targets(path: Path, name: str) -> Iterator[str]:
    """Dotted names that a file imports, as written, relative ones made absolute."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, node.module or ""]).strip(".") if node.level else node.module
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _ours(target: str, importer: str, known: Iterable[str], wings: Sequence[str]) -> str | None:
    """The module of ours that `target` names or lies in, None when it is not ours."""
    if target.split(".")[0] not in wings:
        return None
    # `from a.b import c` names the module a.b.c, or something inside the module a.b.
    prefix = target
    while prefix and prefix not in known:
        prefix = prefix.rpartition(".")[0]
    return prefix or target


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _inside(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")
