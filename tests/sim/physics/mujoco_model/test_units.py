"""Model files in other units than metres and kilograms: refused with link, number and guess."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import re
from pathlib import Path

import mujoco
import pytest

from robot_rl.core.errors import SpecMismatchError
from sim.physics.mujoco_model import ROBOTS, load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed
from tests.matrices import some


def scaled(text: str, length: float = 1.0, mass: float = 1.0, inertia: float = 1.0) -> str:
    """A robot's MJCF as another program would write it."""

    def times(factor: float):
        return lambda found: (
            f'{found[1]}="' + " ".join(str(factor * float(n)) for n in found[2].split()) + '"'
        )

    kinds = {"pos|size|fromto": length, "mass": mass, "(?:full|diag)inertia": inertia}
    for names, factor in kinds.items():
        text = re.sub(rf'\b({names})="([^"]*)"', times(factor), text)
    return text


@pytest.fixture(params=some(["panda"], ["go2", "g1"]))
def robot(request: pytest.FixtureRequest) -> JointRobotConfig:
    task = "reach" if request.param == "panda" else "velocity"
    config = composed([f"task={task}", f"robot={request.param}"]).config.robot
    assert isinstance(config, JointRobotConfig)
    return config


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ({"length": 1000.0}, r"; expected at most 10 m: is the file in millimetres\?"),
        ({"mass": 1000.0, "inertia": 1000.0}, r"has a mass of .* is the file in grams\?"),
        ({"inertia": 1e6}, r"has an inertia of .* are inertias in kg mm\^2 or g mm\^2\?"),
    ],
    ids=["millimetres", "grams", "inertias in kg mm^2"],
)
def test_a_file_in_other_units_is_refused(
    robot: JointRobotConfig, factors: dict[str, float], told: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.xml"
    file.write_text(scaled((ROBOTS / robot.model).read_text(), **factors))
    with pytest.raises(SpecMismatchError, match=f"^robot '{robot.spec.name}': link '.*{told}"):
        load_model(str(file), robot.spec, physics_dt=robot.physics_dt)


def test_the_same_file_in_metres_and_kilograms_is_taken(
    robot: JointRobotConfig, tmp_path: Path
) -> None:
    file = tmp_path / "model.xml"
    file.write_text(scaled((ROBOTS / robot.model).read_text()))
    model = load_model(str(file), robot.spec, physics_dt=robot.physics_dt)
    assert isinstance(model, mujoco.MjModel)
