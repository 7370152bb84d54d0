"""A person with a device of this computer in front of a twin."""

from types import SimpleNamespace
from typing import Any

import pytest

from hardware.teleop.input_device import EV_KEY, open_device
from robot_rl.cli.teleoperation.twin_person import PersonAtDevice
from tests.hardware.teleop.test_input_device import Kernel, event


class Hand:
    """Remembers what is asked of it."""

    def __init__(self) -> None:
        self.taken, self.leads, self.intents = 0, False, []

    def set_intent(self, intent: Any, now: float) -> None:
        self.intents.append(intent)

    def status(self, now: float) -> dict[str, bool]:
        return {"leads": self.leads}

    def take_over(self, now: float) -> None:
        self.taken += 1


@pytest.fixture
def sit_down(tmp_path):
    def made(kind: str) -> Any:
        kernel, hand = Kernel(tmp_path / "event0"), Hand()
        person = PersonAtDevice(open_device(f"{kind}:{kernel.path}"), hand)  # type: ignore[arg-type]
        return SimpleNamespace(kernel=kernel, hand=hand, person=person)

    return made


def test_the_first_button_of_a_spacemouse_takes_over_once_a_press_and_not_twice(sit_down):
    scene = sit_down("spacemouse")
    view: Any = None
    scene.person.tick(view, 0.0)
    assert scene.hand.taken == 0
    scene.kernel.write(event(EV_KEY, 0x100, 1), event(0, 0, 0))
    for tick in range(3):  # held
        scene.person.tick(view, 0.02 * tick)
    assert scene.hand.taken == 1
    assert scene.hand.intents[-1]["clutch"]
    scene.hand.leads = True
    scene.kernel.write(event(EV_KEY, 0x100, 0), event(0, 0, 0))
    scene.person.tick(view, 0.1)
    scene.kernel.write(event(EV_KEY, 0x100, 1), event(0, 0, 0))
    scene.person.tick(view, 0.12)
    assert scene.hand.taken == 1, "a person who leads only moves"


def test_the_clutch_of_a_gamepad_does_not_take_over_but_its_own_button_does(sit_down):
    scene = sit_down("gamepad")
    view: Any = None
    scene.kernel.write(event(EV_KEY, 0x137, 1), event(0, 0, 0))
    scene.person.tick(view, 0.0)
    assert scene.hand.intents[-1]["clutch"]
    assert scene.hand.taken == 0
    scene.kernel.write(event(EV_KEY, 0x136, 1), event(0, 0, 0))
    scene.person.tick(view, 0.02)
    assert scene.hand.taken == 1


@pytest.mark.parametrize(("code", "label"), [(0x134, "success"), (0x131, "fail")])
def test_buttons_of_a_gamepad_are_labels(sit_down, code, label):
    scene = sit_down("gamepad")
    view: Any = None
    scene.kernel.write(event(EV_KEY, code, 1), event(0, 0, 0))
    scene.person.tick(view, 0.5)
    assert scene.person.take_label(0.5) == (label, 0.5)
    assert scene.person.take_label(0.6) is None
