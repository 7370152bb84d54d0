"""The address that the console listens on."""

import socket

from robot_rl.core.errors import ConfigError

_LAST_PORT = 65535


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket at an address; nobody is answered yet.

    Raises:
        ConfigError: It is no address of this computer, or another program has it.
    """
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"port must lie in 0 to {_LAST_PORT}, got {port}")
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
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
