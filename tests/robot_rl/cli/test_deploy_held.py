"""A person who holds a robot while `robot-rl deploy` leads it to the policy."""

from types import SimpleNamespace
from typing import Any

from hardware.control.safety import SafetyState as S
from robot_rl.cli.deployment.operator import Operator


class Led(Operator):
    """An operator whose robot has one status after the other, each seen once."""

    def __init__(self, statuses: list[tuple[S, int]]) -> None:
        self.processes, self._attend = {}, lambda: None
        self.plan: Any = SimpleNamespace(options=SimpleNamespace(patience=1.0))
        self._trip, self._withheld = "", 0
        self.said: list[str] = []
        self.asked: list[tuple[str, S]] = []
        self._say = self.said.append
        self._statuses, self._now = iter(statuses), statuses[0][0]

    @property
    def status(self) -> Any:
        self._now, withheld = next(self._statuses)
        return SimpleNamespace(safety=self._now, withheld=withheld, trip="", refused="", time=0.0)

    def _ask(self, service: str) -> None:
        self.asked.append((service, self._now))


def test_a_robot_that_a_person_holds_is_neither_armed_nor_handed_over() -> None:
    held = [(S.HOLD, 1)] * 3
    operator = Led([(S.PASSIVE, 0), (S.ARMING, 0), *held, (S.READY, 1)])
    operator._act("arm", S.READY)
    assert operator.asked == [("arm", S.PASSIVE)]
    assert operator.said == ["a person holds the robot: robot-rl arm, then robot-rl policy go on"]
    operator._statuses = iter([(S.READY, 1), (S.READY, 1), (S.POLICY, 0)])
    operator._act("policy", S.POLICY)
    assert operator.asked == [("arm", S.PASSIVE)], "the person hands over"


def test_a_robot_that_holds_by_itself_is_armed_again() -> None:
    operator = Led([(S.PASSIVE, 0), (S.ARMING, 0), (S.HOLD, 0), (S.READY, 0)])
    operator._act("arm", S.READY)
    assert operator.asked == [("arm", S.PASSIVE), ("arm", S.HOLD)]
