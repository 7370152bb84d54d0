"""A person and a robot process of their own, through shared memory, in real time."""

import contextlib
import logging
import math
import multiprocessing
import os
import time

import numpy as np
import pytest

from hardware.control.ipc import StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.request_socket import send_request
from hardware.control.safety import Condition, SafetyState
from hardware.teleop.robot_port import ChannelPort
from hardware.teleop.simulated_person import PegRule, PersonConfig, PersonView
from hardware.teleop.targets import PoseTarget
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.cli.teleoperation.person_process import run_simulated_person
from robot_rl.core.robot_command import CommandKind
from tests.compositions import composed
from tests.robot_rl.cli import twin_robot

pytestmark = pytest.mark.slow
S = SafetyState
SPAWN = multiprocessing.get_context("spawn")


def panda():
    return composed(["task=peg", "robot=panda"]).config.robot.behind_a_loop().spec


@pytest.fixture
def robot():
    """Channels of a robot that runs and is ready, and the pipe to it."""
    name = f"test.teleop.{os.getpid()}"
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=twin_robot.run, args=(name, theirs), daemon=True)
    process.start()
    assert ours.poll(60), "the robot process did not come up"
    ours.recv()
    channels = RobotChannels(name)
    make_ready(channels)
    yield channels, ours
    if process.is_alive():
        ours.send("end")
    process.join(10)


def make_ready(channels):
    """Arm a robot that is still, or one that holds."""
    with contextlib.closing(StatusSubscriber(channels.status)) as status:
        for safety in (S.HOLD, S.READY):
            if status.safety is not safety:
                send_request(channels.operator, Condition.ARM)
                until(lambda safety=safety: status.safety is safety, 10.0)


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def lead(channels, seconds, axes, take_over=False):
    """A person's program: 50 ticks a second; returns the times at which deflections turned."""
    person = Teleoperator(ChannelPort(panda(), channels, CommandKind.pose), PoseTarget())
    end, turned, before, asked = time.monotonic() + seconds, [], None, False
    deadline = time.monotonic()
    while (now := time.monotonic()) < end:
        found = axes(now)
        if found != before:
            turned.append((now, found[0]))
            before = found
        person.set_intent({"axes": found, "clutch": True}, now)
        person.tick(now)
        if take_over and not asked and person.status(now)["safety"] == "ready":
            person.take_over(now)
            asked = True
        deadline += TELEOP_PERIOD
        time.sleep(max(0.0, deadline - time.monotonic()))
    safety = person.status(time.monotonic())["safety"]
    person.close()
    return turned, safety


def test_a_stick_becomes_a_setpoint_within_a_tick_of_each(robot):
    channels, pipe = robot
    turned, safety = [], ""
    for _ in range(3):  # a machine that pauses for longer than the lease is another test's matter
        begin = time.monotonic()

        def axes(now, begin=begin):
            on = now - begin > 1.0 and int((now - begin) / 0.15) % 2 == 0
            return [1.0 if on else 0.0, 0, 0, 0, 0, 0]

        turned, safety = lead(channels, 5.0, axes, take_over=True)
        if safety == "human":
            break
        make_ready(channels)
    assert safety == "human"
    pipe.send("end")
    assert pipe.poll(20)
    moves = pipe.recv()
    delays = []
    for at, value in turned:
        if value > 0:
            after = [t for t, moved in moves if t > at and moved > 1e-4]
            delays.append(after[0] - at)
    told = 1e3 * np.quantile(delays, [0.5, 0.9, 1.0])
    logging.info("stick to setpoint [ms]: p50 %.1f, p90 %.1f, longest %.1f", *told)
    assert len(delays) > 8
    assert np.median(delays) < 0.03  # the loop's 5 ms, and a shared machine


def _person(name):
    lead(RobotChannels(name), 60.0, lambda now: [0.3, 0, 0, 0, 0, 0], take_over=True)


def test_a_person_whose_program_is_killed_leaves_a_robot_that_holds(robot):
    channels, _ = robot
    process = SPAWN.Process(target=_person, args=(channels.robot,), daemon=True)
    process.start()
    status = StatusSubscriber(channels.status)
    until(lambda: status.safety is S.HUMAN, 60.0)
    process.kill()
    begin = time.monotonic()
    until(lambda: status.safety is not S.HUMAN, 5.0)
    lasted = time.monotonic() - begin
    process.join()
    logging.info("killed person: held after %.0f ms", 1e3 * lasted)
    assert status.safety is S.HOLD
    assert lasted < 1.0  # 0.25 s of lease, and a shared machine
    found = status.newest()
    assert found is not None
    assert "lease_lost" in found.trip
    status.close()


def test_a_simulated_person_in_a_program_of_their_own_inserts_the_peg(robot):
    channels, _ = robot
    labels: list[tuple[str, float]] = []
    end = time.monotonic() + 30.0
    run_simulated_person(
        panda(), channels, PegRule(), PoseTarget(), twin_robot.WORLD, alone=True,
        until=lambda: bool(labels) or time.monotonic() > end,
        on_label=lambda label, pressed: labels.append((label, pressed)),
    )  # fmt: skip
    assert [label for label, _ in labels] == ["success"]


def test_a_simulated_person_labels_an_episode_whose_successor_has_begun(robot):
    """A key that was not pressed yet was forgotten with the episode that it is about."""
    channels, _ = robot
    labels: list[tuple[str, float]] = []
    seen = [math.inf]  # since when the peg looks inserted [s]

    class Told(PegRule):
        def done(self, view: PersonView) -> bool:
            done = super().done(view)
            seen[0] = min(seen[0], time.monotonic()) if done else seen[0]
            return done

    end = time.monotonic() + 30.0
    run_simulated_person(
        panda(), channels, Told(), PoseTarget(), twin_robot.WORLD, alone=True,
        skill=PersonConfig(reaction=0.3, label_delay=(1.0, 1.0)),
        episode=lambda: int(seen[0] < math.inf),
        until=lambda: bool(labels) or time.monotonic() > end,
        on_label=lambda label, pressed: labels.append((label, pressed)),
    )  # fmt: skip
    ((label, pressed),) = labels
    assert label == "success"
    assert pressed - seen[0] < 0.8  # the next episode's key would come 1 s after it
