"""Viewer in the browser: a server on this machine only, its panel, and the loop that plays.

Viser calls back in threads of its own. The panel touches no env: every wish goes into a queue,
and the thread that steps the envs works it off between two steps.
"""

import io
import socket
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from queue import SimpleQueue
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray
from viser import uplot

from robot_rl.core.errors import ConfigError
from sim.rendering.browser_scene import BrowserScene
from sim.rendering.player import Player
from sim.rendering.scene import (
    Data,
    Mark,
    bounding_box,
    goal_marks,
    ground_point,
    is_adjustable,
    is_planar,
    robot_geoms,
)

Wish = Callable[[], None]

SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")
"""Simulated time per wall time."""
_KEYS: dict[Any, tuple[int, float]] = {
    "I": (0, 0.1), "K": (0, -0.1), "J": (1, 0.1), "L": (1, -0.1), "U": (2, 0.2), "O": (2, -0.2),
}  # fmt: skip
"""Keys that steer a goal on the ground: the entry that each changes, and by how much [m/s,
rad/s]. Viser moves its camera by W, A, S, D, Q, E and the arrows."""
_SLIDER_REACH, _SLIDER_STEP = 1.0, 0.01
"""Range of a goal's slider around its first value, to either side."""
_CLICK = "Click on the floor: the goal goes there, and the time limit begins again."
_POINTS, _PLOT_WIDTH, _PLOT_HEIGHT = 200, 340, 260
"""Points of a plotted line; width of the panel with the plots, and height of each [pixels]."""
_COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C6D31",
    "#333333", "#A0A0A0", "#C0392B", "#2ECC71", "#1F3A93", "#F39C9C", "#00A6A6", "#B7950B",
)  # fmt: skip
_AXES = (uplot.Axis(label="time [s]"), uplot.Axis(size=56))


