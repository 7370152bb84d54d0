"""Simulated multirotors: the engine, the robot's sensors, and parameters drawn per world."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.mirrored import Mirrored
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand, RotorCommand
from robot_rl.core.robot_state import RobotState
from robot_rl.core.rows import Rows
from robot_rl.core.seeding import derive_seed
from sim import draws
from sim.curriculum import RangeCurriculum
from sim.physics import multirotor_model
from sim.physics.multirotor import MultirotorEngine
from sim.physics.multirotor_model import NOISE_WIDTH, PARAM_COLUMNS, MultirotorModel
from sim.physics.multirotor_sensors import (
    STATE_COLUMNS,
    latency_steps,
    sensing_row,
    state_views,
)
from sim.task import Start

START_SPEED = 0.5
"""Rotor speed at an episode's start, fraction of the largest (Eschmann et al. 2024: mid-range)."""


@dataclass(kw_only=True)
class MultirotorRandomization:
    """Ranges of the physical parameters that every episode draws anew."""

    mass: float = 0.1
    """Relative half-width of the mass."""
    inertia: float = 0.1
    """Relative half-width of the inertia."""
    thrust: float = 0.1
    """Relative half-width of the thrust."""
    rotor_lag: list[float] = field(default_factory=lambda: [0.04, 0.15])
    """Range of the rotors' time constant [s], rise and fall alike; empty keeps the plant's."""
    force: float = 0.05
    """Standard deviation per axis of a constant force, as a fraction of the weight; is added to
    the plant's, as the torque is."""
    torque: float = 1e-4
    """Standard deviation per axis of a constant torque, as a fraction of weight times 1 m."""
    action_delay: list[float] = field(default_factory=list)
    """Range of the delay between an action and the rotors [s], in whole physics steps; empty keeps
    the plant's."""

    @classmethod
    def nominal(cls) -> "MultirotorRandomization":
        """Nothing is drawn: every multirotor is its plant."""
        return cls(mass=0.0, inertia=0.0, thrust=0.0, rotor_lag=[], force=0.0, torque=0.0)

    def __post_init__(self) -> None:
        """Refuse ranges that contain impossible plants."""
        for name in ("mass", "inertia", "thrust"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"randomization.{name} must lie in [0, 1), got {getattr(self, name)}"
                )
        if self.force < 0 or self.torque < 0:
            raise ConfigError("randomization.force and .torque must not be negative")
        for name, lowest in (("rotor_lag", 1e-4), ("action_delay", 0.0)):
            values = getattr(self, name)
            ok = len(values) == 2 and lowest <= values[0] <= values[1]
            if values and not ok:
                raise ConfigError(
                    f"randomization.{name} must be [low, high] with {lowest} <= low <= high [s], "
                    f"got {values}"
                )


@dataclass(kw_only=True)
class MultirotorConfig:
    """A multirotor: what it is for a policy (`spec`), and the plants that simulate it."""

    randomization_type: ClassVar[type] = MultirotorRandomization

    spec: RobotSpec = field(default_factory=lambda: RobotSpec(name="multirotor"))
    """The description that simulation, policy and driver share."""
    plant: str = "nominal"
    """Which of `plants` is simulated."""
    plants: dict[str, MultirotorModel] = field(default_factory=dict)
    """Physical models of the same robot, by name."""
    physics_dt: float = 0.01
    """Integration step [s]."""
    decimation: int = 1
    """Integration steps per control step."""

    def __post_init__(self) -> None:
        """Refuse a plant that is not described."""
        if self.plants and self.plant not in self.plants:
            raise ConfigError(unknown_name("plant", self.plant, self.plants))
        if self.physics_dt <= 0 or self.decimation < 1:
            raise ConfigError(
                f"robot: physics_dt must be > 0 and decimation >= 1, "
                f"got {self.physics_dt} and {self.decimation}"
            )

    @property
    def model(self) -> MultirotorModel:
        """The plant that is simulated."""
        return self.plants[self.plant]

    def action_map(self, task: Any) -> ActionMap:
        """Actions in [-1, 1] span every rotor's speed from standing still to the largest."""
        count = len(self.spec.rotors)
        return ActionMap(kind=CommandKind.rotors, low=[0.0] * count, high=[1.0] * count)

    @property
    def initial_action(self) -> float:
        """The "last action" at an episode's start: the speed that rotors start with."""
        return 2 * START_SPEED - 1

    def simulation_arguments(self, task: Any, *, evaluation: bool) -> dict[str, Any]:
        """What a flight task says of its worlds: nothing, the sky is empty."""
        return {}

    def task_arguments(self, simulation: Any, task: Any) -> dict[str, Any]:
        """What a flight task is built with."""
        return {"hover_action": 2 * self.model.hover_setpoint - 1}


