"""View of a simulation for drawing: one env at a time as a MuJoCo model and its data.

Whatever engine simulates, drawing knows MuJoCo only: robots with joints are MuJoCo worlds already,
and a multirotor is put into a scene with a model of its body. A copy of the env that is shown is
made on the CPU; nothing here changes the simulation but `push` and `move_fixtures`.
"""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy

import mujoco
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.errors import ConfigError
from sim.physics.multirotor_model import (
    ANGULAR_VELOCITY,
    LINEAR_VELOCITY,
    ORIENTATION,
    POSITION,
)
from sim.rendering.flight_scene import BLADE_SPEED, flight_scene
from sim.rendering.scene import Data, Model
from sim.robots.joint_simulation import MujocoSimulation
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.simulation import Simulation

_MOST_CONTACTS = 64


class ShownEnvs(ABC):
    """N envs of which one can be looked at."""

    model: Model
    """The model of the env that was looked at last."""
    base: int
    """Body of the robot that goals in the base frame refer to, and that a camera follows."""
    floats: bool
    """True where the base moves."""
    push_axes: tuple[str, ...]
    """Directions in the world, or the joints of a robot on a fixed base."""

    @abstractmethod
    def look(self, env: int, time: float) -> Data:
        """Copy one env; poses, contacts and forces are computed.

        Args:
            time: Simulated time since the look began [s]; turns what turns for the eye only.

        Returns:
            Overwritten by the next call.
        """

    @abstractmethod
    def push(self, env: int, axis: str, speed: float) -> None:
        """Change the velocity of the base [m/s], or of a joint [rad/s or m/s], at once."""

    def move_fixtures(self, env: int, poses: Mapping[str, Tensor]) -> None:
        """Put fixtures of one env elsewhere, poses (7,) by name."""
        raise ConfigError(f"{type(self).__name__} have no fixtures, got {', '.join(poses)}")


def shown_envs(simulation: Simulation) -> ShownEnvs:
    """View of a simulation for drawing.

    Raises:
        ConfigError: Nothing is known to draw of it.
    """
    if isinstance(simulation, MujocoSimulation):
        return MujocoEnvs(simulation)
    if isinstance(simulation, MultirotorSimulation):
        return MultirotorEnvs(simulation)
    raise ConfigError(
        f"envs of {type(simulation).__name__} cannot be drawn; what can be drawn is simulated by "
        "MujocoSimulation or MultirotorSimulation"
    )


class MujocoEnvs(ShownEnvs):
    """Robots with joints, as they are simulated."""

    def __init__(self, simulation: MujocoSimulation) -> None:
        """Make room for a copy of one env."""
        self._simulation = simulation
        self.model = model = copy(simulation.engine.model)
        self._data = mujoco.MjData(model)
        first = model.joint(simulation.robot.joint_names[0])
        self.base = int(model.body_rootid[model.jnt_bodyid[first.id]])
        self.floats = simulation.layout.floating
        self.push_axes = ("x", "y", "z") if self.floats else tuple(simulation.robot.joint_names)

    def look(self, env: int, time: float) -> Data:
        """Copy one env."""
        self._simulation.engine.copy_world(env, self.model, self._data)
        return self._data

    def push(self, env: int, axis: str, speed: float) -> None:
        """Change a velocity at once."""
        first = 0 if self.floats else self._simulation.layout.velocity.start
        self._simulation.engine.qvel[env, first + self.push_axes.index(axis)] += speed

    def move_fixtures(self, env: int, poses: Mapping[str, Tensor]) -> None:
        """Put fixtures of one env elsewhere."""
        self._simulation.move_fixtures(env, poses)


class MultirotorEnvs(ShownEnvs):
    """Multirotors in a studio: a Crazyflie of their size above a floor that it never meets."""

    base, floats = 1, True
    push_axes = ("x", "y", "z")

    def __init__(self, simulation: MultirotorSimulation) -> None:
        self._simulation = simulation
        plant = simulation.config.model
        drawn = flight_scene(plant.rotor_position)
        self.model, self._blades = drawn.tree.compile(), 7 + drawn.order
        self._data = mujoco.MjData(self.model)
        self._sign = np.array(plant.rotor_yaw_sign)
        self._angle = np.zeros((simulation.num_worlds, 4))
        self._seen = np.zeros(simulation.num_worlds)  # time of the last look [s]

    def look(self, env: int, time: float) -> Data:
        """Put the model where the multirotor is."""
        state = self._simulation.engine.state[env].cpu().double().numpy()
        elapsed, self._seen[env] = max(0.0, time - self._seen[env]), time
        turned = BLADE_SPEED * elapsed * self._simulation.rotor_speed[env].cpu().numpy()
        self._angle[env] += self._sign * turned
        data = self._data
        data.qpos[:3], data.qpos[3:7] = state[POSITION], state[ORIENTATION]
        data.qpos[self._blades] = self._angle[env]
        data.qvel[:3], data.qvel[3:6] = state[LINEAR_VELOCITY], state[ANGULAR_VELOCITY]
        mujoco.mj_forward(self.model, data)
        return data

    def push(self, env: int, axis: str, speed: float) -> None:
        """Change the velocity at once."""
        first = LINEAR_VELOCITY.start
        self._simulation.engine.state[env, first + self.push_axes.index(axis)] += speed


def contact_forces(model: Model, data: Data) -> tuple[NDArray, NDArray]:
    """Contacts with a force: places and forces, each (P, 3), world axes [m], [N].

    A force is the one that the second geom of a contact feels.

    Args:
        data: With contacts and constraint forces of the present state.
    """
    places: list[NDArray] = []
    forces: list[NDArray] = []
    for i in range(min(data.ncon, _MOST_CONTACTS)):
        wrench = np.zeros(6)
        mujoco.mj_contactForce(model, data, i, wrench)
        if wrench[0] > 0:
            places.append(data.contact[i].pos.copy())
            forces.append(data.contact[i].frame.reshape(3, 3).T @ wrench[:3])
    return np.reshape(places, (-1, 3)), np.reshape(forces, (-1, 3))
