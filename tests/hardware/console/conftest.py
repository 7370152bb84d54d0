"""A robot process for the tests of a file, with a policy, an actor and a teleoperator."""

import contextlib
import time

import pytest

from hardware.control.process import RobotChannels
from hardware.control.request_socket import send_request
from hardware.control.safety import Condition, SafetyState
from policies.cameras import CameraInput
from tests.hardware.console.running import (
    DrawnCamera,
    RunningConsole,
    SimpleActor,
    SimplePolicy,
    SimpleTeleoperator,
    make_ready,
    new_name,
    robot_process,
    wait_for,
)

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


SEEN = CameraInput(picture=[120, 160], crop=[20, 60, 84, 84], channels=["brightness"], stack=1)
"""Part of the picture that the policy sees; the camera sends 240 x 320."""


class Stage:
    """Everything that runs around a console."""

    def __init__(self, name, status, folder, stack, stick=None):
        self.name, self.status, self.folder = name, status, folder
        self.policy = stack.enter_context(SimplePolicy(name))
        self.actor = stack.enter_context(SimpleActor(name))
        self.teleoperator = SimpleTeleoperator(name)
        self.camera = DrawnCamera("wrist")
        self.running = stack.enter_context(
            RunningConsole(
                name,
                folder=folder,
                cameras=[self.camera],
                teleoperator=self.teleoperator,
                host_stick=stick,
                seen={"wrist": SEEN},
            )
        )

    @property
    def console(self):
        return self.running.console

    @property
    def base(self):
        return self.running.server.base_url

    def new_url(self):
        return self.running.new_url()

    def ask(self, condition):
        send_request(RobotChannels(self.name).operator, condition)

    def until(self, safety, seconds=15.0):
        return wait_for(lambda: self.status.safety is safety, seconds)

    def in_policy(self):
        """The robot follows the policy; whatever state it was in before."""
        if self.status.safety is SafetyState.ESTOP:
            self.ask(Condition.RESET)
            self.until(SafetyState.PASSIVE)
        if self.status.safety is SafetyState.PASSIVE:
            make_ready(self.name, self.status)
        if self.status.safety is SafetyState.HOLD:
            self.ask(Condition.ARM)
            self.until(SafetyState.READY)
        end = time.monotonic() + 15.0
        while self.status.safety is not SafetyState.POLICY:
            assert time.monotonic() < end, self.status.newest()
            self.ask(Condition.ENABLE_POLICY)
            time.sleep(0.05)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A robot process and a console, for all tests of a file."""
    name = new_name()
    with contextlib.ExitStack() as stack:
        status = stack.enter_context(robot_process(name))
        yield Stage(name, status, tmp_path_factory.mktemp("run"), stack)
