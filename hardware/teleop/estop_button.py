"""A button that stops the robot: its process, and the signal to the robot's loop.

The signal lasts as long as the button is down, and it is pressed too where the device is unplugged,
cannot be read, or the process that reads it is gone: silence stops. It is a software stop over USB,
no safety-rated emergency stop (ISO 13850), which a robot needs besides.
"""

import select
from collections.abc import Callable
from dataclasses import dataclass

from hardware.control.clock import Clock
from hardware.control.ipc import EstopPublisher
from hardware.teleop.input_device import DeviceGoneError, InputDevice, key_code
from robot_rl.core.errors import ConfigError

_SIGNAL_SECONDS = 0.02
"""Time between two signals [s]; a press is sent at once."""
_OPEN_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class EstopDevice:
    """Button of a robot file: `estop: {device: /dev/input/by-id/..., button: KEY_ENTER}`."""

    device: str
    """Path of the event device."""
    button: str | int
    """Name or code of the button."""

    def __post_init__(self) -> None:
        if not isinstance(self.device, str) or not self.device.startswith("/"):
            raise ConfigError(f"estop.device must be a path of this computer, got {self.device!r}")
        if not isinstance(self.button, str | int):
            raise ConfigError(f"estop.button must be a name or a code, got {self.button!r}")
        key_code(self.button)


class EstopButton:
    """Reads the button; opens its device again and again while it is not there."""

    def __init__(self, config: EstopDevice) -> None:
        self._path, self._code = config.device, key_code(config.button)
        self._device: InputDevice | None = None
        self._open_at = -1.0
        self.trouble = "not opened yet"
        """Reason why it counts as pressed without being down; empty where it can be read."""

    def pressed(self, now: float) -> bool:
        """True while it is down or cannot be read; a press between two calls counts in the second.

        Args:
            now: Any clock [s].
        """
        if self._device is None and now >= self._open_at:
            self._open_at = now + _OPEN_AGAIN_SECONDS
            try:
                self._device = InputDevice(self._path)
                self._device.check(self._code)
                self.trouble = ""
            except DeviceGoneError as error:
                self.trouble = str(error)
                self.close()
        if self._device is None:
            return True
        try:
            self._device.poll(now)
        except DeviceGoneError as error:
            self.trouble = str(error)
            self.close()
            return True
        return self._code in self._device.keys | self._device.take_pressed()

    def wait(self, seconds: float) -> None:
        """Wait until something comes from the device, or a time is over [s]."""
        select.select([] if self._device is None else [self._device], [], [], seconds)

    def close(self) -> None:
        """Let go of the device."""
        if self._device is not None:
            self._device.close()
        self._device = None


def serve_estop(
    config: EstopDevice,
    channel: str,
    clock: Clock,
    until: Callable[[], bool],
    say: Callable[[str], object] = lambda line: None,
) -> None:
    """Send the signal of a button until asked to end.

    Args:
        channel: Name of the signal's channel, `RobotChannels.estop`.
        clock: Of the robot's loop.
        until: Whether to end.
        say: Is told why the button counts as pressed, when that changes.
    """
    button, told = EstopButton(config), ""
    publisher = EstopPublisher(channel)
    try:
        while not until():
            publisher.send(button.pressed(clock.now()), clock.now())
            if button.trouble != told:
                told = button.trouble
                say(f"the stop button counts as pressed: {told}" if told else "the button is read")
            button.wait(_SIGNAL_SECONDS)
    finally:
        publisher.close()
        button.close()
