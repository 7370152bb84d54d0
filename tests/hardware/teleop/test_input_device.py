"""Devices of the host, fed with the bytes that the kernel would write."""

import os
import struct

import pytest

from hardware.control.clock import LogicalClock
from hardware.control.ipc import EstopPublisher, EstopSubscriber
from hardware.control.robot_loop import OperatorRequests
from hardware.control.safety import Condition
from hardware.teleop.estop_button import EstopButton, EstopDevice, serve_estop
from hardware.teleop.input_device import (
    EV_ABS,
    EV_KEY,
    EV_REL,
    KEYS,
    DeviceGoneError,
    InputDevice,
    key_code,
    open_device,
)
from hardware.teleop.intent import Intent
from robot_rl.core.errors import ConfigError


def event(kind, code, value):
    return struct.pack("@llHHi", 1, 2, kind, code, value)


class Kernel:
    """The other end of a device: a pipe that bytes are written into."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = str(path)
        # Opened for reading too, so that neither end waits for the other.
        self.file = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def write(self, *events):
        os.write(self.file, b"".join(events))

    def unplug(self):
        os.close(self.file)


@pytest.fixture
def kernel(tmp_path):
    return Kernel(tmp_path / "event0")


def test_buttons_and_axes_add_up_to_a_state(kernel):
    device = InputDevice(kernel.path)
    kernel.write(
        event(EV_KEY, 0x130, 1), event(EV_ABS, 0, 32767), event(EV_ABS, 1, -32768),
        event(EV_KEY, 0x131, 1), event(EV_KEY, 0x131, 0), event(0, 0, 0),
    )  # fmt: skip
    device.poll(0.0)
    assert device.keys == {0x130}
    assert device.take_pressed() == {0x130, 0x131}
    assert device.take_pressed() == set()
    assert device.axes == {(EV_ABS, 0): 1.0, (EV_ABS, 1): -1.0}


def test_an_event_that_comes_in_two_pieces_is_one(kernel):
    device = InputDevice(kernel.path)
    whole = event(EV_KEY, 0x130, 1)
    os.write(kernel.file, whole[:7])
    device.poll(0.0)
    assert device.keys == set()
    os.write(kernel.file, whole[7:])
    device.poll(0.0)
    assert device.keys == {0x130}


def test_a_gamepad_is_an_intent_and_its_other_buttons_are_acts(kernel):
    pad = open_device(f"gamepad:{kernel.path}")
    kernel.write(
        event(EV_ABS, 1, -32768),  # left stick forward
        event(EV_KEY, KEYS["BTN_TR"], 1), event(EV_KEY, KEYS["BTN_Y"], 1),
        event(EV_KEY, KEYS["BTN_Y"], 0), event(EV_KEY, KEYS["BTN_TL"], 1),
    )  # fmt: skip
    intent = Intent.from_dict(pad.poll(0.0))
    assert intent.axes.tolist() == [1.0, 0, 0, 0, 0, 0]
    assert intent.clutch
    assert pad.take_acts() == ["take_over", "success"]
    pad.poll(0.02)
    assert pad.take_acts() == []


@pytest.mark.parametrize(
    ("vendor", "top", "left"), [(0x045E, "BTN_Y", "BTN_X"), (0x054C, "BTN_NORTH", "BTN_WEST")]
)
def test_the_top_button_is_success_whatever_its_driver_calls_it(
    kernel, monkeypatch, vendor, top, left
):
    monkeypatch.setattr(InputDevice, "vendor", vendor)
    pad = open_device(f"gamepad:{kernel.path}")
    for name, act in ((top, "success"), (left, "discard")):
        kernel.write(event(EV_KEY, KEYS[name], 1), event(EV_KEY, KEYS[name], 0))
        pad.poll(0.0)
        assert pad.take_acts() == [act]


def test_a_puck_that_is_let_go_is_at_rest_although_the_kernel_says_nothing(kernel):
    puck = open_device(f"spacemouse:{kernel.path}")
    kernel.write(event(EV_REL, 0, 350), event(EV_REL, 1, -175), event(EV_REL, 2, 700))
    assert puck.poll(10.0)["axes"] == [0.5, -1.0, -1.0, 0, 0, 0]
    assert puck.poll(10.05)["axes"] == [0.5, -1.0, -1.0, 0, 0, 0]
    assert not any(puck.poll(10.2)["axes"])


def test_an_axis_of_a_puck_comes_to_rest_while_others_are_pushed_on(kernel):
    puck = open_device(f"spacemouse:{kernel.path}")
    kernel.write(event(EV_REL, 1, -350), event(EV_REL, 2, -350))
    assert puck.poll(10.0)["axes"] == [1.0, 0, 1.0, 0, 0, 0]
    axes: list[float] = []
    for tick in range(1, 10):
        kernel.write(event(EV_REL, 2, -350))
        axes = puck.poll(10.0 + tick / 50)["axes"]
    assert axes == [0, 0, 1.0, 0, 0, 0]


def test_a_device_that_is_not_there_or_is_unplugged_says_so(kernel, tmp_path):
    with pytest.raises(DeviceGoneError, match="cannot be opened: No such file"):
        InputDevice(tmp_path / "none")
    device = InputDevice(kernel.path)
    kernel.unplug()
    with pytest.raises(DeviceGoneError, match="is gone"):
        device.poll(0.0)


def test_names_of_devices_and_buttons():
    assert key_code("KEY_ENTER") == 28
    assert key_code(300) == 300
    for wrong in ("KEY_COFFEE", 0, 800, True):
        with pytest.raises(ConfigError):
            key_code(wrong)
    with pytest.raises(ConfigError, match="gamepad:/dev/input"):
        open_device("joystick:/dev/input/js0")


class TestStopButton:
    def button(self, kernel):
        return EstopButton(EstopDevice(device=kernel.path, button="KEY_ENTER"))

    def test_it_is_pressed_while_it_is_down_and_after_a_short_press_once(self, kernel):
        button = self.button(kernel)
        assert not button.pressed(0.0)
        kernel.write(event(EV_KEY, 28, 1))
        assert button.pressed(0.1)
        assert button.pressed(0.2)
        kernel.write(event(EV_KEY, 28, 0))
        assert not button.pressed(0.3)
        kernel.write(event(EV_KEY, 28, 1), event(EV_KEY, 28, 0))
        assert button.pressed(0.4)
        assert not button.pressed(0.5)

    def test_a_path_that_is_no_event_device_counts_as_pressed(self):
        ours, theirs = os.openpty()
        try:
            path = os.ttyname(theirs)
            button = EstopButton(EstopDevice(device=path, button="KEY_ENTER"))
            assert button.pressed(0.0)
            assert f"{path} is no event device" in button.trouble
        finally:
            os.close(ours)
            os.close(theirs)

    def test_a_device_without_the_button_counts_as_pressed(self, monkeypatch, tmp_path):
        (tmp_path / "event1").write_bytes(b"")
        keys = bytearray(96)
        keys[0x130 // 8] = 1 << 0x130 % 8
        monkeypatch.setattr(InputDevice, "_asked", lambda *_: bytes(keys))
        path = str(tmp_path / "event1")
        button = EstopButton(EstopDevice(device=path, button="KEY_ENTER"))
        assert button.pressed(0.0)
        assert "has no key or button of code 28" in button.trouble
        device = InputDevice(path)
        device.check(0x130)
        device.close()

    def test_unplugged_it_counts_as_pressed_until_it_is_back(self, kernel, tmp_path):
        button = self.button(kernel)
        assert not button.pressed(0.0)
        kernel.unplug()
        os.unlink(kernel.path)
        assert button.pressed(0.1)
        assert button.pressed(1.0)
        assert "cannot be opened" in button.trouble
        Kernel(tmp_path / "event0")
        assert not button.pressed(2.0)
        assert button.trouble == ""

    def test_other_keys_stop_nothing(self, kernel):
        button = self.button(kernel)
        button.pressed(0.0)
        kernel.write(event(EV_KEY, 30, 1))
        assert not button.pressed(0.1)

    def test_the_loop_hears_it_and_hears_its_silence_as_a_press(self, kernel):
        requests, name = OperatorRequests(), f"test.estop.{os.getpid()}"
        subscriber, clock = EstopSubscriber(name, requests), LogicalClock(5.0)
        subscriber.poll(5.0)  # nobody speaks yet
        assert Condition.ESTOP_PRESSED in requests.take()
        heard = []

        def until():
            subscriber.poll(clock.now())
            heard.append(Condition.ESTOP_PRESSED in requests.take())
            clock.advance(0.02)
            if len(heard) == 3:
                kernel.write(event(EV_KEY, 28, 1))
            return len(heard) == 6

        serve_estop(
            EstopDevice(device=kernel.path, button=28), name, clock, until, lambda line: None
        )
        assert heard == [True, False, False, True, True, True]
        subscriber.poll(clock.now())  # its process is gone
        assert Condition.ESTOP_PRESSED in requests.take()

    def test_an_old_signal_is_silence(self):
        requests, name = OperatorRequests(), f"test.estop.old.{os.getpid()}"
        publisher, subscriber = EstopPublisher(name), EstopSubscriber(name, requests)
        publisher.send(False, 1.0)
        for now, down in ((1.0, False), (1.2, False), (1.3, True), (0.9, True)):
            subscriber.poll(now)
            assert requests.button_down is down, now
        publisher.close()

    @pytest.mark.parametrize(
        ("device", "button"),
        [("event3", 1), ("/dev/input/event3", "KEY_NONE"), ("/dev/input/event3", 1.5)],
    )
    def test_a_button_that_is_none_is_refused(self, device, button):
        with pytest.raises(ConfigError):
            EstopDevice(device=device, button=button)
