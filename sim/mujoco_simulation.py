"""Simulated robots with joints: MuJoCo worlds, motors, sensors, and parameters drawn per world."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import DeviceError, SpecMismatchError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand, RobotCommand
from robot_rl.core.robot_state import STATE_FIELDS, RobotState
from robot_rl.core.rows import Rows
from sim.joint_plant import JointPlants
from sim.joint_robot import JointRandomization, JointRobotConfig
from sim.physics.mujoco_batch import MujocoEngine
from sim.physics.mujoco_model import load_model
from sim.sensing import DelayedSensors

_STIFFNESS, _DAMPING = 1, 2
"""Columns of `actuator_biasprm`, where a motor's gains stand with a minus sign."""


class MujocoSimulation:
    """N robots on fixed bases behind the `Simulation` protocol.

    The truth holds joint positions and velocities and every sensor of the model that is named after
    a field of `RobotState`; what is measured is what the `RobotSpec` declares, noisy and late.
    """

    def __init__(
        self,
        config: JointRobotConfig,
        randomization: JointRandomization,
        *,
        num_worlds: int,
        device: torch.device,
        seed: int,
    ) -> None:
        """Build the worlds; `reset` must place the robots before the first step.

        Args:
            config: Robot and model.
            randomization: Ranges drawn at every reset.
            num_worlds: N.
            device: The CPU.
            seed: Seed of the sensor noise.

        Raises:
            ConfigError: The model cannot be used or is unstable.
            DeviceError: Another device was asked for.
            SpecMismatchError: Joints, limits or sensors of spec and model differ.
        """
        if device.type != "cpu":
            raise DeviceError(
                f"robot '{config.spec.name}' is simulated on the CPU only, device '{device}' was "
                "asked for; use device=cpu"
            )
        self.config = config
        self.randomization = randomization
        self.device = device
        self.num_worlds = num_worlds
        model = load_model(config.model, config.spec, physics_dt=config.physics_dt)
        self.engine = MujocoEngine(
            model, num_worlds, decimation=config.decimation, threads=config.physics_threads
        )
        self.control_dt = self.engine.control_dt
        self._sources = self._state_sources()
        self._truth = RobotState(
            {name: source.float() for name, source in self._sources.items()}  # copies
        )
        self._sensors = DelayedSensors(
            self.robot,
            num_worlds=num_worlds,
            control_dt=self.control_dt,
            max_delay=round(randomization.latency[1] / self.control_dt),
            device=device,
            seed=seed,
        )
        self._measured = RobotState(
            {name: self._sensors.values[:, c] for name, c in self._sensors.columns.items()}
        )
        self._gains = self.engine.model_field("actuator_biasprm")[:, :, _STIFFNESS : _DAMPING + 1]
        self._stiffness_factor = torch.ones(num_worlds, 1)
        self._damping_factor = torch.ones(num_worlds, 1)
        self._plants = JointPlants(config, randomization, self.engine)

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
        """(N,) bool: MuJoCo warned, reset a world by itself, or failed."""
        return self.engine.fault

    @property
    def privileged(self) -> Mapping[str, Tensor]:
        """Drawn parameters, each column in [-1, 1] over its range."""
        return {"plant": self._plants.drawn}

    def step(self, command: RobotCommand) -> None:
        """Simulate one control period."""
        if not isinstance(command, JointCommand):
            raise SpecMismatchError(
                f"a simulated robot with joints takes joint commands, got {type(command).__name__}"
            )
        kp, kd = command.kp * self._stiffness_factor, command.kd * self._damping_factor
        self._gains[..., 0] = -kp
        self._gains[..., 1] = -kd
        self.engine.control.copy_(kp * command.q + kd * command.dq + command.tau)
        self.engine.step()
        self._look()
        self._sensors.measure(self._sensed())

    def reset(self, rows: Rows, start: RobotState, generator: torch.Generator) -> None:
        """Place the picked robots and draw their physical parameters."""
        self._plants.begin(rows, generator)
        self._tune(rows)
        self.engine.reset(rows, start.joint_position, start.joint_velocity)
        self._look()
        self._sensors.reset(rows, self._sensed())

    def reseed(self, seed: int) -> None:
        """Restart the stream of sensor noise."""
        self._sensors.reseed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Worlds, drawn parameters, samples in flight and the stream of the noise."""
        return {
            "engine": self.engine.state_dict(),
            "sensors": self._sensors.state_dict(),
            "plants": self._plants.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.engine.load_state_dict(state["engine"])
        self._sensors.load_state_dict(state["sensors"])
        self._plants.load_state_dict(state["plants"])
        self._tune(Rows(torch.ones_like(self.fault)))
        self._look()

    def _tune(self, rows: Rows) -> None:
        """Hand drawn gains, noise and latency to motors and sensors."""
        value = self._plants.value
        rows.put(self._stiffness_factor, value("stiffness", rows).float())
        rows.put(self._damping_factor, value("damping", rows).float())
        rows.put(self._sensors.noise_factor, value("sensor_noise", rows)[:, 0].float())
        rows.put(
            self._sensors.delay, (value("latency", rows)[:, 0] / self.control_dt).round().long()
        )

    def _look(self) -> None:
        """Bring the truth up to date with the engine."""
        for name, source in self._sources.items():
            self._truth.fields[name].copy_(source)

    def _sensed(self) -> list[Tensor]:
        return [self._truth.fields[name] for name in self._sensors.columns]

    def _state_sources(self) -> dict[str, Tensor]:
        """Fields of the true state: live views of the engine."""
        engine = self.engine
        sources = {"joint_position": engine.qpos, "joint_velocity": engine.qvel}
        sources |= {name: view for name, view in engine.sensors.items() if name in STATE_FIELDS}
        for name, width in self.robot.state_widths.items():
            if name not in sources:
                told = unknown_name(f"robot '{self.robot.name}': sensor", name, sources)
                raise SpecMismatchError(
                    f"{told}; declare a sensor of that name in {self.config.model}"
                )
            if sources[name].shape[1] != width:
                raise SpecMismatchError(
                    f"robot '{self.robot.name}': sensor '{name}' of {self.config.model} has "
                    f"{sources[name].shape[1]} entries, expected {width}"
                )
        return sources