class Panel:
    """Buttons, sliders and plots."""

    def __init__(self, server: viser.ViserServer, player: Player, *, title: str) -> None:
        self._server, self._player = server, player
        self.wishes: SimpleQueue[Wish] = SimpleQueue()
        self._transport: dict[str, Wish] = {
            "Play": lambda: self._pause(False),
            "Pause": lambda: self._pause(True),
            "Step": self._step,
            "Reset": player.reset,
        }
        gui = server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(0, 114, 178))
        gui.set_panel_label("robot_rl")
        gui.add_markdown(title)
        self._status = gui.add_markdown("")
        self._add_transport()
        self._add_push()
        self._clicked: viser.GuiMarkdownHandle | None = None
        self._refusal = ""
        self._sliders = self._add_goals()
        with gui.add_folder("Look"):
            self.contacts = gui.add_checkbox("contacts", True)
            self.goals = gui.add_checkbox("goals", True)
            self.follow = gui.add_checkbox("follow", True)
        gui.main_panel.dock_right()
        rewards = gui.add_panel()
        with rewards.add_tab("Rewards"):
            if player.judge is not None:
                self._judged = self._add_plot("learned reward", list(player.judge.names))
            self._terms = self._add_plot("terms, weighted, per step", self._paid_names())
            self._returns = self._add_plot("return of the episode", ["return"])
        rewards.dock_left()
        rewards.set_width(_PLOT_WIDTH)

    def work_off(self) -> bool:
        """Do what was asked since the last call; true where there was something."""
        asked = False
        while not self.wishes.empty():
            self.wishes.get()()
            asked = True
        return asked

    def tell(self, rate: float) -> None:
        """Bring words, plots and sliders up to date; `rate` is simulated time per wall time."""
        player = self._player
        env = player.chosen
        episode = player.env.task.episode_steps * player.control_dt
        state = "paused" if player.paused else f"running at {rate:.2f} x real time"
        lines = [
            f"**env {env}** · {player.seconds(env):.2f} of {episode:.2f} s · "
            f"return {player.total(env):.2f}",
            state,
        ]
        last = player.last[env]
        if last is not None:
            lines.append(
                f"episode before: **{last.how}** after {last.seconds:.2f} s, "
                f"return {last.total:.2f}"
            )
        judged = player.trace.judged
        if player.judge is not None and judged:
            told = zip(player.judge.names, judged[-1], strict=True)
            lines.append("learned reward: " + ", ".join(f"{n} {value:.2f}" for n, value in told))
        self._status.content = "\n\n".join(lines)
        self._plot()
        self._show_goals()
        self._show_place()

    def _add_transport(self) -> None:
        gui, player = self._server.gui, self._player
        envs = player.env.spec.num_envs
        transport = gui.add_button_group(
            "episode", tuple(self._transport), hint="Step: one control period, then pause. "
            "Reset: a new episode in the shown env"
        )  # fmt: skip
        env = gui.add_number("env", 0, min=0, max=envs - 1, step=1, disabled=envs == 1)
        speed = gui.add_dropdown("speed", SPEEDS, initial_value="1")
        transport.on_click(lambda _: self.wishes.put(self._transport[transport.value]))
        env.on_update(lambda _: self.wishes.put(lambda: player.choose(int(env.value))))
        speed.on_update(lambda _: self.wishes.put(lambda: self._set_speed(float(speed.value))))

    def _add_push(self) -> None:
        gui, player = self._server.gui, self._player
        unit = "m/s" if player.shown.floats else "rad/s"
        with gui.add_folder("Push the robot"):
            axis = gui.add_dropdown(
                "along" if player.shown.floats else "joint", player.shown.push_axes
            )
            speed = gui.add_slider(f"by [{unit}]", min=-3.0, max=3.0, step=0.1, initial_value=1.0)
            button = gui.add_button("Push")

        def push(_: object) -> None:
            self.wishes.put(lambda: player.push(axis.value, float(speed.value)))

        button.on_click(push)
        gui.add_command("Push the robot", hotkey="P").on_trigger(push)

    def _add_goals(self) -> dict[str, list[viser.GuiSliderHandle[float]]]:
        gui, sliders = self._server.gui, {}
        goals = {k: v for k, v in self._player.goal(0).items() if is_adjustable(k, len(v))}
        places = self._player.env.task.takes_places
        with gui.add_folder("Goal, until the next reset", visible=bool(goals) or places):
            if places:
                self._clicked = gui.add_markdown(_CLICK)
            for name, values in goals.items():
                letters = ("x", "y", "turn" if is_planar(name, len(values)) else "z")
                sliders[name] = [
                    gui.add_slider(
                        f"{name} {letter}",
                        min=round(float(value) - _SLIDER_REACH, 2),
                        max=round(float(value) + _SLIDER_REACH, 2),
                        step=_SLIDER_STEP,
                        initial_value=round(float(value), 2),
                    )
                    for value, letter in zip(values, letters, strict=False)
                ]
                if is_planar(name, len(values)):
                    self._add_keys(name)
                for i, slider in enumerate(sliders[name]):
                    slider.on_update(lambda event, name=name, i=i: self._wish_goal(event, name, i))
        return sliders

    def place_goal(self, origin: NDArray[np.float64], direction: NDArray[np.float64]) -> None:
        """Move the goal to what a click meets, along a ray of the world, and say what came of it.

        Args:
            origin: Where the ray begins, (3,), [m].
            direction: (3,).
        """
        player = self._player
        data = player.shown.look(player.chosen, player.time)
        self._refusal = ""
        try:
            player.place_goal(ground_point(player.shown.model, data, origin, direction))
        except ConfigError as refusal:
            self._refusal = str(refusal)

    def _show_place(self) -> None:
        """Say where a person put the goal of the shown env, or why not there."""
        if self._clicked is None:
            return
        place, lines = self._player.places[self._player.chosen], [_CLICK]
        if place is not None:
            lines.append(f"Goal at ({place[0]:.2f}, {place[1]:.2f}) m.")
        if self._refusal:
            lines.append(f"**Refused:** {self._refusal}.")
        self._clicked.content = "\n\n".join(lines)

    def _add_keys(self, name: str) -> None:
        """Keys that steer a goal on the ground, and X to stop."""
        gui = self._server.gui
        gui.add_markdown("Keys: I K ahead and back, J L sideways, U O turn, X stop, P push")
        for key, (entry, change) in _KEYS.items():
            steer = gui.add_command(f"Steer {name} ({key})", hotkey=key)
            steer.on_trigger(
                lambda _, i=entry, by=change: self.wishes.put(lambda: self._steer(name, i, by))
            )
        stop = gui.add_command(f"Stop {name}", hotkey="X")
        stop.on_trigger(lambda _: self.wishes.put(lambda: self._player.hold_goal(name, [0.0] * 3)))

    def _steer(self, name: str, entry: int, change: float) -> None:
        """Change an entry, within the range of its slider."""
        slider = self._sliders[name][entry]
        value = float(self._player.goal(self._player.chosen)[name][entry]) + change
        self._set_goal(name, entry, float(np.clip(value, slider.min, slider.max)))

    def _wish_goal(self, event: viser.GuiEvent, name: str, entry: int) -> None:
        if event.client is not None:  # moved by a person, not by `_show_goals`
            value = float(self._sliders[name][entry].value)
            self.wishes.put(lambda: self._set_goal(name, entry, value))

    def _set_goal(self, name: str, entry: int, value: float) -> None:
        """Change one entry; the others keep their values, which sliders may not reach."""
        values = self._player.goal(self._player.chosen)[name]
        values[entry] = value
        self._player.hold_goal(name, values.tolist())

    def _show_goals(self) -> None:
        """Sliders follow goals that the task moves."""
        goal = self._player.goal(self._player.chosen)
        for name, sliders in self._sliders.items():
            for slider, value in zip(sliders, goal[name], strict=True):
                shown = round(float(np.clip(value, slider.min, slider.max)), 2)
                if abs(slider.value - shown) > _SLIDER_STEP / 2:
                    slider.value = shown

    def _pause(self, paused: bool) -> None:
        self._player.paused = paused

    def _step(self) -> None:
        self._player.paused = True
        self._player.step()

    def _set_speed(self, speed: float) -> None:
        self._player.speed = speed

    def _paid_names(self) -> list[str]:
        """Terms with a weight, and their columns."""
        env = self._player.env
        weights = env.task.reward_weights(0)
        names = env.spec.reward_names
        self._columns = [i for i, name in enumerate(names) if weights[name] != 0.0]
        return [names[i] for i in self._columns]

    def _add_plot(self, title: str, names: list[str]) -> viser.GuiUplotHandle:
        lines = tuple(
            uplot.Series(label=name, stroke=_COLOURS[i % len(_COLOURS)], width=1.5)
            for i, name in enumerate(names)
        )
        return self._server.gui.add_uplot(
            data=tuple(np.zeros(2) for _ in range(1 + len(names))),
            series=(uplot.Series(label="time"), *lines),
            scales={"x": uplot.Scale(time=False)},
            axes=_AXES,
            title=title,
            height=_PLOT_HEIGHT,
        )

    def _plot(self) -> None:
        trace = self._player.trace
        if len(trace.time) < 2:
            return
        chosen = np.unique(np.linspace(0, len(trace.time) - 1, _POINTS).astype(int))
        time = np.array(trace.time)[chosen]
        terms = np.array(trace.terms)[chosen]
        self._terms.data = (time, *(terms[:, i].astype(float) for i in self._columns))
        self._returns.data = (time, np.array(trace.returns)[chosen])
        if self._player.judge is not None:
            judged = np.array(trace.judged)[chosen].astype(float)
            self._judged.data = (time, *judged.T)


