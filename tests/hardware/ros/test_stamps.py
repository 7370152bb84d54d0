"""Times in messages, and the distance of two clocks."""

from types import SimpleNamespace

from hardware.ros.message_parts import clock_offset, put_stamp, to_nanoseconds


class TwoClocks:
    """Clocks that are a known time apart; now and then whoever reads one has to wait."""

    def __init__(self, offset: int, waits: list[float]) -> None:
        self._offset, self._waits, self._time = offset, waits, 100.0

    def ros(self) -> int:
        self._pass()
        return round(self._time * 1e9) + self._offset

    def loop(self) -> float:
        self._pass()
        return self._time

    def _pass(self) -> None:
        self._time += 1e-6 + (self._waits.pop(0) if self._waits else 0.0)


def test_waiting_between_the_clocks_does_not_move_them_apart():
    for waits in ([], [0.1], [0.0, 0.1], [0.0, 0.0, 0.1], [0.1, 0.1, 0.1, 0.1]):
        clocks = TwoClocks(7_000_000_000, waits)
        assert abs(clock_offset(clocks.ros, clocks.loop) - 7_000_000_000) < 5_000


def test_on_a_machine_that_never_lets_go_the_narrowest_try_counts():
    clocks = TwoClocks(0, [0.0, 0.02, 0.0] * 2 + [0.0, 0.001, 0.0] + [0.0, 0.02, 0.0] * 2)
    assert abs(clock_offset(clocks.ros, clocks.loop)) < 1_000_000


def test_stamps_are_whole_nanoseconds():
    header = SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0))
    put_stamp(header, 3_000_000_007)
    assert (header.stamp.sec, header.stamp.nanosec) == (3, 7)
    assert to_nanoseconds(header.stamp) == 3_000_000_007
