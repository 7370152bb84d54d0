"""Changes of `configs/robustness`, by which a policy is asked what training has not drawn."""

import yaml

from configs.catalog import config_file
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec


def read_axes(robot: RobotSpec) -> dict[str, list[str]]:
    """Changes by the names of the axes: those of the kind of robot, then the robot's own.

    Raises:
        ConfigError: A file is no mapping of names to lists.
    """
    kind = "multirotor" if robot.rotors else "legs" if robot.feet else "arm"
    return read_changes(kind) | read_changes(robot.name)


def read_changes(name: str) -> dict[str, list[str]]:
    """Changes of one file of `configs/robustness` by the names of the axes; none without it.

    Raises:
        ConfigError: It is no mapping of names to lists.
    """
    if (found := config_file("robustness", name)) is None:
        return {}
    axes: dict[str, list[str]] = {}
    content = yaml.safe_load(found[0].read_text())
    for axis, changes in content.items() if isinstance(content, dict) else [("", None)]:
        if not isinstance(changes, list):
            raise ConfigError(
                f"{found[0]}: expected a name and a list of changes, such as "
                f"`light: [task.randomization.mass=0.3]`, got '{axis}: {changes}'"
            )
        axes[str(axis)] = [str(change) for change in changes]
    return axes
