"""Plug-ins: installed packages of others that bring parts of their own, without a fork.

A package names modules in the entry-point group `robot_rl.plugins`:

    [project.entry-points."robot_rl.plugins"]
    my_project = "my_project.plugin"

Such a module is imported once, when a name is looked up that is none of ours, and adds its parts to
a `Registry`. The folder `configs` of its top-level package holds its YAML files, and is found
without an import. A module that cannot be imported is left out, and a sentence names it where a
name is missed; whoever needs none of its parts never meets it.

Needs the standard library only: a robot computer looks up observation terms and drivers.
"""

import re
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from robot_rl.core.errors import ConfigError, unknown_name

GROUP = "robot_rl.plugins"
"""Entry-point group."""
CONFIG_FOLDER = "configs"
"""Folder of YAML groups in the top-level package of a plug-in."""
PACKAGE_PREFIX = "package://"
"""Begins the name of a file in an installed package: `package://my_project/robots/arm.xml`."""

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One entry point of an installed package."""

    name: str
    """Its own."""
    module: str
    """Module that adds the parts."""
    distribution: str
    """Package that was installed."""
    version: str
    """Of that package."""

    def __str__(self) -> str:
        return f"plug-in '{self.name}' ({self.distribution} {self.version})"

    @property
    def folder(self) -> Path | None:
        """Folder of its YAML groups; None where it has none."""
        root = package_folder(self.module.partition(".")[0])
        found = root / CONFIG_FOLDER if root else None
        return found if found is not None and found.is_dir() else None

    def to_dict(self) -> dict[str, str]:
        """Plain values that a run keeps: what to install to have it again."""
        return {"distribution": self.distribution, "version": self.version}


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Plug-ins of all installed packages, by distribution and name."""
    found = [
        Plugin(
            name=entry.name, module=entry.module,
            distribution=entry.dist.name if entry.dist else "unknown",
            version=entry.dist.version if entry.dist else "unknown",
        )
        for entry in entry_points(group=GROUP)
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one.distribution, one.name)))


_importing: Plugin | None = None
_loaded: set[Plugin] = set()
_failures: dict[Plugin, str] = {}
_added: list[tuple["Registry[Any]", str]] = []
_registries: list["Registry[Any]"] = []


class Registry(dict[str, Part], Generic[Part]):
    """Parts of one kind by name: those it is made with are ours, others are added."""

    def __init__(self, kind: str, ours: Mapping[str, Part] | None = None) -> None:
        """Take a word for the kind, such as "observation term", and our own parts."""
        super().__init__(ours or {})
        self.kind = kind
        self.owners: dict[str, Plugin | None] = {}
        """Names that were added, and by which plug-in; None for a program's own part."""
        _registries.append(self)

    def add(self, name: str, part: Part, *, made_of: object = None) -> None:
        """Add a part; a program may replace one of its own, as a notebook runs a cell again.

        Args:
            made_of: Class or function whose module says whose part it is; the part itself if None.

        Raises:
            ConfigError: The name is taken, or cannot be one.
        """
        if not re.fullmatch(r"[A-Za-z]\w*", name):
            raise ConfigError(
                f"{self.kind} '{name}' cannot be called so; expected letters, digits and _, with a "
                "letter first"
            )
        owner = _importing or _plugin_of(part if made_of is None else made_of)
        replaces = _importing is None and name in self.owners and self.owners[name] == owner
        if name in self and not replaces:
            other = self.owners.get(name)
            whose = str(other) if other else "a program" if name in self.owners else "robot_rl"
            raise ConfigError(
                f"{self.kind} '{name}' exists already, from {whose}; give yours another name"
            )
        self[name], self.owners[name] = part, owner
        if _importing is not None:
            _added.append((self, name))

    def knows(self, name: str) -> bool:
        """True if there is such a part, in a plug-in or here."""
        if name not in self:
            load_plugins()
        return name in self

    def find(self, name: str) -> Part:
        """A part by its name.

        Raises:
            ConfigError: There is none; names the nearest, and plug-ins that failed.
        """
        if not self.knows(name):
            raise ConfigError(unknown_part(self.kind, name, self))
        return self[name]


def unknown_part(kind: str, name: str, known: Iterable[str]) -> str:
    """Sentence about a name that is unknown: the nearest one, and plug-ins that failed."""
    return "; ".join([unknown_name(kind, name, known), *failed_plugins().values()])


