"""The page: what it draws, what its buttons do, and who can open it."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from robot_rl.core.errors import ConfigError
from sim.rendering.player import Player
from tests.sim.rendering.shown import pictures, player_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-unsafe-swiftshader",
)  # fmt: skip
PATIENCE = 30_000
"""Until a page of software GL on a busy machine has done what was asked [ms]."""


@contextmanager
def showing(player: Player, title: str = "a title") -> Iterator[str]:
    """A viewer at work in a thread of its own; gives its address."""
    from sim.rendering.browser import BrowserViewer

    viewer = BrowserViewer(player, title=title, port=0)
    stop = threading.Event()
    thread = threading.Thread(target=viewer.run, args=(stop.is_set,))
    thread.start()
    try:
        yield viewer.address
    finally:
        stop.set()
        thread.join()
        viewer.close()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)))
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield opened
        opened.close()


def listening() -> set[tuple[str, int]]:
    """Addresses at which this process can be reached."""
    return {
        (entry.laddr.ip, entry.laddr.port)
        for entry in psutil.Process().net_connections(kind="inet")
        if entry.status == psutil.CONN_LISTEN
    }


def step(page: Any, player: Player) -> None:
    """Press the button of a paused page, and wait until the page tells the next moment.

    The episode must go on: at its end the page tells the beginning of the next one.
    """
    told = f"{player.seconds(0) + player.control_dt:.2f} of"
    page.get_by_role("button", name="Step", exact=True).click()
    page.get_by_text(told).wait_for()


def robot_pixels(picture: Path) -> int:
    """Pixels as dark as a Go2's legs in the middle third of the page, where only the scene is."""
    (frame,) = pictures(picture)
    scene = frame[:, 430:850].astype(int)
    return int((scene.sum(axis=-1) < 330).sum())


def test_person_pauses_steps_pushes_moves_the_goal_and_changes_the_env(browser, tmp_path):
    player = player_of("velocity", 2, "task.randomization.pushes.speed=0",
                       "task.randomization.pushes.turn=0", "task.episode_length=1000")  # fmt: skip
    with showing(player, "velocity, go2, zero") as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address)
        page.get_by_text("velocity, go2, zero").wait_for()
        page.get_by_text("terms, weighted, per step").wait_for()
        page.get_by_text("running at").wait_for()

        page.get_by_role("button", name="Pause", exact=True).click()
        page.get_by_text("paused").wait_for()
        stood = player.time
        step(page, player)
        assert player.time == pytest.approx(stood + player.control_dt)

        before = float(player.env.simulation.true_state.fields["linear_velocity_w"][0, 0])
        page.get_by_role("button", name="Push", exact=True).click()
        step(page, player)
        after = float(player.env.simulation.true_state.fields["linear_velocity_w"][0, 0])
        assert after - before > 0.3  # pushed by 1 m/s; the feet brake

        goal = page.get_by_role("textbox").nth(2)  # after the world and the push
        others = player.goal(0)["velocity_b"][1:].tolist()
        turns = 0
        while player.goal(0)["velocity_b"][0] != 0.5:
            if turns % 100 == 0:  # a busy page may put the old number back before Enter
                goal.fill("0.5")
                goal.press("Enter")
            page.wait_for_timeout(50)  # lets the page work
            turns += 1
            assert turns < PATIENCE / 50
        step(page, player)
        assert player.goal(0)["velocity_b"].tolist() == [0.5, *others]

        page.screenshot(path=str(tmp_path / "page.png"))
        assert robot_pixels(tmp_path / "page.png") > 500

        number = page.get_by_role("textbox").nth(0)
        number.fill("1")
        number.press("Enter")
        page.get_by_text("env 1").wait_for()
        assert player.chosen == 1
        assert faults == []
        page.close()


