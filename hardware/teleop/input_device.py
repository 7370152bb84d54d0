"""Gamepads, SpaceMice and buttons of this computer, read from the kernel's event devices (evdev).

An event is a fixed record that the kernel has not changed since 2.6 (linux/input.h, for processors
of 64 bits): no package is needed to read it. Reading never waits. Where the kernel says that events
were dropped, the whole state is asked for anew. The user needs the right to read the device: the
group `input`, or a udev rule.
"""

import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError, RobotRLError, unknown_name

_EVENT = struct.Struct("@llHHi")
"""Seconds, microseconds, type, code, value."""
_READ_EVENTS = 64
EV_SYN, EV_KEY, EV_REL, EV_ABS = 0, 1, 2, 3
"""Types of events."""
_SYN_DROPPED = 3
_KEY_BYTES = 96
"""768 keys, one bit each."""
KEYS = {
    "KEY_ESC": 1, "KEY_ENTER": 28, "KEY_SPACE": 57, "KEY_F13": 183, "BTN_0": 0x100,
    "BTN_1": 0x101, "BTN_SOUTH": 0x130, "BTN_EAST": 0x131, "BTN_NORTH": 0x133, "BTN_WEST": 0x134,
    "BTN_X": 0x133, "BTN_Y": 0x134,  # the kernel's other names of the two before
    "BTN_TL": 0x136, "BTN_TR": 0x137, "BTN_SELECT": 0x13A, "BTN_START": 0x13B, "BTN_MODE": 0x13C,
}  # fmt: skip
"""Names of keys and buttons that a robot file may use -> their codes; any code may stand itself."""


_REL_RANGE, _REST_SECONDS = 350, 0.1
"""Value of a SpaceMouse's axis at its end; and the silence [s] after which an axis is at rest:
while it is deflected, it reports some sixty times a second."""


class DeviceGoneError(RobotRLError):
    """A device cannot be opened, or was unplugged."""


def key_code(name: str | int) -> int:
    """Code of a key or a button.

    Raises:
        ConfigError: It has no such name, and no code from 1 to 767.
    """
    if isinstance(name, str):
        if name not in KEYS:
            raise ConfigError(f"{unknown_name('button', name, KEYS)}; or give its code")
        return KEYS[name]
    if isinstance(name, bool) or not 0 < name < 8 * _KEY_BYTES:
        raise ConfigError(f"a button's code lies in 1 to {8 * _KEY_BYTES - 1}, got {name}")
    return name


