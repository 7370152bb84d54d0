"""Nodes of real ROS 2: newest messages, services, sentences for what is missing."""

import re
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from hardware.ros.compat import RosError, message
from hardware.ros.session import Every, RosSession

JointState = message("sensor_msgs", "JointState")
Trigger, SetBool = message("std_srvs", "Trigger"), message("std_srvs", "SetBool")


def numbered(number: float):
    one = JointState()
    one.position = [number]
    return one


def test_only_the_newest_message_counts(sessions):
    here, there = sessions("here"), sessions("there")
    publisher, newest = here.publisher("states", JointState), there.newest("states", JointState)
    here.wait_until(lambda: publisher.get_subscription_count() == 1, "a subscriber")
    there.wait_until(lambda: newest.publishers == 1, "a publisher")
    assert newest.take() is None
    got: list[float] = []

    def arrives() -> bool:
        found = newest.take()
        got.extend(found.position if found else [])
        return bool(got) and got[-1] == 9.0

    for number in range(10):
        publisher.publish(numbered(number))
    there.wait_until(arrives, "the last message")
    assert got == sorted(got)
    assert newest.take() is None


def every(*told: dict[str, object]) -> Every:
    """A subscription to which messages come of which rclpy tells this, besides the time."""
    waiting, handle = list(told), nullcontext()

    def take_message(*_: object) -> tuple[bytes, dict[str, object]] | None:
        return (b"raw", {"received_timestamp": 0, **waiting.pop(0)}) if waiting else None

    vars(handle)["take_message"] = take_message
    return Every(SimpleNamespace(handle=handle, msg_type=JointState, raw=True))


def test_times_are_in_the_order_of_the_messages():
    """A message that had to be sent again comes after those that waited for it."""
    number = {"publication_sequence_number": None, "publisher_gid": {"data": b"x"}}
    again = every(*({"received_timestamp": time, **number} for time in (30, 10, 20, 40)))
    assert [time for _, time in again.take()] == [30, 31, 32, 40]


def test_lost_messages_are_counted_by_publisher_where_rclpy_names_it():
    def told(number: int, **sender: object) -> dict[str, object]:
        return {"publication_sequence_number": number, **sender}

    one, other = {"publisher_gid": {"data": b"1"}}, {"publisher_gid": {"data": b"2"}}
    named = every(told(1, **one), told(7, **other), told(4, **one), told(8, **other))
    assert len(list(named.take())) == 4
    assert (named.count, named.lost) == (4, 2)
    nameless = every(told(1), told(7), told(4))  # ROS 2 Jazzy
    assert len(list(nameless.take())) == 3
    assert (nameless.count, nameless.lost) == (3, 0)


def serve_until(session: RosSession, over: threading.Event) -> None:
    while not over.wait(0.002):
        session.serve()


@pytest.mark.slow
def test_answer_that_is_lost_is_asked_for_again(sessions):
    robot, operator = sessions("robot"), sessions("operator")
    robot.trigger("estop", lambda: (True, "stopped"))
    service = next(s for s in robot.node.services if s.service_name.endswith("estop"))
    over = threading.Event()

    def lose_one() -> None:
        while not over.wait(0.002):
            with service.handle:
                request, _ = service.handle.service_take_request(service.srv_type.Request)
            if request is not None:
                break
        serve_until(robot, over)

    thread = threading.Thread(target=lose_one)
    thread.start()
    try:
        assert operator.call(Trigger, "estop", Trigger.Request()).message == "stopped"
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_each_service_that_is_found_is_asked_although_one_is_dead_and_one_is_late(sessions):
    names = [f"/robot/{one}/estop" for one in ("dead", "quick", "late")]
    dead, robot, operator = sessions("dead"), sessions("robot"), sessions("operator")
    dead.trigger(names[0], lambda: (True, "never"))  # nobody serves it
    robot.trigger(names[1], lambda: (True, "stopped"))
    over, late = (
        threading.Event(),
        threading.Timer(0.7, lambda: robot.trigger(names[2], lambda: (False, "was stopped"))),
    )
    thread = threading.Thread(target=serve_until, args=(robot, over))
    thread.start()
    late.start()

    def known() -> list[str]:
        found = [name for name, _ in operator.node.get_service_names_and_types()]
        return [name for name in names if name in found]

    try:
        answers = list(
            operator.ask_each(Trigger, known, Trigger.Request(), timeout=4.0, settle=2.0)
        )
    finally:
        over.set()
        thread.join()
        late.join()
    assert [name for name, _ in answers] == [names[1], names[2], names[0]]
    assert [answer and answer.message for _, answer in answers] == ["stopped", "was stopped", None]


def test_what_does_not_come_is_named(sessions):
    alone = sessions("alone")
    with pytest.raises(RosError, match=r"nobody offers .* /robot/arm within 0.1 s"):
        alone.call(SetBool, "arm", SetBool.Request(), timeout=0.1)
    with pytest.raises(RosError, match=r"waited 0.1 s for a driver; .*namespace .here /robot"):
        alone.wait_until(lambda: False, "a driver", timeout=0.1)
    with pytest.raises(RosError, match="must lie in 0 to 232, got 233"):
        RosSession("nowhere", domain=233)


def test_a_session_that_ends_takes_its_shared_memory_along_though_a_subscription_is_kept(sessions):
    """A deployment left a segment of Fast DDS behind each time: its bridge held subscriptions."""

    def mapped() -> set[str]:
        maps = Path("/proc/self/maps").read_text()
        return set(re.findall(r"/dev/shm/fastdds_[0-9a-f]{16}", maps))

    before = mapped()
    session = sessions("ends")
    kept = session.newest("states", JointState)
    made = mapped() - before
    session.close()
    assert [path for path in made if Path(path).exists()] == []
    assert kept.count == 0