class MultirotorSimulation:
    """N multirotors behind the `Simulation` protocol."""

    def __init__(
        self,
        config: MultirotorConfig,
        randomization: MultirotorRandomization,
        *,
        num_worlds: int,
        device: torch.device,
        seed: int,
    ) -> None:
        """Build the worlds; `reset` must place the robots before the first step.

        Args:
            config: Robot and plant.
            randomization: Ranges drawn at every reset.
            num_worlds: N.
            device: Where the worlds live.
            seed: Seed of the sensor noise.
        """
        self.config = config
        self.randomization = randomization
        self.device = device
        self.num_worlds = num_worlds
        self.curriculum: RangeCurriculum | None = None
        """Ranges of multirotors are always whole."""
        dt, decimation = config.physics_dt, config.decimation
        self.control_dt = dt * decimation
        latency = latency_steps(self.robot, self.control_dt)
        delay = randomization.action_delay or [config.model.action_delay * dt] * 2
        self._delay_steps = (round(delay[0] / dt), round(delay[1] / dt))
        self.engine = MultirotorEngine(
            num_worlds,
            physics_dt=dt,
            decimation=decimation,
            max_action_delay=self._delay_steps[1],
            max_latency=latency,
            device=device,
        )
        self._nominal = sensing_row(config.model, self.robot, latency).to(device)
        self._plant = self._describe(self._nominal.expand(num_worlds, -1))
        self._noise_generator = torch.Generator(device=device)
        self._noise_generator.manual_seed(derive_seed(seed, "sensor noise"))
        self._normals = torch.randn(  # of one measurement
            (num_worlds, NOISE_WIDTH), generator=self._noise_generator, device=device
        )
        self._truth = state_views(self.engine.state, list(STATE_COLUMNS))
        self._measured = state_views(self.engine.measured, list(self.robot.sensors))

    @property
    def robot(self) -> RobotSpec:
        """The robot in every world."""
        return self.config.spec

    @property
    def truth(self) -> RobotState:
        """The true state."""
        return self._truth

    @property
    def measured(self) -> RobotState:
        """What the sensors say."""
        return self._measured

    @property
    def fault(self) -> Tensor:
        """(N,) bool: the state went non-finite."""
        return self.engine.fault

    @property
    def rotor_speed(self) -> Tensor:
        """True rotor speeds, (N, 4), fraction of the largest."""
        return self.engine.state[:, multirotor_model.ROTOR_SPEED]

    @property
    def sensed(self) -> Mapping[str, Tensor]:
        """Nothing: there is nothing around to be measured."""
        return {}

    @property
    def privileged(self) -> Mapping[str, Tensor]:
        """Rotor speeds, disturbances and drawn parameters, scaled to about one."""
        return {"rotor_speed": 2 * self.rotor_speed - 1, "plant": self._plant}

    def sensor_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """What a mirror does to rotor speeds, disturbances and drawn parameters."""
        kinds = ((Mirrored.vector, 3), (Mirrored.pseudovector, 3), (Mirrored.same, 5))
        plant = SignedPermutation.joined(robot.kind(kind, width) for kind, width in kinds)
        return {"rotor_speed": robot.unsigned(robot.robot.rotors), "plant": plant}

    def step(self, command: RobotCommand) -> None:
        """Simulate one control period."""
        if not isinstance(command, RotorCommand):
            raise SpecMismatchError(
                f"a simulated multirotor takes rotor commands, got {type(command).__name__}"
            )
        self._normals.normal_(generator=self._noise_generator)
        self.engine.step(command.speed, self._normals)

    def reset(self, rows: Rows, start: Start, generator: torch.Generator) -> None:
        """Place the picked robots and draw their physical parameters."""
        speed = torch.full((rows.count, 4), START_SPEED, device=self.device)
        fields = start.robot.fields
        state = torch.cat([*(fields[name] for name in STATE_COLUMNS), speed], dim=-1)
        rows.put(self.engine.state, state)
        params = self._draw(rows.count, generator)
        rows.put(self.engine.params, params)
        rows.put(self._plant, self._describe(params))
        rows.put(self.engine.fault, False)
        hold = torch.full((self.num_worlds, 4), START_SPEED, device=self.device)
        # The normals of the last step serve again: they belonged to an episode that has ended.
        self.engine.settle(rows.mask, hold, self._normals)

    def reseed(self, seed: int) -> None:
        """Restart the stream of sensor noise."""
        self._noise_generator.manual_seed(derive_seed(seed, "sensor noise"))
        self._normals.normal_(generator=self._noise_generator)

    def state_dict(self) -> dict[str, Any]:
        """Engine state and the stream of the sensor noise."""
        return {
            "engine": self.engine.state_dict(),
            "normals": self._normals.clone(),
            "noise": self._noise_generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.engine.load_state_dict(state["engine"])
        self._normals.copy_(state["normals"])
        self._noise_generator.set_state(state["noise"])
        self._plant.copy_(self._describe(self.engine.params))

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Parameters of `count` worlds, (count, P)."""
        ranges = self.randomization
        params = self._nominal.repeat(count, 1)
        weight = self._nominal[PARAM_COLUMNS["mass"]] * self._nominal[PARAM_COLUMNS["gravity"]]
        factors = draws.uniform((count, 3), -1.0, 1.0, generator)
        for i, (name, width) in enumerate(
            (("mass", ranges.mass), ("inertia", ranges.inertia), ("thrust_curve", ranges.thrust))
        ):
            params[:, PARAM_COLUMNS[name]] *= 1 + width * factors[:, i : i + 1]
        if ranges.rotor_lag:
            lag = draws.uniform((count, 1), ranges.rotor_lag[0], ranges.rotor_lag[1], generator)
            params[:, PARAM_COLUMNS["rotor_rise_time"]] = lag
            params[:, PARAM_COLUMNS["rotor_fall_time"]] = lag
        disturbance = weight * draws.normal((count, 6), 1.0, generator)
        params[:, PARAM_COLUMNS["disturbance_force"]] += ranges.force * disturbance[:, :3]
        params[:, PARAM_COLUMNS["disturbance_torque"]] += ranges.torque * disturbance[:, 3:]
        low, high = self._delay_steps
        if high > 0:
            delay = draws.uniform((count, 1), low - 0.5, high + 0.5, generator).round()
            params[:, PARAM_COLUMNS["action_delay"]] = delay.clamp(low, high)
        return params

    def _describe(self, params: Tensor) -> Tensor:
        """Disturbances and parameters of worlds as a critic reads them, (count, 11), about one."""
        nominal = self._nominal
        weight = nominal[PARAM_COLUMNS["mass"]] * nominal[PARAM_COLUMNS["gravity"]]  # [N]
        force = params[:, PARAM_COLUMNS["disturbance_force"]] / (0.1 * weight)  # 3
        torque = params[:, PARAM_COLUMNS["disturbance_torque"]] / (2e-4 * weight)  # 3
        ratio = [  # 3
            (params[:, PARAM_COLUMNS[name]][:, -1:] / nominal[PARAM_COLUMNS[name]][-1:] - 1) * 10
            for name in ("mass", "inertia", "thrust_curve")
        ]
        lag = [  # 2
            params[:, PARAM_COLUMNS[name]] * 10 for name in ("rotor_rise_time", "rotor_fall_time")
        ]
        return torch.cat([force, torque, *ratio, *lag], dim=-1)
