"""A robot process whose robot is the twin of a Panda, for a person in another process."""

import time
from multiprocessing.connection import Connection

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArrayPublisher
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.realtime import request_realtime
from hardware.control.stopping import StopConfig
from robot_rl.core.robot_command import CommandKind, PoseCommand
from tests.compositions import composed
from tests.robot_rl.cli.twin_session import person_control

WORLD = {"sensed/hole_position": 3, "sensed/hole_axis": 3}
"""Fields of the channel `world`."""
PATIENT = SafetyLimits(overrun_share=1.0, overrun_ticks=200, state_late=1.0, state_lost=2.0)
"""For a machine that others use too; the lease is the usual one."""


def run(name: str, pipe: Connection) -> None:
    """Run until the pipe says so; then send when setpoints of a person changed by how much."""
    import torch

    from configs.twin_builder import build_twin

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    config = composed(["task=peg", "robot=panda"]).config
    twin = build_twin(config, seed=0)
    twin.connect()
    twin.valued = False
    control = person_control(config, twin)
    moves: list[tuple[float, float]] = []
    last = [0.0]

    def on_setpoint(setpoint: object) -> None:
        if isinstance(setpoint, PoseCommand):
            x = float(setpoint.position_w[0, 0])
            moves.append((time.monotonic(), x - last[0]))
            last[0] = x

    channels = RobotChannels(name)
    world = ArrayPublisher(channels.world, WORLD)

    def between_ticks() -> bool:
        sensed = {f"sensed/{key}": value for key, value in twin.sensed.items()}
        world.send({key: sensed[key] for key in WORLD}, twin.stamp)
        return pipe.poll()

    pose = tuple(float(q) for q in twin.read().joint_position[0])
    process = RobotProcess(
        twin, name=name, clock=MonotonicClock(), period=twin.period,
        human_setpoint=CommandKind.pose, controllers=control.controllers(on_setpoint),
        stop=StopConfig(pose=pose, ramp_time=0.2), limits=PATIENT,
    )  # fmt: skip
    request_realtime()
    pipe.send("up")
    process.run(between_ticks)
    world.close()
    pipe.send(moves)