class InputDevice:
    """One event device, and the state that its events add up to."""

    def __init__(self, path: str | Path) -> None:
        """Open it and ask for its present state.

        Args:
            path: Such as `/dev/input/by-id/usb-...-event-joystick`: names that stay when other
                devices come and go.

        Raises:
            DeviceGoneError: It is not there, or may not be read.
        """
        self.path = str(path)
        """Path of the device."""
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise DeviceGoneError(f"{self.path} cannot be opened: {error.strerror}") from None
        self._rest = b""
        self.keys: set[int] = set()
        """Codes of keys and buttons that are down."""
        self.axes: dict[tuple[int, int], float] = {}
        """Type and code of an axis -> its deflection in [-1, 1]."""
        self._ranges: dict[int, tuple[int, int]] = {}
        self._pressed: set[int] = set()
        self._now = 0.0
        self._moved_at: dict[tuple[int, int], float] = {}
        self._refresh()

    @property
    def vendor(self) -> int:
        """Number of its maker, as USB and Bluetooth have it; 0 where it gives none."""
        raw = self._asked(0x02, 8)
        return 0 if raw is None else struct.unpack("@4H", raw)[1]

    def check(self, *codes: int) -> None:
        """Make sure that it speaks of events, and has these keys or buttons.

        A pipe, which stands in for a device in tests, is not asked.

        Raises:
            DeviceGoneError: It is no event device (a joystick's `js0` is none), or lacks one.
        """
        if stat.S_ISFIFO(os.fstat(self._file).st_mode):
            return
        known = self._asked(0x20 + EV_KEY, _KEY_BYTES)
        if known is None:
            raise DeviceGoneError(
                f"{self.path} is no event device; expected one such as "
                "/dev/input/by-id/usb-...-event-joystick"
            )
        for code in codes:
            if not known[code // 8] >> code % 8 & 1:
                raise DeviceGoneError(f"{self.path} has no key or button of code {code}")

    def poll(self, now: float) -> None:
        """Take what has come. Never waits.

        Args:
            now: Any clock [s].

        Raises:
            DeviceGoneError: It was unplugged.
        """
        self._now = now
        while raw := self._read():
            self._rest += raw
            whole = len(self._rest) // _EVENT.size * _EVENT.size
            for _, _, kind, code, value in _EVENT.iter_unpack(self._rest[:whole]):
                self._take(kind, code, value)
            self._rest = self._rest[whole:]
        for place, at in self._moved_at.items():  # the kernel swallows relative motions of 0
            if now - at > _REST_SECONDS:
                self.axes[place] = 0.0

    def take_pressed(self) -> set[int]:
        """Codes that went down since the last call, those that are up again included."""
        pressed, self._pressed = self._pressed, set()
        return pressed

    def fileno(self) -> int:
        """File that becomes readable when something comes."""
        return self._file

    def close(self) -> None:
        """Let go; allowed more than once."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _read(self) -> bytes:
        try:
            raw = os.read(self._file, _READ_EVENTS * _EVENT.size)
        except BlockingIOError:
            return b""
        except OSError as error:
            why = "it was unplugged" if error.errno == errno.ENODEV else error.strerror
            raise DeviceGoneError(f"{self.path} is gone: {why}") from None
        if not raw:  # a file of events that has ended: nothing comes any more
            raise DeviceGoneError(f"{self.path} is gone: it has ended")
        return raw

    def _take(self, kind: int, code: int, value: int) -> None:
        if kind == EV_KEY:
            if value == 1:  # 2 repeats
                self._pressed.add(code)
            (self.keys.add if value else self.keys.discard)(code)
        elif kind == EV_ABS:
            low, high = self._range(code)
            share = 2 * (value - low) / (high - low) - 1
            self.axes[kind, code] = min(max(share, -1.0), 1.0)
        elif kind == EV_REL:
            self._moved_at[kind, code] = self._now
            self.axes[kind, code] = min(max(value / _REL_RANGE, -1.0), 1.0)
        elif kind == EV_SYN and code == _SYN_DROPPED:
            self._refresh()

    def _range(self, code: int) -> tuple[int, int]:
        """Values of an axis at its ends; of a device that does not tell, those of 16 bits."""
        if code not in self._ranges:
            raw = self._asked(0x40 + code, 24)
            low, high = (-32768, 32767) if raw is None else struct.unpack("@6i", raw)[1:3]
            self._ranges[code] = (low, high) if low < high else (-32768, 32767)
        return self._ranges[code]

    def _refresh(self) -> None:
        """Ask the kernel for keys and axes as they are now."""
        raw = self._asked(0x18, _KEY_BYTES)
        if raw is not None:
            self.keys = {code for code in range(8 * len(raw)) if raw[code // 8] >> code % 8 & 1}
        for kind, code in list(self.axes):
            found = self._asked(0x40 + code, 24) if kind == EV_ABS else None
            if found is not None:
                self._take(kind, code, struct.unpack("@6i", found)[0])

    def _asked(self, number: int, size: int) -> bytes | None:
        """Answer of the kernel to a question about this device; None where it gives none."""
        request = 2 << 30 | size << 16 | ord("E") << 8 | number
        try:
            return fcntl.ioctl(self._file, request, bytes(size))
        except OSError:
            return None


@dataclass(frozen=True, kw_only=True)
class DeviceLayout:
    """Meaning of a device's axes and buttons."""

    axes: tuple[tuple[int, int] | None, ...]
    """Code and sign of each of x, y, z, roll, pitch, yaw; None where the device has none."""
    clutch: int
    """Button that lets deflections move the robot."""
    gripper: int
    """Button that turns the gripper over."""
    acts: dict[int, str] = field(default_factory=dict[int, str])
    """Buttons of other acts: `take_over` (and back), `success`, `fail`, `discard`, `mark`."""


_ABS_X, _ABS_Y, _ABS_RX, _ABS_RY, _HAT_X, _HAT_Y = 0, 1, 3, 4, 16, 17


def _gamepad(*, top: int, left: int) -> DeviceLayout:
    return DeviceLayout(
        axes=((_ABS_Y, -1), (_ABS_X, -1), (_ABS_RY, -1), (_HAT_X, 1), (_HAT_Y, -1), (_ABS_RX, -1)),
        clutch=KEYS["BTN_TR"],
        gripper=KEYS["BTN_SOUTH"],
        acts={
            KEYS["BTN_TL"]: "take_over", top: "success", KEYS["BTN_EAST"]: "fail",
            left: "discard", KEYS["BTN_START"]: "mark",
        },
    )  # fmt: skip


GAMEPAD = _gamepad(top=KEYS["BTN_Y"], left=KEYS["BTN_X"])
"""An Xbox pad: left stick forward and sideways, right stick up and yaw, pad roll and pitch; the
right shoulder is the clutch, the left one takes the robot and gives it back."""
GAMEPAD_BY_PLACE = _gamepad(top=KEYS["BTN_NORTH"], left=KEYS["BTN_WEST"])
"""The same buttons of a pad whose driver names them by place, as the kernel's gamepad page asks
for; drivers of Xbox pads name theirs by what is printed on them, and X is printed in the west."""
_MAKERS_BY_PLACE = (0x054C, 0x057E)
"""Sony and Nintendo: drivers hid-playstation, hid-sony and hid-nintendo."""
SPACEMOUSE = DeviceLayout(
    axes=((1, -1), (0, -1), (2, -1), (4, -1), (3, -1), (5, -1)),
    clutch=KEYS["BTN_0"],
    gripper=KEYS["BTN_1"],
)
"""A 3Dconnexion puck with its cable away from the person: pushed forward is x, left is y."""
LAYOUTS = {"gamepad": GAMEPAD, "spacemouse": SPACEMOUSE}
"""Layouts by the name of the kind of device."""


class HostDevice:
    """A device as a source of intents and acts."""

    def __init__(self, device: InputDevice, kind: str) -> None:
        """Read a device by the layout of its kind, of `LAYOUTS`."""
        by_place = kind == "gamepad" and device.vendor in _MAKERS_BY_PLACE
        self._device, self._layout = device, GAMEPAD_BY_PLACE if by_place else LAYOUTS[kind]
        self.kind = kind
        """Name of its layout."""
        self.takes_over = "take_over" in LAYOUTS[kind].acts.values()
        """It has a button that takes the robot over."""
        self._acts: list[str] = []

    def poll(self, now: float) -> dict[str, Any]:
        """State of the device as an intent, `Intent.from_dict`'s; an axis that it lacks is at rest.

        Args:
            now: Any clock [s].

        Raises:
            DeviceGoneError: It was unplugged: nobody is at the robot.
        """
        device, layout = self._device, self._layout
        device.poll(now)
        pressed = device.take_pressed()
        self._acts += [act for code, act in layout.acts.items() if code in pressed]
        return {
            "axes": [self._axis(place) for place in layout.axes],
            "clutch": layout.clutch in device.keys,
            "gripper": layout.gripper in device.keys,
        }

    def take_acts(self) -> list[str]:
        """Acts whose buttons went down since the last call, each once."""
        acts, self._acts = self._acts, []
        return acts

    def close(self) -> None:
        """Let go of the device."""
        self._device.close()

    def _axis(self, place: tuple[int, int] | None) -> float:
        if place is None:
            return 0.0
        code, sign = place
        axes = self._device.axes
        return sign * axes.get((EV_ABS, code), axes.get((EV_REL, code), 0.0))


def device_place(text: str) -> tuple[str, str]:
    """Kind and path of a device: `gamepad:/dev/input/...` or `spacemouse:/dev/input/...`.

    Raises:
        ConfigError: There is no such kind of device.
    """
    kind, _, path = text.partition(":")
    if kind not in LAYOUTS or not path:
        known = ", ".join(f"{name}:/dev/input/by-id/..." for name in LAYOUTS)
        raise ConfigError(f"'{text}' is no device; expected one of: {known}")
    return kind, path


def open_device(text: str) -> HostDevice:
    """A device of this computer, as `device_place` reads it.

    Raises:
        ConfigError: There is no such kind of device.
        DeviceGoneError: It cannot be opened.
    """
    kind, path = device_place(text)
    device = InputDevice(path)
    try:
        device.check()
    except DeviceGoneError:
        device.close()
        raise
    return HostDevice(device, kind)
