"""Requests of programs on the robot's computer."""

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hardware.control.ipc import SharedMemoryWriter, channel_path
from hardware.control.process import RobotChannels
from hardware.control.request_socket import (
    NoRobotError,
    RequestSocket,
    is_listening,
    remove_dead_socket,
    send_request,
)
from hardware.control.robot_loop import OperatorRequests
from hardware.control.safety import Condition


@pytest.fixture
def name() -> Iterator[str]:
    """A channel that nobody else has."""
    name = f"test.{uuid.uuid4().hex[:12]}"
    yield name
    assert not channel_path(name).exists()


@pytest.fixture
def requests() -> OperatorRequests:
    return OperatorRequests()


def test_requests_of_many_senders_come_together(name, requests):
    listener = RequestSocket(name, requests)
    send_request(name, Condition.HOLD)
    send_request(name, Condition.ESTOP_PRESSED)
    listener.poll()
    assert requests.take() == {Condition.HOLD, Condition.ESTOP_PRESSED}
    listener.poll()
    assert requests.take() == set()
    listener.close()
    listener.close()


@pytest.mark.parametrize("said", [b"", b"nonsense", b"\xff\xfe", b"state_lost", b"arm" * 1000])
def test_what_is_no_request_is_dropped(name, requests, said):
    listener = RequestSocket(name, requests)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(said, str(channel_path(name)))
    send_request(name, Condition.ARM)
    listener.poll()
    assert requests.take() == {Condition.ARM}
    listener.close()


def test_a_flood_keeps_no_tick_from_its_work(name, requests):
    listener = RequestSocket(name, requests)
    sent = 0
    with suppress(NoRobotError):
        while sent < 100_000:
            send_request(name, Condition.HOLD)
            sent += 1
    assert 0 < sent < 100_000
    with pytest.raises(NoRobotError, match="suspended"):
        send_request(name, Condition.HOLD)
    for _ in range(1000):
        listener.poll()
    requests.take()
    send_request(name, Condition.ESTOP_PRESSED)
    listener.poll()
    assert requests.take() == {Condition.ESTOP_PRESSED}
    listener.close()


def test_nobody_there_and_a_dead_process_are_said(name, requests):
    with pytest.raises(NoRobotError, match="No such file"):
        send_request(name, Condition.HOLD)
    assert not is_listening(name)
    child = os.fork()
    if child == 0:
        RequestSocket(name, requests)
        os._exit(9)  # as after SIGKILL: the file stays
    os.waitpid(child, 0)
    assert channel_path(name).exists()
    assert not is_listening(name)
    with pytest.raises(NoRobotError, match="refused"):
        send_request(name, Condition.HOLD)
    listener = RequestSocket(name, requests)  # the next process takes the place over
    assert is_listening(name)
    remove_dead_socket(name)
    assert is_listening(name)
    listener.close()


def test_only_what_nobody_uses_any_more_is_removed(name):
    channels = RobotChannels(name)
    child = os.fork()
    if child == 0:
        SharedMemoryWriter(channels.state, 3)
        RequestSocket(channels.operator, OperatorRequests())
        os._exit(9)
    os.waitpid(child, 0)
    used = SharedMemoryWriter(channels.status, 3)
    channels.remove_dead()
    assert not channel_path(channels.state).exists()
    assert not channel_path(channels.operator).exists()
    assert channel_path(channels.status).exists()
    used.close()
    channels.remove_dead()
