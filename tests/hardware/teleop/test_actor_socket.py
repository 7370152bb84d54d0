"""Console and actor on a real socket: neither waits, nothing is lost in silence, both come back."""

import contextlib
import json
import socket

import pytest

from hardware.control.ipc import channel_path
from hardware.teleop.actor_socket import (
    LONGEST_LINE,
    ActorBusyError,
    ActorConnection,
    ActorSocket,
    NoActorError,
    is_actor_listening,
)
from robot_rl.core.errors import ConfigError
from tests.hardware.console.running import new_name


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def name():
    return new_name()


def test_a_command_reaches_the_actor_and_its_answer_the_console(name):
    with ActorSocket(name) as actor:
        console = ActorConnection(name)
        console.poll()
        key = console.send("discard", "ann", what="episode", t=12.5)
        actor.poll()
        (command,) = actor.poll()
        assert command == {
            "id": key, "do": "discard", "what": "episode", "operator": "ann", "t": 12.5
        }  # fmt: skip
        actor.answer(key, False, "nothing is running")
        (answer,) = console.poll()
        assert (answer.id, answer.ok, answer.why) == (key, False, "nothing is running")
        console.close()


def test_the_newest_snapshot_is_kept_when_the_actor_goes(name):
    clock = Clock()
    console = ActorConnection(name, clock)
    assert console.age == float("inf")
    with ActorSocket(name) as actor:
        console.poll()
        actor.poll()
        actor.tell({"episode": 1})
        actor.tell({"episode": 2})
        console.poll()
        assert console.snapshot == {"episode": 2}
    clock.now += 3.0
    console.poll()
    assert not console.connected
    assert console.snapshot == {"episode": 2}
    assert console.age == 3.0
    with pytest.raises(NoActorError, match="no actor of robot"):
        console.send("success", "ann")


def test_the_console_reconnects_with_growing_pauses(name):
    clock = Clock()
    console = ActorConnection(name, clock)
    console.poll()  # refused: the next attempt is a tenth of a second away
    with ActorSocket(name) as actor:
        console.poll()
        assert not console.connected
        clock.now += 0.11
        console.poll()
        assert console.connected
        actor.poll()
        assert actor.consoles == 1
    console.poll()
    assert not console.connected
    with ActorSocket(name):
        clock.now += 0.2
        console.poll()
        assert console.connected
    console.close()


def test_a_second_actor_is_refused_and_a_dead_one_replaced(name):
    with ActorSocket(name):
        assert is_actor_listening(name)
        with pytest.raises(ActorBusyError, match="listens already"):
            ActorSocket(name)
    assert not is_actor_listening(name)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(channel_path(f"{name}.actor")))
    left.close()  # its file stays, as that of a killed actor does
    with ActorSocket(name):
        assert is_actor_listening(name)


def test_the_socket_is_for_this_user_alone(name):
    with ActorSocket(name):
        assert channel_path(f"{name}.actor").stat().st_mode & 0o077 == 0


def test_a_console_that_never_reads_loses_snapshots_and_never_blocks_the_actor(name):
    with ActorSocket(name) as actor:
        deaf = ActorConnection(name)
        deaf.poll()
        actor.poll()
        for number in range(200):
            actor.tell({"number": number, "text": "x" * 20000})
        key = deaf.send("success", "ann")
        assert [one["id"] for one in actor.poll()] == [key]
        deaf.poll()
        assert 0 < deaf.snapshot["number"] < 199
        for _ in range(20):  # it reads what waits, and then the newest
            actor.tell({"number": 200})
            deaf.poll()
        assert deaf.snapshot["number"] == 200
        deaf.close()


def test_a_console_that_leaves_answers_unread_is_disconnected(name):
    with ActorSocket(name) as actor:
        deaf = ActorConnection(name)
        deaf.poll()
        actor.poll()
        for _ in range(40):
            key = deaf.send("success", "ann")
            actor.poll()
            actor.answer(key, True, "y" * 20000)
            if not actor.consoles:
                break
        assert actor.consoles == 0
        deaf.close()


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"7", b'{"do": "success"}', b"\xff\xfe", b"[" * 5000]
)
def test_a_line_that_is_no_command_is_dropped(name, line):
    with ActorSocket(name) as actor, _raw(name) as raw:
        actor.poll()
        raw.sendall(line + b"\n" + b'{"id": "1", "do": "success"}\n')
        assert [one["id"] for one in actor.poll()] == ["1"]


def test_an_unknown_command_is_answered_with_those_that_are_known(name):
    with ActorSocket(name) as actor, _raw(name) as raw:
        actor.poll()
        raw.sendall(b'{"id": "1", "do": "fly"}\n')
        assert actor.poll() == []
        answer = json.loads(raw.recv(4096))
        assert answer["answer"] == "1"
        assert not answer["ok"]
        assert "known: success, fail" in answer["why"]


def test_a_line_without_an_end_ends_the_connection(name):
    with ActorSocket(name) as actor, _raw(name) as raw:
        actor.poll()
        assert actor.consoles == 1
        raw.setblocking(False)
        sent = 0
        while actor.consoles and sent < 4 * LONGEST_LINE:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                sent += raw.send(b"x" * 8192)
            actor.poll()
        assert actor.consoles == 0


def test_a_command_of_nobody_knows_what_is_refused_before_it_is_sent(name):
    with pytest.raises(ConfigError, match="'fly' cannot be asked for"):
        ActorConnection(name).send("fly", "ann")


def _raw(name):
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.connect(str(channel_path(f"{name}.actor")))
    return raw
