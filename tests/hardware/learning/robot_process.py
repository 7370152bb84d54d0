"""A robot process of its own with the robot of `worlds.py`, in real time.

python -m tests.hardware.learning.robot_process <name>
"""

import signal
import sys

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArrayPublisher
from hardware.control.monitors import SafetyLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.realtime import freeze_existing_objects
from hardware.control.stopping import StopConfig
from hardware.control.world import OUTCOME, OUTCOME_WIDTH, EpisodeSubscriber, WorldEpisodes
from tests.hardware.learning.worlds import CONTROL_DT, PERIOD, PointWorld

WORLD_WIDTHS = {"sensed/way": 2, OUTCOME: OUTCOME_WIDTH}
PATIENT = SafetyLimits(
    command_late=20 * CONTROL_DT, command_lost=40 * CONTROL_DT, state_late=1.0, state_lost=2.0,
    lease_late=1.0, lease_lost=2.0, overrun_share=1.0, overrun_ticks=1000,
)  # fmt: skip
"""A test machine does not promise that anybody is on time."""


def main(name: str) -> None:
    clock, channels = MonotonicClock(), RobotChannels(name)
    world = PointWorld(clock)
    episodes = WorldEpisodes(world)
    process = RobotProcess(
        world, name=name, clock=clock, period=PERIOD, limits=PATIENT,
        stop=StopConfig(ramp_time=5 * PERIOD, stop_time=5 * PERIOD),
        controllers=ControllerSet(blend_time=0.0, on_setpoint=lambda _: episodes.on_setpoint()),
    )  # fmt: skip
    requests, publisher = (
        EpisodeSubscriber(channels.episodes),
        ArrayPublisher(channels.world, WORLD_WIDTHS),
    )
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))

    def between_ticks() -> bool:
        episodes.between_ticks(process.loop, requests.newest(), clock)
        publisher.send(episodes.fields(), world.stamp)
        return bool(ended)

    freeze_existing_objects()  # as every robot process does: collecting them takes 100 ms
    process.run(between_ticks)
    requests.close()
    publisher.close()


if __name__ == "__main__":
    main(sys.argv[1])
