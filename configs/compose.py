"""From a command line to a typed `RunConfig`, or to one sentence about what is wrong with it.

Hydra composes the groups and reads the grammar of overrides and sweeps. Values are put in here, one
by one, so that a misspelt key or a wrong type is named together with what would have been right;
Hydra's own runner is not used, as it leaves with exit code 1 and writes folders of its own.
"""

import copy
import difflib
import functools
import itertools
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException, ValidationError
from yaml import MarkedYAMLError, YAMLError

from configs.catalog import CONFIGS, GROUPS, choices, config_file, config_folders, task_robot
from configs.overrides import (
    FORMER_NAMES,
    assign,
    check_form,
    first_lines,
    in_words,
    leaves,
    parse_overrides,
    plain_value,
)
from configs.own_folders import check_own_folders, numbers_left_behind, own_folders
from configs.schema import (
    ENV_PARTS,
    REGISTRIES,
    Component,
    RunConfig,
    check_needs,
    component_of,
    find_component,
    known_components,
    plugins_of,
)
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.plugins import (
    PACKAGE_PREFIX,
    check_installed,
    failed_plugins,
    load_plugins,
    package_folder,
    unknown_part,
)
from robot_rl.core.robot import RobotSpec
from robot_rl.training.runs.provenance import plain

Options = TypeVar("Options")
_logger = logging.getLogger(__name__)
_UNFIT = (HydraException, OmegaConfBaseException, YAMLError, UnicodeDecodeError)
"""Errors about YAML files that cannot be read or put together."""


@dataclass(frozen=True, kw_only=True)
class Composition:
    """A run as it was asked for."""

    config: RunConfig
    """Typed and checked."""
    chosen: dict[str, str]
    """Name chosen in each group, such as task -> hover."""


def compose(overrides: Sequence[str], *, beside_robots: bool = False) -> Composition:
    """Compose the groups, then put the values in.

    Args:
        overrides: Such as `task=hover` or `training.total_steps=1e6`.
        beside_robots: The run is one of `robot-rl learn`.

    Raises:
        ConfigError: A choice, a key or a value is wrong; the message names the nearest right one.
    """
    parsed = parse_overrides(overrides)
    groups = [one for one in parsed if one.key_or_group in GROUPS]
    for one in groups:
        _check_choice(one)
    remarks = _remarks_on_own_folders()
    lines = [*_robot_of_the_task(groups), *(str(one.input_line) for one in groups)]
    asked = {one.key_or_group: str(one.input_line) for one in groups}
    try:
        tree = _composed("train", lines)
    except _UNFIT as error:
        told = _misfit(error, asked) or _unfit(error)
        raise ConfigError("; ".join([told, *failed_plugins().values()])) from error
    chosen = {str(g): str(n) for g, n in tree.hydra.runtime.choices.items() if n is not None}
    with open_dict(tree):
        del tree["hydra"]
    for group, name in chosen.items():
        config_file(group, name)  # one of two of the same name would have been taken
    for group, name in chosen.items():
        _check_schema(tree, group, name)
        _find_models(tree, group, name)
    _check_parts(tree, chosen, parsed)
    if "task" in chosen:
        remarks.append(numbers_left_behind(chosen["task"], chosen["robot"], chosen["learner"]))
    _tell_once(remarks)
    fields = [one for one in parsed if one not in groups]
    config = _finish(tree, fields)
    check_needs(config, [one.key_or_group for one in fields], beside_robots=beside_robots)
    return Composition(config=config, chosen={g: chosen[g] for g in GROUPS if g in chosen})


def _remarks_on_own_folders() -> list[str]:
    """Sentences about what lies in folders of `--config-dir` and would never be read."""
    if not own_folders():
        return []
    load_plugins()
    groups = ("task", "robot", "learner")
    return check_own_folders({one: {*choices(one), *_without_file(one)} for one in groups})


_told: set[str] = set()


def _tell_once(remarks: Sequence[str]) -> None:
    for one in filter(None, remarks):
        if one not in _told:
            _told.add(one)
            _logger.warning("%s", one)


def robot_description(name: str) -> RobotSpec | None:
    """A robot's own description, from its YAML file alone; None where it has none.

    Raises:
        ConfigError: The file does not fit the schemas.
    """
    file = config_file("robot", name)
    if file is None:
        return None
    try:
        tree = _composed(f"robot/{name}", [], primary=file[1].path)
    except _UNFIT as error:
        raise ConfigError(_unfit(error)) from error
    return _typed(tree["robot"]).spec