def test_keys_steer_a_walking_robot_and_push_it(browser, tmp_path):
    player = player_of("velocity", 1, "task.randomization.pushes.speed=0",
                       "task.randomization.pushes.turn=0", "task.episode_length=1000")  # fmt: skip
    player.paused = True
    with showing(player) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_text("paused").wait_for()

        def press(key: str, there: Callable[[], bool]) -> None:
            page.keyboard.press(key)
            for _ in range(PATIENCE // 50):
                if there():
                    return
                page.wait_for_timeout(50)
            raise AssertionError(f"{key} did nothing; goal {player.goal(0)['velocity_b']}")

        def goal() -> list[float]:
            return player.goal(0)["velocity_b"].tolist()

        press("x", lambda: goal() == [0.0, 0.0, 0.0])
        press("i", lambda: goal() == pytest.approx([0.1, 0.0, 0.0]))
        press("l", lambda: goal() == pytest.approx([0.1, -0.1, 0.0]))
        press("u", lambda: goal() == pytest.approx([0.1, -0.1, 0.2]))
        before = float(player.env.simulation.true_state.fields["linear_velocity_w"][0, 0])
        page.keyboard.press("p")
        step(page, player)  # asked for after the push, and done after it
        after = float(player.env.simulation.true_state.fields["linear_velocity_w"][0, 0])
        assert after - before > 0.3  # pushed by 1 m/s; the feet brake
        page.screenshot(path=str(tmp_path / "page.png"))
        assert robot_pixels(tmp_path / "page.png") > 500, "the camera stays with the robot"
        page.close()


def test_a_click_on_the_floor_moves_the_goal_and_one_beside_the_corridor_is_refused(
    browser, tmp_path
):
    player = player_of("clutter", 1)
    player.paused = True
    with showing(player) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_text("Click on the floor").wait_for()
        page.locator("canvas").first.wait_for()

        def click(x: int, y: int, told: str) -> None:
            for _ in range(10):  # a busy page may not know yet that clicks are asked for
                page.mouse.click(x, y)
                page.wait_for_timeout(PATIENCE / 10)
                if page.get_by_text(told).count():
                    return
            raise AssertionError(f"the page does not tell '{told}'")

        click(760, 440, "Goal at")  # before the robot's head
        place = player.places[0]
        assert place is not None
        assert 0.1 < place[0] < 0.6
        assert 0.0 < place[1] < 0.7
        step(page, player)
        way = player.env.simulation.privileged["way_position_w"][0, -3:]
        assert way.tolist() == pytest.approx(place.tolist(), abs=1e-5)
        click(640, 700, "outside the corridor")
        click(700, 400, "and not the floor")  # the robot's head
        assert player.places[0] is place
        page.get_by_text("Goal at").wait_for()
        page.screenshot(path=str(tmp_path / "page.png"))
        page.close()


def test_page_holds_every_geom_and_can_be_opened_from_this_machine_only():
    from sim.rendering.browser import BrowserViewer
    from sim.rendering.scene import shapes_of

    before, player = listening(), player_of("reach", 1)
    viewer = BrowserViewer(player, title="reach", port=0)
    try:
        assert listening() - before == {("127.0.0.1", viewer.port)}
        assert viewer.server.request_share_url() is None, "no tunnel to the world"
        names = [f"body_{shape.body}/{shape.name}" for shape in shapes_of(player.shown.model)]
        for name in (*names, "body_0/plane_0", "goal/end_effector_position_b/0"):
            assert viewer.server.scene.get_handle_by_name(f"/shown/{name}") is not None, name
        with pytest.raises(ConfigError, match=f"port {viewer.port} .* choose another"):
            BrowserViewer(player, title="a second one", port=viewer.port)
        assert len(listening() - before) == 1
    finally:
        viewer.close()


def test_gates_are_frames_that_stand_anew_with_every_course():
    import viser

    from sim.rendering.browser import BrowserViewer

    player = player_of("gates", 1)
    viewer = BrowserViewer(player, title="gates", port=0)
    try:
        marks = viewer._scene._marks
        gates = [mark for mark in marks.values() if isinstance(mark, viser.LineSegmentsHandle)]
        assert len(gates) == 5
        before = [(node.position.copy(), node.points.copy()) for node in gates]
        assert all(points.shape == (4, 2, 3) for _, points in before)
        player.env.reset(seed=8)
        viewer._draw(0.0)
        for node, (place, points) in zip(gates, before, strict=True):
            assert abs(node.position - place).max() > 0.01
            assert abs(node.points - points).max() > 0.01
    finally:
        viewer.close()
