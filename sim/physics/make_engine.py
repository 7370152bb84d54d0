"""The engine that a robot's config names."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import mujoco
import torch

from robot_rl.core.errors import DeviceError
from sim.physics.engine import Engine, PhysicsEngine
from sim.physics.mujoco_engine.batch import MujocoEngine


def make_engine(
    kind: PhysicsEngine, model: mujoco.MjModel, num_worlds: int, *, decimation: int, threads: int,
    contacts: int, device: torch.device,
) -> Engine:  # fmt: skip
    """Worlds in the model's reference pose.

    Args:
        kind: Which engine.
        model: Of one world.
        num_worlds: N.
        decimation: Integration steps of a control period.
        threads: CPU threads of the engine `batch`; 0 for one per core.
        contacts: Room of the engine `warp` for contacts of a world; 0 for what falls of the
            model suggest.
        device: Where the worlds live; the engine `batch` knows the CPU only.

    Raises:
        ConfigError: The engine cannot simulate the model.
        DeviceError: Not on this device.
        MissingExtraError: The engine is not installed.
    """
    if kind is PhysicsEngine.batch:
        if device.type != "cpu":
            raise DeviceError(
                f"robot.engine=batch simulates on the CPU only, device '{device}' was asked for; "
                "use device=cpu, or robot.engine=warp"
            )
        return MujocoEngine(model, num_worlds, decimation=decimation, threads=threads)
    from sim.physics.warp_engine.engine import MujocoWarpEngine  # an extra, only where asked for

    return MujocoWarpEngine(
        model, num_worlds, decimation=decimation, contacts=contacts, device=device
    )