def load_plugins() -> None:
    """Import every plug-in that was not imported before; what fails is left out."""
    for plugin in installed_plugins():
        if plugin not in _failures and plugin not in _loaded and _importing is None:
            _load(plugin)


def failed_plugins() -> Mapping[Plugin, str]:
    """Sentence about each plug-in that could not be imported: its cause and the remedy."""
    return {plugin: text for plugin, text in _failures.items() if text}


def forget_plugins() -> None:
    """Look for plug-ins anew at the next lookup: one was installed while a program runs."""
    for registry in _registries:
        for name in [name for name, owner in registry.owners.items() if owner is not None]:
            del registry[name], registry.owners[name]
    for plugin in _loaded:
        _forget_modules(plugin, set())
    _loaded.clear()
    _failures.clear()
    installed_plugins.cache_clear()


def _forget_modules(plugin: Plugin, kept: set[str]) -> None:
    package = plugin.module.partition(".")[0]
    for name in set(sys.modules) - kept:
        if name.partition(".")[0] == package:
            del sys.modules[name]


def _plugin_of(part: object) -> Plugin | None:
    """Plug-in whose package a part is of, where a program has imported it before us."""
    package = getattr(part, "__module__", "").partition(".")[0]
    owners = (one for one in installed_plugins() if one.module.partition(".")[0] == package)
    return next(owners, None)


def _load(plugin: Plugin) -> None:
    before = set(sys.modules)
    with _registering(plugin):
        try:
            import_module(plugin.module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - code of others, which may even exit
            for registry, name in _added:
                del registry[name], registry.owners[name]
            # Another entry point of the package may do without what this one lacks.
            _forget_modules(plugin, before)
            _failures[plugin] = _sentence(plugin, error)
            return
    _loaded.add(plugin)


def _sentence(plugin: Plugin, error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return f"{plugin} was left out: {error}"
    told = " ".join(str(error).split()) or "no reason given"
    return (
        f"{plugin} could not be imported: {type(error).__name__}: {told[:300]}; see where with "
        f"python -c 'import {plugin.module}', or remove it with pip uninstall "
        f"{plugin.distribution}"
    )


@contextmanager
def _registering(plugin: Plugin) -> Generator[None]:
    """Names that are added meanwhile belong to this plug-in."""
    global _importing
    _importing = plugin
    try:
        yield
    finally:
        _importing = None
        _added.clear()


def check_installed(used: Mapping[str, Mapping[str, str]], what: str) -> list[str]:
    """Check that the plug-ins that something was made with are here.

    Args:
        used: Name -> `Plugin.to_dict`, as it was kept.
        what: What was made with them, such as "the run".

    Returns:
        Sentences about those that are here in another version.

    Raises:
        ConfigError: One is not installed, or cannot be imported.
    """
    here = {(one.distribution, one.name): one for one in installed_plugins()}
    remarks: list[str] = []
    for name, kept in used.items():
        distribution, version = kept.get("distribution", "unknown"), kept.get("version", "unknown")
        plugin = here.get((distribution, name))
        if plugin is None:
            raise ConfigError(
                f"{what} was made with the plug-in '{name}' of {distribution} {version}, which is "
                f"not installed here; install it first: pip install '{distribution}=={version}', "
                "or its own folder with pip install -e <folder>"
            )
        load_plugins()
        if plugin in _failures:
            raise ConfigError(f"{what} needs a plug-in, and the {_failures[plugin]}")
        if plugin.version != version:
            remarks.append(
                f"{what} was made with {distribution} {version}; here is {plugin.version}"
            )
    return remarks


def package_folder(package: str) -> Path | None:
    """Folder of a top-level package; None where it is a single module, or not found."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def package_file(name: str) -> Path:
    """Path of a file that is named with `PACKAGE_PREFIX`.

    Raises:
        ConfigError: The package is not installed.
    """
    package, _, rest = name.removeprefix(PACKAGE_PREFIX).partition("/")
    folder = package_folder(package) if package.isidentifier() else None
    if folder is None or not rest:
        raise ConfigError(
            f"{name}: the package '{package}' is not installed here; install it first, or name a "
            f"file by its whole path; expected {PACKAGE_PREFIX}<package>/<file>"
        )
    return folder / rest
