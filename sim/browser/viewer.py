"""The viewer in the browser: a server on this machine only, and the loop that plays the worlds."""

import io
import socket
import time
from collections.abc import Callable
from contextlib import redirect_stdout

import viser

from robot_rl.core.errors import ConfigError
from sim.browser.panel import Panel
from sim.browser.scene import BrowserScene
from sim.viewing.framing import bounding_box, marks_of, robot_geoms
from sim.viewing.goals import Mark
from sim.viewing.player import Player
from sim.viewing.worlds import Data

HOST = "127.0.0.1"
"""Whoever reaches the page steers the worlds, and nobody is asked who he is: loopback only."""
_FRAME_TIME = 1 / 30
_TELL_TIME = 0.2
"""Wall time between two pictures, and between two updates of words and plots [s]."""


class BrowserViewer:
    """Shows the worlds of a player. All worlds are stepped in the thread that calls `run`."""

    def __init__(self, player: Player, *, title: str, port: int) -> None:
        """Open the page.

        Args:
            player: Worlds and agent.
            title: What is played.
            port: Of the page; 0 takes a free one.

        Raises:
            ConfigError: The port is taken.
        """
        _check_free(port)
        self._player = player
        with redirect_stdout(io.StringIO()):  # viser greets; the caller says where the page is
            self.server = _LocalServer(host=HOST, port=port, verbose=False)
            """Viser's, with the scene and the panel."""
        self.port = self.server.get_port()
        if port not in (0, self.port):  # taken in between; viser then tries the next ones
            self.server.stop()
            raise ConfigError(_taken(port))
        self._panel = Panel(self.server, player, title=title)
        self._geoms = robot_geoms(player.shown.model, player.shown.base)
        self._scene = BrowserScene(self.server, player.shown, *self._look())
        self._rate = 0.0  # simulated time per wall time
        self._told, self._told_time = time.perf_counter(), player.time
        self._draw(0.0)
        self._panel.tell(0.0)

    @property
    def address(self) -> str:
        """Of the page."""
        return f"http://{HOST}:{self.port}"

    def run(self, until: Callable[[], bool]) -> None:
        """Play until told to stop, pictures and worlds in real time.

        Raises:
            NonFiniteError: An observation or a reward was not a number.
        """
        before = time.perf_counter()
        while not until():
            now = time.perf_counter()
            elapsed, before = now - before, now
            asked = self._panel.work_off()
            moved = self._player.advance(elapsed)
            if asked or moved or not self._player.paused:
                self._draw(elapsed)
            if asked or now - self._told > _TELL_TIME:
                self._tell(now)
            time.sleep(max(0.0, _FRAME_TIME - (time.perf_counter() - now)))

    def close(self) -> None:
        """Close the page."""
        with redirect_stdout(io.StringIO()):
            self.server.stop()

    def _tell(self, now: float) -> None:
        self._player.env.check()
        wall, simulated = now - self._told, self._player.time - self._told_time
        if wall > _TELL_TIME / 2:
            self._rate = simulated / wall
            self._told, self._told_time = now, self._player.time
        self._panel.tell(self._rate)

    def _draw(self, elapsed: float) -> None:
        panel = self._panel
        data, marks = self._look()
        self._scene.draw(
            data,
            marks if panel.goals.value else [],
            contacts=panel.contacts.value,
            follow=panel.follow.value,
            elapsed=elapsed,
        )

    def _look(self) -> tuple[Data, list[Mark]]:
        """The chosen world and its goals."""
        player, shown = self._player, self._player.shown
        data = shown.look(player.world, player.time)
        box = bounding_box(shown.model, data, self._geoms)
        return data, marks_of(player.goal(player.world), data, shown.base, box)


class _LocalServer(viser.ViserServer):
    """Viser, without the tunnel that would show the page to the world."""

    def request_share_url(self, verbose: bool = True) -> str | None:
        """No: the page is for this machine."""
        return None


def _check_free(port: int) -> None:
    if not 0 <= port <= 65535:
        raise ConfigError(f"port must lie in 0..65535, got {port}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(f"{_taken(port)} ({error.strerror})") from error


def _taken(port: int) -> str:
    return f"port {port} of {HOST} cannot be had; choose another, such as port={port + 1}"