def _composed(name: str, lines: Sequence[str], primary: Path = CONFIGS) -> DictConfig:
    """A file of the folder `primary` and what it names, from all folders and schemas."""
    folders = [folder.path for folder in config_folders()]
    if len(folders) > 1:
        load_plugins()
    _store_schemas()
    further = [path for path in folders if path != primary]
    places = ",".join(f"'file://{path}'" for path in further)
    lines = [*lines, f"hydra.searchpath=[{places}]"] if further else lines
    if further or primary != CONFIGS:
        return _put_together(name, lines, primary)
    files = tuple((str(path), path.stat().st_mtime_ns) for path in CONFIGS.rglob("*.yaml"))
    return copy.deepcopy(_put_together_once(name, tuple(lines), files, len(_stored)))


def _put_together(name: str, lines: Sequence[str], primary: Path) -> DictConfig:
    with initialize_config_dir(str(primary.absolute()), version_base="1.3"):
        return hydra_compose(name, overrides=list(lines), return_hydra_config=name == "train")


@functools.lru_cache(maxsize=64)
def _put_together_once(
    name: str, lines: tuple[str, ...], files: tuple[tuple[str, int], ...], schemas: int
) -> DictConfig:
    """The same of our own files: a sweep, or a test under many conditions, makes few choices.

    Args:
        name: As of `_composed`.
        lines: As of `_composed`.
        files: Path and time of change of each of our files: one that is edited is read anew.
        schemas: Number of those that Hydra knows.
    """
    return _put_together(name, lines, CONFIGS)


_stored: set[type] = set()


class _OwnSchema(ConfigNode):
    """One of our schemas in Hydra's store, read when a file extends it: all take half a second."""

    def __init__(self, component: Component) -> None:
        self.name, self.group = f"{component.name}_schema.yaml", component.group
        self.package = self.provider = None
        self._schema = component.config

    def __getattr__(self, name: str) -> Any:
        if name == "node":
            return _node_of(self._schema)
        raise AttributeError(name)


@functools.cache
def _node_of(schema: type) -> DictConfig:
    return OmegaConf.structured(schema)


def _store_schemas() -> None:
    """Tell Hydra the schemas that the YAML files extend: once, as it takes half a composition."""
    store = ConfigStore.instance()
    if not _stored:
        # Hydra copies its whole store in every composition, a quarter of the time, although it
        # copies each entry again that it takes out.
        setattr(ConfigStore, "__deepcopy__", lambda store, memo: store)  # noqa: B010
        store.store(name="run_schema", node=RunConfig)
    for component in (one for one in known_components() if one.config not in _stored):
        group, name = component.group, component.name
        if name not in REGISTRIES[group].owners:
            entry = _OwnSchema(component)
            store.repo.setdefault(group, {})[entry.name] = entry
        else:
            _store_added(store, component)
        _stored.add(component.config)


def _store_added(store: ConfigStore, component: Component) -> None:
    """Tell Hydra the schema of a part that is none of ours, or refuse what is no schema."""
    group, name = component.group, component.name
    try:
        store.store(group=group, name=f"{name}_schema", node=component.config)
        if name in _without_file(group):
            store.store(group=group, name=name, node=component.config)
    except (OmegaConfBaseException, TypeError) as error:
        raise ConfigError(
            f"the config {component.config.__name__} of {group} '{name}' is no schema: "
            f"{first_lines(error)}"
        ) from error


def _without_file(group: str) -> list[str]:
    """Registered parts without a YAML file, whose config's defaults are chosen by their name."""
    added = REGISTRIES[group].owners if group in REGISTRIES else {}
    return [name for name in added if config_file(group, name) is None]


def _check_schema(tree: DictConfig, group: str, name: str) -> None:
    """Refuse a YAML file that extends no schema: nothing would be checked."""
    schemas = {one.config: one.name for one in known_components() if one.group == group}
    if schemas and OmegaConf.get_type(tree, group) not in schemas:
        file = config_file(group, name)
        told = (
            f"{file[0] if file else f'{group}={name}'} extends no schema of a {group}; expected "
            f"it to begin with 'defaults: [<schema>, _self_]', where <schema> is one of "
            f"{', '.join(f'{known}_schema' for known in schemas.values())}"
        )
        raise ConfigError("; ".join([told, *failed_plugins().values()]))


_MODELS = {"robot": ("model", "gripper_model"), "task": ("scene.file", "scene.tool")}
"""Fields that name files of models, by the group of the YAML file."""
_OUR_MODELS = {"robot": "robots", "task": "scenes"}
"""Folders of our own models in `sim`."""


