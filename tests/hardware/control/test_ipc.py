"""The channel between processes: newest, whole, never waiting, nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import closing, contextmanager
from dataclasses import fields
from itertools import count

import numpy as np
import pytest

from hardware.control.clock import Latency
from hardware.control.ipc import (
    ChannelBusyError,
    CommandLayout,
    CommandPublisher,
    CommandSubscriber,
    EstopPublisher,
    EstopSubscriber,
    RequestPublisher,
    RequestSubscriber,
    SharedMemoryReader,
    SharedMemoryWriter,
    StatusPublisher,
    StatusSubscriber,
    channel_path,
)
from hardware.control.monitors import StampedCommand, command_widths
from hardware.control.robot_loop import OperatorRequests, RobotStatus
from hardware.control.safety import Condition, SafetyState
from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError
from robot_rl.core.process import clean_environ
from robot_rl.core.robot_command import COMMANDS, BodyRateCommand, CommandKind, RotorCommand
from tests.hardware.control.robots import multirotor, two_joints

NAME = f"test-{os.getpid()}"


def child(code):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environ({"PYTHONPATH": os.pathsep.join(sys.path)}),
    )


@contextmanager
def connected(width, read=None):
    with (
        closing(SharedMemoryWriter(NAME, width)) as writer,
        closing(SharedMemoryReader(NAME, read or width)) as reader,
    ):
        yield writer, reader


def newest(reader):
    message = reader.newest_message()
    return None if message is None else message.values.tolist()


def test_the_newest_message_is_read_and_stays_the_same_until_the_next():
    with connected(3) as (writer, reader):
        assert reader.newest_message() is None
        writer.write([1, 2, 3], 0.5)
        writer.write([4, 5, 6], 0.6)
        message = reader.newest_message()
        assert message is not None
        assert (message.sequence, message.stamp) == (2, 0.6)
        np.testing.assert_array_equal(message.values, [4, 5, 6])
        assert reader.newest_message() is message
    with connected(1) as (writer, reader):
        writer.write([1], 0.0)
        first = reader.newest_message()
        for value in range(2, 6):
            writer.write([value], 0.0)
        assert first is not None
        assert first.values == [1]


def test_a_second_writer_is_refused_until_the_first_is_gone():
    with (
        closing(SharedMemoryWriter(NAME, 1)),
        pytest.raises(ChannelBusyError, match="another process"),
    ):
        SharedMemoryWriter(NAME, 1)
    SharedMemoryWriter(NAME, 1).close()


def test_a_reader_sees_the_writer_go_and_come_again():
    reader = SharedMemoryReader(NAME, 1)
    assert reader.newest_message() is None
    for value in (1, 2):
        with closing(SharedMemoryWriter(NAME, 1)) as writer:
            assert reader.newest_message() is None
            writer.write([value], 0.0)
            message = reader.newest_message()
            assert message is not None
            assert message.values == [value]
        assert reader.newest_message() is None
    reader.close()


def test_ten_cycles_leave_neither_files_nor_descriptors():
    before = (sorted(os.listdir("/proc/self/fd")), channel_path(NAME).exists())
    for _ in range(10):
        with connected(8) as (writer, reader):
            writer.write(np.zeros(8), 0.0)
            assert reader.newest_message() is not None
    assert (sorted(os.listdir("/proc/self/fd")), channel_path(NAME).exists()) == before


def test_another_width_or_name_is_refused():
    with connected(2, 3) as (writer, reader):
        with pytest.raises(ShapeError, match="takes 2 numbers, got 3"):
            writer.write([1, 2, 3], 0.0)
        writer.write([1, 2], 0.0)
        assert reader.newest_message() is None
    with pytest.raises(ConfigError, match="without '/'"):
        SharedMemoryReader("a/b", 1)


def test_a_half_written_message_is_never_read():
    with connected(2) as (writer, reader):
        writer.write([1, 1], 0.1)
        with open(channel_path(NAME), "r+b") as file:
            whole = file.read()
            slot = (len(whole) - 8) // 2
            # A writer that dies while it fills the other slot for message 2 ...
            file.seek(8)
            file.write(b"\xff" * (slot // 2))
            file.flush()
            assert newest(reader) == [1, 1]
            # ... and one whose stores arrive in the wrong order: named before it is whole.
            file.seek(0)
            file.write((2).to_bytes(8, "little"))
            file.flush()
            assert newest(reader) == [1, 1]
            file.seek(8)
            file.write((2).to_bytes(8, "little"))  # the head of message 2, without its values
            file.flush()
            assert newest(reader) == [1, 1]


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_whole_messages_and_a_free_mailbox():
    writes = f"""
        import numpy as np
        from hardware.control.ipc import SharedMemoryWriter
        writer = SharedMemoryWriter({NAME!r}, 500)
        print("ready", flush=True)
        value = 0.0
        while True:
            value += 1.0
            writer.write(np.full(500, value), value)
    """
    reader = SharedMemoryReader(NAME, 500)
    for _ in range(2):
        writer = child(writes)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        read = 0
        while read < 3000:
            message = reader.newest_message()
            read += message is not None
            if message is not None:
                assert np.all(message.values == message.stamp)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        message = reader.newest_message()
        assert message is not None
        assert np.all(message.values == message.stamp)
    SharedMemoryWriter(NAME, 500).close()
    reader.close()
    assert not channel_path(NAME).exists()


@pytest.mark.parametrize("kind", CommandKind)
def test_a_command_of_every_kind_arrives_as_it_was_sent(kind):
    flies = kind in (CommandKind.rotors, CommandKind.body_rates)
    spec = multirotor() if flies else two_joints()
    widths = {one.name: command_widths(spec)[one.name] for one in fields(COMMANDS[kind])}
    values = {name: 0.25 * np.arange(w)[None] + i for i, (name, w) in enumerate(widths.items())}
    command = COMMANDS[kind](**values)
    layout = CommandLayout(spec, kind, ("damping", "stand"))
    sender, receiver = CommandPublisher(NAME, layout), CommandSubscriber(NAME, layout)
    sender.send(StampedCommand(command=command, stamp=1.5, gains="stand"))
    arrived = receiver.newest()
    assert arrived is not None
    assert (arrived.stamp, arrived.gains) == (1.5, "stand")
    assert type(arrived.command) is type(command)
    for name, value in vars(command).items():
        np.testing.assert_array_equal(getattr(arrived.command, name), value)
    assert receiver.newest() is arrived
    sender.close()
    assert receiver.newest() is None
    receiver.close()


@pytest.mark.parametrize("spec", [two_joints(), multirotor()])
def test_a_refused_message_arrives_with_its_reason(spec, name):
    layout = CommandLayout(spec, spec.command)
    reason = "a message lacks ['hip'], expected " + 100 * "joints "
    with (
        closing(CommandPublisher(name, layout)) as publisher,
        closing(CommandSubscriber(name, layout)) as subscriber,
    ):
        publisher.refuse(1.5, reason)
        got = subscriber.newest()
        assert got is not None
        assert (got.stamp, got.fault) == (1.5, reason[:384])
        values = [value for value in vars(got.command).values() if value is not None]
        assert all(np.isnan(value).all() for value in values)


def test_a_command_of_another_kind_or_with_unknown_gains_is_not_sent():
    sender = CommandPublisher(NAME, CommandLayout(multirotor(), CommandKind.rotors, ("a",)))
    rotors = RotorCommand(speed=np.zeros((1, 4)))
    with pytest.raises(ConfigError, match="unknown"):
        sender.send(StampedCommand(command=rotors, stamp=0.0, gains="b"))
    rates = BodyRateCommand(rates_b=np.zeros((1, 3)), thrust=np.ones((1, 1)))
    with pytest.raises(SpecMismatchError, match="takes RotorCommand"):
        sender.send(StampedCommand(command=rates, stamp=0.0, gains="a"))
    sender.close()


_numbers = count()


@pytest.fixture
def name() -> str:
    return f"test.{os.getpid()}.{next(_numbers)}"


def test_acts_are_done_once_each(name):
    requests = OperatorRequests()
    receiver, sender = RequestSubscriber(name, requests), RequestPublisher(name)
    sender.ask(Condition.ARM)  # before the loop ever looked: past
    receiver.poll()
    assert requests.take() == set()
    sender.ask(Condition.ARM)
    sender.ask(Condition.HOLD)
    receiver.poll()
    assert requests.take() == {Condition.ARM, Condition.HOLD}
    receiver.poll()
    assert requests.take() == set()
    sender.update(heartbeat=7.0, publishers=2, estop_down=True)
    receiver.poll()
    assert (requests.heartbeat, requests.publishers) == (7.0, 2)
    assert requests.take() == {Condition.ESTOP_PRESSED}
    sender.close()
    receiver.close()


def test_a_press_of_a_stop_button_that_was_over_before_anybody_looked_counts(name):
    requests = OperatorRequests()
    receiver, sender = EstopSubscriber(name, requests), EstopPublisher(name)
    sender.send(False, 1.0)
    receiver.poll(1.0)
    assert requests.take() == set()
    sender.send(True, 1.1)
    sender.send(True, 1.12)
    sender.send(False, 1.15)
    receiver.poll(1.2)
    assert requests.take() == {Condition.ESTOP_PRESSED}
    receiver.poll(1.21)
    assert requests.take() == set(), "once"
    sender.close()
    receiver.close()


def test_presses_count_from_the_beginning_of_the_robot_process_seen_or_not(name):
    requests = OperatorRequests()
    receiver, sender = EstopSubscriber(name, requests), EstopPublisher(name)
    for now, down in ((1.0, True), (1.05, False)):
        sender.send(down, now)
    receiver.begin(1.06)  # of an earlier process: over
    sender.send(False, 1.1)
    receiver.poll(1.1)
    assert requests.take() == set()
    receiver.close()
    receiver = EstopSubscriber(name, requests)
    receiver.begin(9.0)  # nobody has spoken for a while: a button that comes counts from 0
    for now, down in ((9.1, True), (9.2, False)):
        sender.send(down, now)
    receiver.poll(9.21)  # the driver was slow to connect
    assert requests.take() == {Condition.ESTOP_PRESSED}
    sender.close()
    receiver.close()


def test_new_sender_asks_for_nothing_old_but_its_emergency_stop_counts(name):
    requests = OperatorRequests()
    receiver, sender = RequestSubscriber(name, requests), RequestPublisher(name)
    receiver.poll()
    for _ in range(3):
        sender.ask(Condition.ARM)
    receiver.poll()
    requests.take()
    sender.close()
    receiver.poll()
    sender = RequestPublisher(name)
    sender.ask(Condition.ARM)
    receiver.poll()
    assert requests.take() == set()
    sender.close()
    receiver.poll()
    sender = RequestPublisher(name)
    sender.ask(Condition.ESTOP_PRESSED)
    receiver.poll()
    assert requests.take() == {Condition.ESTOP_PRESSED}
    sender.close()
    receiver.close()


def test_status_comes_with_its_words(name):
    sender, receiver = StatusPublisher(name), StatusSubscriber(name)
    assert receiver.newest() is None
    causes = frozenset({Condition.TILT})
    words = "policy -> safe_stop: tilt (fällt um " + "x" * 500
    status = RobotStatus(
        time=2.0, ticks=100, safety=SafetyState.SAFE_STOP, conditions=causes,
        trip=words, refused="no",
        state_age=0.002, clamped=3, replaced=1, missed=2, oldest_command=0.03,
        withheld=2,
    )  # fmt: skip
    sender.set_latencies({"lateness": Latency(100, 1e-4, 2e-4, 3e-4)})
    sender.send(status)
    told = receiver.newest()
    assert told is not None
    assert (told.safety, told.conditions, told.ticks) == (SafetyState.SAFE_STOP, causes, 100)
    assert (told.clamped, told.replaced, told.missed, told.state_age) == (3, 1, 2, 0.002)
    assert told.latencies == {"lateness": Latency(100, 1e-4, 2e-4, 3e-4)}
    assert told.oldest_command == 0.03
    assert told.withheld == 2
    assert told.refused == "no"
    assert words.startswith(told.trip)
    assert len(told.trip) > 300
    sender.close()
    receiver.close()
