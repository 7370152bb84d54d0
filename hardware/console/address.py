"""The address that the console listens on, and who may keep connections to it."""

import contextlib
import socket
from typing import Any

from robot_rl.core.errors import ConfigError

_LAST_PORT = 65535


MOST_STRANGERS = 64
"""Connections that may be open without having shown a cookie."""


class Listener(socket.socket):
    """Listening socket that keeps few connections of strangers: the oldest give way to new ones.

    They are counted as they are accepted, before TLS and any request.
    """

    def __init__(self, family: int) -> None:
        """Make a stream socket of this family, at no address yet."""
        super().__init__(family, socket.SOCK_STREAM)
        self._strangers: dict[int, socket.socket] = {}  # by file descriptor, oldest first

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, as of `socket.accept`."""
        new, address = super().accept()
        known = self._strangers.items()
        self._strangers = {number: one for number, one in known if one.fileno() == number}
        while len(self._strangers) >= MOST_STRANGERS:
            oldest = self._strangers.pop(next(iter(self._strangers)))
            with contextlib.suppress(OSError):  # the browser has ended it already
                oldest.shutdown(socket.SHUT_RDWR)  # whoever serves it closes it then
        self._strangers[new.fileno()] = new
        return new, address

    def let_in(self, number: int) -> None:
        """The connection with this file descriptor is no stranger's, and stays."""
        self._strangers.pop(number, None)


def bound_socket(host: str, port: int) -> Listener:
    """A socket at an address; nobody is answered yet.

    Raises:
        ConfigError: It is no address of this computer, or another program has it.
    """
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"port must lie in 0 to {_LAST_PORT}, got {port}")
    bound = Listener(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"the console cannot listen on {host}:{port}: {error.strerror or error}; choose "
            "another with host= or port="
        ) from None
    return bound


def check_address(host: str, port: int) -> None:
    """Refuse an address that the console could not listen on now.

    Raises:
        ConfigError: As of `bound_socket`.
    """
    bound_socket(host, port).close()