def _find_models(tree: DictConfig, group: str, name: str) -> None:
    """Let a YAML file that is none of ours name model files that lie beside it."""
    file = config_file(group, name)
    if file is None or file[1].path == CONFIGS:
        return
    path, folder = file
    for field in _MODELS.get(group, ()):
        model = OmegaConf.select(tree, f"{group}.{field}")
        if not isinstance(model, str) or model in ("", "menagerie"):
            continue
        beside = path.parent / model
        if not beside.is_file() and (model.startswith(PACKAGE_PREFIX) or _is_ours(model, group)):
            continue
        named = str(beside)
        if folder.plugin is not None:  # a run may go on on another machine
            package = folder.plugin.module.partition(".")[0]
            inside = beside.relative_to(folder.path.parent).as_posix()
            named = f"{PACKAGE_PREFIX}{package}/{inside}"
        OmegaConf.update(tree, f"{group}.{field}", named)


def _is_ours(model: str, group: str) -> bool:
    """True of a model file that we have; one that is nowhere is missed beside the user's file."""
    ours = package_folder("sim")
    return ours is not None and (ours / _OUR_MODELS[group] / model).is_file()


def _robot_of_the_task(groups: Sequence[Override]) -> list[str]:
    """The robot that a task on the command line brings, if none is chosen there."""
    chosen = {one.key_or_group: str(plain_value(one)) for one in groups}
    robot = task_robot(chosen["task"]) if "task" in chosen else ""
    return [f"robot={robot}"] if robot and "robot" not in chosen else []


def _check_parts(
    tree: DictConfig, chosen: Mapping[str, str], overrides: Sequence[Override]
) -> None:
    """Refuse a task, or a field of one, where the environment has none, and the other way round."""
    env = chosen["env"]
    needed = find_component("env", env).needs
    for part in ENV_PARTS:
        named = [o for o in overrides if o.key_or_group.partition(".")[0] == part]
        if part in needed and part not in chosen:
            raise ConfigError(f"env={env} needs a {part}; known: {', '.join(choices(part))}")
        if part not in needed and (part in chosen or named or tree[part] is not None):
            what = f"'{named[0].input_line}'" if named else f"the {part} of the experiment"
            raise ConfigError(
                f"{what} has no meaning with env={env}, which has no {part} of its own; leave it "
                "out"
            )


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Every combination of the values of a sweep, such as `seed=0,1,2` or `seed=range(10)`."""
    columns = [
        [f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()]
        if one.is_sweep_override()
        else [str(one.input_line)]
        for one in parse_overrides(overrides, sweep=True)
    ]
    return [list(row) for row in itertools.product(*columns)]


def to_plain(config: RunConfig) -> dict[str, Any]:
    """A config as it is saved: plain values, and which schemas they belong to."""
    parts = {group: getattr(config, group) for group in ("env", "robot", "task", "learner")}
    names = {group: component_of(part).name for group, part in parts.items() if part is not None}
    plugins = {name: one.to_dict() for name, one in plugins_of(config).items()}
    return {"schemas": names, **({"plugins": plugins} if plugins else {}), **plain(config)}


def from_plain(values: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Rebuild a config from `to_plain`, with overrides of its values.

    Raises:
        ConfigError: The saved config or an override does not fit the schemas.
    """
    parsed = parse_overrides(overrides)
    for one in parsed:
        if one.key_or_group == "experiment":
            raise ConfigError(
                f"'{one.input_line}' chooses an experiment, and the run exists already; override "
                "its fields one by one, such as training.total_steps=1e6, or train a new run"
            )
        if one.key_or_group in GROUPS:
            raise ConfigError(
                f"'{one.input_line}' would replace the {one.key_or_group} of a run that exists; "
                f"override its fields ({one.key_or_group}.<field>=...) or train a new run"
            )
    for remark in check_installed(values.get("plugins", {}), "the run"):
        _logger.warning("%s", remark)
    _check_saved(values.get("schemas", {}))
    # Runs of before had no choice of env.
    saved = _with_present_names({"env": {}, **values})
    saved.pop("plugins", None)
    named = {"env": "sim", **saved.pop("schemas", {})}
    schemas = {group: find_component(group, name).config for group, name in named.items()}
    return _finish(_rebuilt(schemas, saved), parsed)


_kept: dict[tuple[Any, ...], DictConfig] = {}
"""Saved configurations that were rebuilt last: a policy is played under many changes of one."""
_MOST_KEPT = 16


