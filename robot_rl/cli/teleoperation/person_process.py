"""A simulated person in a program of their own, at a robot process: in the place of a console.

They see what everybody sees, the channels `state` and `world`, and move the robot through the
channels of a person.
"""

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from hardware.control.ipc import ArraySubscriber
from hardware.control.process import RobotChannels
from hardware.teleop.robot_port import ChannelPort
from hardware.teleop.simulated_person import PersonConfig, PersonRule, PersonView, SimulatedPerson
from hardware.teleop.targets import PoseTarget
from hardware.teleop.teleoperator import TELEOP_PERIOD, TeleopConfig, Teleoperator
from robot_rl.core.robot import RobotSpec

_SENSED = "sensed/"


def run_simulated_person(
    spec: RobotSpec,
    channels: RobotChannels,
    rule: PersonRule,
    target: PoseTarget,
    world: Mapping[str, int],
    *,
    until: Callable[[], bool],
    skill: PersonConfig | None = None,
    config: TeleopConfig | None = None,
    episode: Callable[[], int] = lambda: 0,
    over: Callable[[], bool] = lambda: False,
    on_label: Callable[[str, float], None] = lambda label, pressed: None,
    alone: bool = False,
    seed: int = 0,
) -> None:
    """Watch the robot and lead it, 50 times a second, until asked to end.

    Args:
        spec: The robot, as its process has it.
        rule: What they know of the task.
        target: What they move.
        world: Fields of the channel `world` -> width, as its publisher has them.
        until: Whether to end.
        skill: Skills and faults.
        config: Of their teleoperator.
        episode: Number of the present episode; with another one they begin anew.
        over: Whether it has ended.
        on_label: Is told each key, `success` or `fail`, with the time of the press on the loop's
            clock [s].
        alone: There is no policy: they take the robot over at once.
        seed: Of everything that is drawn.

    Raises:
        ChannelBusyError: Another person is at this robot.
    """
    port = ChannelPort(spec, channels, target.kind)
    hand = Teleoperator(port, target, config)
    speeds = (target.config.linear_speed, target.config.angular_speed)
    person = SimulatedPerson(hand, rule, skill, alone=alone, seed=seed, speeds=speeds)
    around = ArraySubscriber(channels.world, world)
    sensed: dict[str, np.ndarray] = {}
    number: int | None = None
    late: tuple[str, float] | None = None  # key about the episode before, and when it is pressed
    deadline = time.monotonic()
    try:
        while not until():
            now = time.monotonic()
            if (found := around.newer()) is not None:
                sensed = {
                    name.removeprefix(_SENSED): value
                    for name, value in found[0].items()
                    if name.startswith(_SENSED)
                }
            seen = port.state()
            if seen is not None and sensed:
                before, number = number, episode()
                if number != before:
                    late = person.take_label(math.inf) or late
                    person.begin(now)
                    hand.forget_path()
                person.tick(PersonView(state=seen[0], sensed=sensed, over=over()), now)
                if late is not None and now >= late[1]:
                    on_label(*late)
                    late = None
                if label := person.take_label(now):
                    on_label(*label)
            hand.tick(now)
            deadline = max(deadline + TELEOP_PERIOD, now)
            time.sleep(max(0.0, deadline - time.monotonic()))
    finally:
        hand.close()
        around.close()
