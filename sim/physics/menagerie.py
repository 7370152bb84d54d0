"""A robot whose mechanism is the published one of MuJoCo Menagerie (`robot.model=menagerie`).

Links, joints and collision shapes come from Menagerie. Ground, light, solver options (with more
iterations) and sensors stay those of our own MJCF of the robot; the sensors look at the published
links of the same names, whose frames our files share (`tests/sim/robots`). Motors come from the
RobotSpec as always, and so does what the robot's own controller does about the weight of its links
(`gravcomp`). Menagerie's actuators, keyframes, sensors, lights, cameras and drawings
are left out.

The files are the user's: a checkout of Menagerie, or the package `mujoco-menagerie`, which
downloads a robot at its first use.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import mujoco

from robot_rl.core.errors import ConfigError

MENAGERIE = "menagerie"
"""Value of `robot.model` instead of a file."""
_CHECKOUT = "MENAGERIE_ROOT"
"""Environment variable, the same as the package's: folder of a checkout."""
_PREFIX = "own/"
"""Before the names of our ground and light, which may be names of the published model too."""
_SOLVER_ITERATIONS = 30
"""Published links collide with each other: with the 5 of our Go2 it explodes at wild targets."""
_SENSOR_FIELDS = (
    "name", "type", "objtype", "objname", "reftype", "refname", "intprm", "datatype", "needstage",
    "dim", "cutoff", "noise",
)  # fmt: skip
_KINDS = {
    mujoco.mjtObj.mjOBJ_SITE: "site",
    mujoco.mjtObj.mjOBJ_BODY: "body",
    mujoco.mjtObj.mjOBJ_XBODY: "body",
    mujoco.mjtObj.mjOBJ_GEOM: "geom",
    mujoco.mjtObj.mjOBJ_JOINT: "joint",
}


def published_tree(entry: str, file: Path, own: mujoco.MjSpec, *, owner: str) -> mujoco.MjSpec:
    """Our own model with its robot exchanged for the published one.

    Args:
        entry: Folder and file in Menagerie, such as "unitree_go2/go2".
        file: What `find_published` found for it.
        own: Our model; one body of its world is the robot. Not changed.

    Raises:
        ConfigError: A sensor of ours has no place on it.
    """
    tree = mujoco.MjSpec.from_file(str(file))
    for part in (*tree.actuators, *tree.keys, *tree.sensors, *tree.lights, *tree.cameras):
        tree.delete(part)
    tree.nkey = 0
    tree.discard_visual()
    tree.option = own.option
    tree.option.iterations = max(own.option.iterations, _SOLVER_ITERATIONS)
    tree.option.ls_iterations = max(own.option.ls_iterations, _SOLVER_ITERATIONS)
    ours, published = _robot(own, owner), _robot(tree, owner)
    for pair in tree.excludes:
        pair.bodyname1, pair.bodyname2 = (
            ours.name if name == published.name else name
            for name in (pair.bodyname1, pair.bodyname2)
        )
    published.name, published.pos, published.quat = ours.name, ours.pos, ours.quat
    published.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT  # else angles would count
    for our, their in zip(ours.joints, published.joints, strict=False):  # a free joint, or none
        their.name = our.name
    _compensate_gravity(tree, own, f"{owner}: {entry} of Menagerie")
    surroundings = own.copy()
    for part in (*surroundings.sensors, _robot(surroundings, owner)):
        surroundings.delete(part)
    surroundings.option = tree.option
    tree.attach(surroundings, prefix=_PREFIX, frame=tree.worldbody.add_frame())
    for sensor in own.sensors:
        _put_sensor(tree, sensor, own, f"{owner}: {entry} of Menagerie")
    return tree


def find_published(entry: str, owner: str) -> Path:
    """File of a published model.

    Args:
        entry: Folder and file in Menagerie, such as "unitree_go2/go2".
        owner: Named in errors.

    Raises:
        ConfigError: There is no such file, or the entry names none.
    """
    folder, _, file = entry.partition("/")
    if not folder or not file:
        raise ConfigError(
            f"{owner}: model=menagerie needs robot.menagerie, folder and file of the published "
            f"model such as 'unitree_go2/go2', got '{entry}'"
        )
    root = os.environ.get(_CHECKOUT)
    if not root:
        return _from_package(folder, file, owner)
    path = Path(root) / folder / f"{file}.xml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.xml")))
        raise ConfigError(
            f"{owner}: {_CHECKOUT} has no {folder}/{file}.xml ({path}); known: {known or 'none'}"
        )
    return path


def _from_package(folder: str, file: str, owner: str) -> Path:
    try:
        package: Any = import_module("mujoco_menagerie")
    except ImportError as error:
        raise ConfigError(
            f"{owner}: model=menagerie needs the published models: pip install mujoco-menagerie, "
            f"or set {_CHECKOUT} to a checkout of MuJoCo Menagerie"
        ) from error
    try:
        return Path(package.get(folder).xml(file))
    except (package.MenagerieError, OSError) as error:
        raise ConfigError(
            f"{owner}: the package mujoco-menagerie does not bring {folder}/{file}: "
            f"{' '.join(str(error).split())}; without a connection, set {_CHECKOUT} to a "
            "checkout of MuJoCo Menagerie"
        ) from error


def _robot(tree: mujoco.MjSpec, owner: str) -> Any:
    bodies = list(tree.worldbody.bodies)
    if len(bodies) != 1:
        names = [body.name for body in bodies]
        raise ConfigError(f"{owner}: expected one robot in {tree.modelname}, got bodies {names}")
    return bodies[0]


def _compensate_gravity(tree: mujoco.MjSpec, own: mujoco.MjSpec, owner: str) -> None:
    """Links that the robot's own controller holds against gravity, as our file says."""
    for body in own.bodies:
        if body.gravcomp:
            theirs = tree.body(body.name)
            if theirs is None:
                raise ConfigError(
                    f"{owner} has no body '{body.name}', whose weight the robot's controller bears"
                )
            theirs.gravcomp = body.gravcomp


def _put_sensor(tree: mujoco.MjSpec, sensor: Any, own: mujoco.MjSpec, owner: str) -> None:
    for kind, name in ((sensor.objtype, sensor.objname), (sensor.reftype, sensor.refname)):
        if not name:
            continue
        word = _KINDS.get(kind, "part")
        if word == "site":
            _put_site(tree, own.site(name), f"{owner}: sensor '{sensor.name}'")
        elif getattr(tree, word, lambda _: None)(name) is None:
            raise ConfigError(
                f"{owner} has no {word} '{name}', which our sensor '{sensor.name}' looks at"
            )
    tree.add_sensor(**{field: getattr(sensor, field) for field in _SENSOR_FIELDS})


def _put_site(tree: mujoco.MjSpec, site: Any, owner: str) -> None:
    """Mark the same place on the link of the same name; a published site of the name goes."""
    link = site.parent.name
    body = tree.body(link)
    if body is None:
        raise ConfigError(f"{owner} belongs to link '{link}', which is not there")
    present = tree.site(site.name)
    if present is not None:
        tree.delete(present)
    place = {name: getattr(site, name) for name in ("pos", "quat", "size", "type", "rgba")}
    body.add_site(name=site.name, **place)