def _rebuilt(schemas: Mapping[str, type], saved: Mapping[str, Any]) -> DictConfig:
    """Saved values in the schemas of their parts, to be changed by the caller."""
    key = (*schemas.items(), repr(saved))
    if key not in _kept:
        tree = OmegaConf.structured(RunConfig)
        try:
            for group, schema in schemas.items():
                tree[group] = OmegaConf.structured(schema)
            tree = OmegaConf.merge(tree, saved)
        except OmegaConfBaseException as error:
            told = f"the saved configuration does not fit: {first_lines(error)}"
            raise ConfigError(told) from error
        assert isinstance(tree, DictConfig)
        if len(_kept) == _MOST_KEPT:
            _kept.clear()
        _kept[key] = tree
    return copy.deepcopy(_kept[key])


def _check_saved(schemas: Mapping[str, str]) -> None:
    """Refuse parts of a run that nothing here knows; the sentence lists what can be chosen."""
    for group, name in schemas.items():
        if group in REGISTRIES and not REGISTRIES[group].knows(name):
            told = unknown_part(group, name, {*choices(group), *_without_file(group)})
            raise ConfigError(
                f"{told}; a script may have registered it: open the run there, or make a package "
                '(see "Extending")'
            )


def _with_present_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """A saved config as it would be saved now: any SAC once had the settings of CQL and of H2O."""
    schemas, learner = dict(values.get("schemas", {})), dict(values.get("learner") or {})
    if schemas.get("learner") == "sac":
        for name, group in (("cql", "conservatism"), ("h2o", "dynamics_gap")):
            settings = learner.pop(group, {})
            if settings.get("weight", 0) > 0:
                schemas["learner"], learner[group] = name, settings
    if "learner" in schemas:
        config = find_component("learner", schemas["learner"]).config
        learner = with_present_fields(learner, config)
    return {**values, "schemas": schemas, "learner": learner}


def with_present_fields(learner: Mapping[str, Any], config: type) -> dict[str, Any]:
    """Saved settings of a learner, by the names that its schema has now."""
    names, found = {entry.name for entry in fields(config)}, dict(learner)
    for former, present in FORMER_NAMES.items():
        group, _, name = present.partition(".")
        if former in found and former not in names and group in names:
            found[group] = {**found.get(group, {}), name: found.pop(former)}
    return found


def read_options(schema: type[Options], overrides: Sequence[str]) -> tuple[Options, list[str]]:
    """Split a command line into the options of a command and overrides of a run.

    Args:
        schema: Dataclass whose field names are the command's options.
        overrides: The command line.

    Returns:
        The options, and the overrides that are none of them.

    Raises:
        ConfigError: An option is misspelt or has a wrong value.
    """
    entries = fields(schema)  # pyright: ignore[reportArgumentType]
    names = [entry.name for entry in entries]
    nested = {
        entry.name for entry in entries
        if is_dataclass(entry.type) or get_origin(entry.type) is dict
    }  # fmt: skip
    run_fields = {entry.name for entry in fields(RunConfig)} | set(GROUPS)
    for text in overrides:
        check_form(text)
    keys = [text.partition("=")[0] for text in overrides]
    keys = [key if key.partition(".")[0] not in nested else key.partition(".")[0] for key in keys]
    for key in set(keys) - run_fields - set(names):
        if difflib.get_close_matches(key, names, n=1, cutoff=0.75):
            raise ConfigError(unknown_name("option", key, names))
    mine = [text for text, key in zip(overrides, keys, strict=True) if key in names]
    tree = OmegaConf.structured(schema)
    for one in parse_overrides(mine):
        assign(tree, one)
    return _typed(tree), [text for text in overrides if text not in mine]


def read_only_options(schema: type[Options], overrides: Sequence[str]) -> Options:
    """The options of a command that takes nothing else, no field of a run either.

    Raises:
        ConfigError: An option is unknown, misspelt or has a wrong value.
    """
    options, rest = read_options(schema, overrides)
    if rest:
        raise ConfigError(unknown_name("option", rest[0].partition("=")[0], vars(options)))
    return options


def changed_keys(overrides: Sequence[str]) -> list[str]:
    """Dotted keys that overrides change."""
    return [one.key_or_group for one in parse_overrides(overrides)]


def _check_choice(one: Override) -> None:
    value, group = plain_value(one), one.key_or_group
    if isinstance(value, str) and config_file(group, value):
        return
    load_plugins()
    known = {*choices(group), *_without_file(group)}
    if not isinstance(value, str) or value not in known:
        raise ConfigError(unknown_part(group, str(value), known))


def _finish(tree: DictConfig, overrides: Sequence[Override]) -> RunConfig:
    for one in overrides:
        assign(tree, one)
    return _typed(tree)


