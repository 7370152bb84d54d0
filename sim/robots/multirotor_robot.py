"""A multirotor as it is configured, and the ranges of what its episodes draw."""

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind
from sim import checks
from sim.cameras.config import AppearanceRandomization, CameraConfig
from sim.physics.multirotor_model import MultirotorModel
from sim.randomization import CurriculumConfig
from sim.robots.rate_loop import RateLoopConfig

START_SPEED = 0.5
"""Rotor speed at an episode's start, fraction of the largest (Eschmann et al. 2024: mid-range)."""


@dataclass(kw_only=True)
class MultirotorRandomization:
    """Ranges of the physical parameters that every episode draws anew."""

    plants: list[str] = field(default_factory=list)
    """The robot's plants that an episode's lies between: mass, inertia, thrust and the others each
    between those of any two of them, evenly in the logarithm; the ranges below widen it. Empty
    takes `robot.plant`."""
    mass: float = 0.1
    """Relative half-width of the mass."""
    inertia: float = 0.1
    """Relative half-width of the inertia."""
    thrust: float = 0.1
    """Relative half-width of the thrust."""
    rotor_lag: list[float] = field(default_factory=lambda: [0.04, 0.15])
    """Range of the rotors' time constant [s], rise and fall alike; empty keeps the plant's. Between
    several `plants` rise and fall are drawn apart, evenly in the logarithm."""
    force: float = 0.05
    """Standard deviation per axis of a constant force, as a fraction of the weight; is added to
    the plant's, as the torque is."""
    torque: float = 1e-4
    """Standard deviation per axis of a constant torque, as a fraction of weight times 1 m."""
    action_delay: list[float] = field(default_factory=list)
    """Range of the delay between an action and the rotors, or the inner loop of an action that asks
    for body rates [s]; of any length, uniform. Empty keeps the plant's."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """Widens the ranges while training succeeds; evaluation has all."""
    appearance: AppearanceRandomization = field(default_factory=AppearanceRandomization)
    """Looks of what cameras see."""

    @classmethod
    def nominal(cls) -> "MultirotorRandomization":
        """Ranges without extent: every multirotor is its plant."""
        return cls(mass=0.0, inertia=0.0, thrust=0.0, rotor_lag=[], force=0.0, torque=0.0)

    def __post_init__(self) -> None:
        checks.below_one(self, "mass", "inertia", "thrust", of="randomization")
        checks.not_negative(self, "force", "torque", of="randomization")
        for name, lowest in (("rotor_lag", 1e-4), ("action_delay", 0.0)):
            values = getattr(self, name)
            ok = len(values) == 2 and lowest <= values[0] <= values[1]
            if values and not ok:
                raise ConfigError(
                    f"randomization.{name} must be [low, high] with {lowest} <= low <= high [s], "
                    f"got {values}"
                )


class FlightAction(Enum):
    """Kind of command that a policy gives a multirotor."""

    rotors = "rotors"
    """The speed of every rotor."""
    body_rates = "body_rates"
    """Body rates and collective thrust, as flight controllers take them: an inner loop follows."""


@dataclass(kw_only=True)
class MultirotorConfig:
    """A multirotor: what it is for a policy (`spec`), and the plants that simulate it."""

    randomization_type: ClassVar[type] = MultirotorRandomization

    spec: RobotSpec = field(default_factory=lambda: RobotSpec(name="multirotor"))
    """The description that simulation, policy and driver share."""
    plant: str = "nominal"
    """The one of `plants` that is simulated."""
    plants: dict[str, MultirotorModel] = field(default_factory=dict)
    """Physical models of the same robot, by name."""
    physics_dt: float = 0.01
    """Integration step [s]."""
    decimation: int = 1
    """Integration steps per control step."""
    loop_dt: float = 0.0
    """Period of the robot's own loop, behind which a twin lives [s]; 0 takes `physics_dt`."""
    action: FlightAction = FlightAction.rotors
    """Meaning of a policy's actions."""
    rate_loop: RateLoopConfig = field(default_factory=RateLoopConfig)
    """The inner loop, which runs at the integration step: follows a policy's body rates, and levels
    a robot that is stopped."""
    cameras: dict[str, CameraConfig] = field(default_factory=dict[str, CameraConfig])
    """Cameras on the body `base` or in the world; `env.cameras` chooses from them."""

    def __post_init__(self) -> None:
        if self.plants and self.plant not in self.plants:
            raise ConfigError(unknown_name("plant", self.plant, self.plants))
        checks.positive(self, "physics_dt", "decimation", of="robot")
        self.loop_dt = self.loop_dt or self.physics_dt
        loops = self.physics_dt * self.decimation / self.loop_dt if self.loop_dt > 0 else 0.0
        if not (loops >= 1 and math.isclose(loops, round(loops), rel_tol=1e-6)):
            raise ConfigError(
                f"robot.loop_dt must go into the control period of "
                f"{self.physics_dt * self.decimation:g} s a whole number of times, "
                f"got {self.loop_dt:g} s"
            )

    @property
    def model(self) -> MultirotorModel:
        """The plant that is simulated."""
        return self.plants[self.plant]

    def behind_a_loop(self) -> "MultirotorConfig":
        """This robot with a command, an integration step and a sample per tick of its loop.

        Slower sensors keep up with the loop: the engine measures in every step. A policy that is
        paced by its samples sees them as young as in training either way.
        """
        rate = 1 / self.loop_dt
        sensors = {
            name: replace(sensor, rate_hz=max(sensor.rate_hz, rate))
            for name, sensor in self.spec.sensors.items()
        }
        spec, finer = replace(self.spec, sensors=sensors), self.physics_dt / self.loop_dt
        plants = {
            name: replace(plant, action_delay=round(plant.action_delay * finer))
            for name, plant in self.plants.items()
        }
        return replace(self, spec=spec, plants=plants, physics_dt=self.loop_dt, decimation=1)

    def action_map(self, task: Any) -> ActionMap:
        """Actions in [-1, 1] span what is told: standing still to full speed, or to full thrust."""
        if self.action is FlightAction.body_rates:
            rates = self.rate_loop.rates
            low, high = [*(-rate for rate in rates), 0.0], [*rates, 1.0]
            return ActionMap(kind=CommandKind.body_rates, low=low, high=high)
        count = len(self.spec.rotors)
        return ActionMap(kind=CommandKind.rotors, low=[0.0] * count, high=[1.0] * count)

    @property
    def initial_action(self) -> float:
        """The "last action" at an episode's start: how fast rotors start, or no rates."""
        return 2 * START_SPEED - 1

    def simulation_arguments(self, task: Any, *, evaluation: bool) -> dict[str, Any]:
        """Arguments of the simulation that a flight task decides: the curriculum."""
        return {"curriculum": None if evaluation else task.randomization.curriculum}

    def task_arguments(self, simulation: Any, task: Any, control_dt: float) -> dict[str, Any]:
        """Arguments of flight tasks."""
        return {"robot": self.spec, "hover_action": self.hover_action}

    @property
    def hover_action(self) -> list[float]:
        """Action that carries the plant's weight, (A,)."""
        if self.action is FlightAction.body_rates:
            return [0.0, 0.0, 0.0, 2 * self.model.hover_thrust - 1]
        return [2 * self.model.hover_setpoint - 1] * len(self.spec.rotors)