HOST = "127.0.0.1"
"""Whoever reaches the page steers the envs, and nobody is asked who he is: loopback only."""
_FRAME_TIME = 1 / 30
_TELL_TIME = 0.2
"""Wall time between two pictures, and between two updates of words and plots [s]."""


class BrowserViewer:
    """Shows the envs of a player. All envs are stepped in the thread that calls `run`."""

    def __init__(self, player: Player, *, title: str, port: int) -> None:
        """Open the page; port 0 takes a free one.

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
        if player.env.task.takes_places:
            self.server.scene.on_click()(self._wish_place)
        self._rate = 0.0  # simulated time per wall time
        self._told, self._told_time = time.perf_counter(), player.time
        self._draw(0.0)
        self._panel.tell(0.0)

    @property
    def address(self) -> str:
        """Of the page."""
        return f"http://{HOST}:{self.port}"

    def run(self, until: Callable[[], bool]) -> None:
        """Play until told to stop, pictures and envs in real time.

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

    def _wish_place(self, event: viser.SceneClickEvent) -> None:
        """Move the goal of the shown env to where a person clicked."""
        origin, direction = self._scene.world(event.ray_origin), np.array(event.ray_direction)
        self._panel.wishes.put(lambda: self._panel.place_goal(origin, direction))

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
        """The chosen env and its goals."""
        player, shown = self._player, self._player.shown
        data = shown.look(player.chosen, player.time)
        box = bounding_box(shown.model, data, self._geoms)
        goal: dict[str, NDArray] = dict(player.goal(player.chosen))
        place = player.places[player.chosen]
        if place is not None:
            goal["placed_position_w"] = place
        return data, goal_marks(goal, data, shown.base, box)


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