def _typed(tree: DictConfig) -> Any:
    try:
        config = OmegaConf.to_object(tree)
    except OmegaConfBaseException as error:
        raise ConfigError(first_lines(error)) from error
    for path, value in leaves(config):
        if isinstance(value, float) and math.isnan(value):
            raise ConfigError(f"{path} is not a number; expected one")
    return config


def _misfit(error: BaseException, asked: Mapping[str, str]) -> str:
    """Sentence about a file that sets a field which another choice does not have; else empty.

    Args:
        error: What was raised while files were put together.
        asked: Group -> what the command line says about it.
    """
    found = re.search(r"In '(\w+)/(\w+)'.*Key '(\w+)' not in '(\w+)'", str(error), re.DOTALL)
    if found is None:
        return ""
    group, name, key, schema = found.groups()
    file = config_file(group, name)
    if file is not None and file[1].path != CONFIGS:
        return _own_misfit(file[0], group, key, schema)
    others = [text for one, text in asked.items() if one != group]
    return (
        f"{group}={name} sets '{key}', which is no field of {schema}: it does not go together with "
        f"{' '.join(others) or 'the defaults'}; leave {group}={name} out, or take another one: "
        f"{', '.join(one for one in choices(group) if one != name)}"
    )


def _unfit(error: BaseException) -> str:
    """Sentence about a file that cannot be read, or a value of one that does not fit its field."""
    if isinstance(error, UnicodeDecodeError):
        return f"{_undecodable(error)} is no UTF-8 ({error.reason}); save it as UTF-8"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(str(error), error.missing_cfg_file)
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark) is not None:
        place = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}"
        return f"{place}: {', '.join(filter(None, (error.problem, error.context)))}"
    cause, found = error.__context__, re.match(r"In '(\w+)/([^']+)'", str(error))
    if not isinstance(cause, ValidationError) or not cause.full_key or found is None:
        return first_lines(error)
    file = config_file(*found.groups())
    told = in_words(_kind_of(cause), cause.full_key)
    got = re.match(r"Value '(.*?)' of type", str(cause))
    told = f"{told}, got '{got[1]}'" if told and got else f"{cause.full_key}: {first_lines(cause)}"
    return f"{file[0] if file else found[0]}: {told}"


def _missing(told: str, name: str) -> str:
    """Sentence about a file that another one extends, and that is not there."""
    group, _, name = name.rpartition("/")
    group = group.rpartition("/")[2]
    known = {*choices(group), *(_without_file(group) if group in REGISTRIES else ())}
    schemas = {f"{one.name}_schema" for one in known_components() if one.group == group}
    near = difflib.get_close_matches(name, [*known, *schemas], n=1)
    if name.endswith("_schema") or (near and near[0] in schemas):
        known = schemas
    sentence = unknown_name(group, name.removesuffix(".yaml"), known)
    asking = re.match(r"In '(\w+)/(\w+)'", told)
    file = config_file(*asking.groups()) if asking else None
    return f"{file[0]}: {sentence}" if file else sentence


def _undecodable(error: UnicodeDecodeError) -> str:
    """Path of the file that is not UTF-8."""
    for folder in config_folders():
        for path in sorted(folder.path.glob("*/*.yaml")):
            content = path.read_bytes()
            try:
                content.decode()
            except UnicodeDecodeError:
                if error.object in content:
                    return str(path)
    return "a YAML file"


def _kind_of(error: ValidationError) -> Any:
    """Declared type of the field that a value does not fit."""
    if is_dataclass(error.object_type):
        return get_type_hints(error.object_type).get(str(error.key), object)
    return next(iter(get_args(error.ref_type)[1:]), object)


def _own_misfit(file: Path, group: str, key: str, schema: str) -> str:
    """The same of a file that somebody wrote."""
    if key == group:
        return (
            f"{file} is put into '{group}', which is no field of a run; its first line must be "
            "'# @package _global_'"
        )
    known = next((fields(one) for one in _schemas() if one.__name__ == schema), ())
    if not known:
        return f"{file} sets '{key}', which is no field of {schema}"
    return f"{file}: {unknown_name(f'field of {schema}', key, [one.name for one in known])}"


def _schemas() -> Iterator[Any]:
    """Dataclasses of a run and of all parts, and those that their fields are made of."""
    left: list[Any] = [RunConfig, *(one.config for one in known_components())]
    met: set[Any] = set()
    while left:
        kind = left.pop()
        if get_origin(kind) is not None:
            left += get_args(kind)
        elif isinstance(kind, type) and is_dataclass(kind) and kind not in met:
            met.add(kind)
            left += get_type_hints(kind).values()
            yield kind
