"""A lever of 1 kg m^2 about the vertical: its acceleration is the torque that acts on it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind, JointCommand
from sim.robots.joint_robot import JointRandomization, JointRobotConfig
from sim.robots.joint_simulation import MujocoSimulation
from sim.task import InitialState

DT = 0.001
"""Physics and control step of the lever [s]."""
_LIMIT = [-1000.0, 1000.0]
_MODEL = """
<mujoco model="lever">
  <compiler angle="radian"/>
  <option integrator="implicitfast" gravity="0 0 0"/>
  <worldbody>
    <body name="lever">
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      <joint name="joint" axis="0 0 1" limited="true" range="-1000 1000"/>
    </body>
  </worldbody>
</mujoco>
"""


def lever_config(folder: Path, *, decimation: int = 1, **joint: Any) -> JointRobotConfig:
    """A lever whose motor has the given fields of `JointSpec`."""
    file = folder / "lever.xml"
    file.write_text(_MODEL)
    spec = RobotSpec(
        name="lever",
        joints=[JointSpec(**({"name": "joint", "position_limit": _LIMIT} | joint))],
        sensors={"joint_position": SensorSpec(rate_hz=1 / DT)},
        command=CommandKind.joint,
    )
    return JointRobotConfig(
        spec=spec, model=str(file), physics_dt=DT, decimation=decimation, physics_threads=1
    )


def levers(
    folder: Path, count: int = 1, *, ranges: JointRandomization | None = None, seed: int = 0,
    decimation: int = 1, **joint: Any,
) -> MujocoSimulation:  # fmt: skip
    """Levers at rest at 0."""
    simulation = MujocoSimulation(
        lever_config(folder, decimation=decimation, **joint), ranges or JointRandomization(),
        num_worlds=count, device=torch.device("cpu"), seed=seed,
    )  # fmt: skip
    place(simulation, torch.ones(count, dtype=torch.bool), seed=seed)
    return simulation


def place(
    simulation: MujocoSimulation, mask: torch.Tensor, *, speed: float = 0.0, seed: int = 0
) -> None:
    """Begin the masked levers at 0."""
    rows = EnvSelection(mask)
    zero = torch.zeros(rows.count, 1)
    start = InitialState(robot=RobotState({"joint_position": zero, "joint_velocity": zero + speed}))
    simulation.reset(rows, start, torch.Generator().manual_seed(seed))


def command(simulation: MujocoSimulation, **values: float) -> JointCommand:
    """The same for all levers; what is not given is 0."""
    zero = torch.zeros(simulation.num_worlds, 1)
    nothing = JointCommand(q=zero, dq=zero, tau=zero, kp=zero, kd=zero)
    return replace(nothing, **{name: zero + value for name, value in values.items()})


def torque(simulation: MujocoSimulation, speed: float, **values: float) -> torch.Tensor:
    """Torque of the motors at a speed, (N,), [N m]."""
    every = torch.ones(simulation.num_worlds, dtype=torch.bool)
    place(simulation, every, speed=speed)
    simulation.step(command(simulation, **values))
    return simulation.true_state.joint_effort[:, 0].clone()
