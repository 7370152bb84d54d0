"""The page in a real browser: what a person presses reaches the robot, and what is let go ends."""

import contextlib
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from hardware.control.safety import Condition, SafetyState
from hardware.teleop.input_device import EV_ABS, EV_KEY, KEYS, open_device
from tests.hardware.console.conftest import CHROMIUM, FLAGS, Stage
from tests.hardware.console.running import new_name, robot_process, wait_for
from tests.hardware.teleop.test_input_device import Kernel, event

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra dev)")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"there is no browser at {CHROMIUM}"),
]
S = SafetyState
expect = playwright.expect
"""Waits for what is asked: the page hears of a change a moment after the robot."""
expect.set_options(timeout=15_000)  # [ms], as `wait_for`
SIZE = {"width": 1366, "height": 768}


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, stage):
    """Open a page in a browser of its own."""
    contexts, errors = [], []

    def open_one(name="Ann"):
        context = chromium.new_context(viewport=SIZE)
        contexts.append(context)
        context.add_init_script(f"localStorage.setItem('name', '{name}')")
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and errors.append(said.text))
        page.goto(stage.new_url())
        page.wait_for_function("() => window.consoleProbe && window.consoleProbe.state()")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def operator(open_page):
    """A page that holds the lock."""
    page = open_page()
    become_operator(page)
    return page


def become_operator(page):
    page.wait_for_function("() => window.consoleProbe.state().operator.holder === null")
    page.get_by_test_id("operator-acquire").click()
    page.get_by_test_id("operator-release").wait_for()


def drive(page, stage):
    """Take the robot over by keys; the clutch stays held."""
    stage.in_policy()
    page.wait_for_function("() => window.consoleProbe.state().stick.present")
    page.keyboard.down("Shift")
    wait_for(lambda: stage.teleoperator.intent and stage.teleoperator.intent["clutch"])
    end = time.monotonic() + 10.0
    while stage.status.safety is not S.HUMAN:  # on a busy machine the policy may have been silent
        assert time.monotonic() < end, stage.status.newest()
        stage.in_policy()
        page.keyboard.press("KeyT")
        with contextlib.suppress(AssertionError):
            stage.until(S.HUMAN, 1.0)


def test_a_click_on_stop_stops_the_robot_also_for_one_who_looks_on(open_page, stage):
    stage.in_policy()
    page = open_page("Bob")
    page.get_by_test_id("stop").click()
    stage.until(S.ESTOP)
    page.wait_for_function(
        "() => document.querySelector('[data-testid=authority-who]').textContent === 'STOPPED'"
    )


@pytest.mark.parametrize("key", ["Space", "Escape"])
def test_keys_stop_even_over_the_help(operator, stage, key):
    stage.in_policy()
    operator.keyboard.press("?")
    operator.get_by_test_id("close-help").wait_for()
    operator.get_by_test_id("stop").click(trial=True)  # nothing lies over it
    operator.keyboard.press(key)
    stage.until(S.ESTOP)


def test_space_in_a_note_is_a_space_and_escape_stops(operator, stage):
    stage.in_policy()
    operator.get_by_test_id("note").fill("worn")
    operator.get_by_test_id("note").press("Space")
    expect(operator.get_by_test_id("note")).to_have_value("worn ")
    assert stage.status.safety is S.POLICY
    operator.get_by_test_id("note").press("Escape")
    stage.until(S.ESTOP)


def test_space_stops_from_a_field_of_numbers(operator, stage):
    stage.in_policy()
    operator.get_by_test_id("deadband-x").focus()
    operator.keyboard.press("Space")
    stage.until(S.ESTOP)


GAMEPAD = """() => {
  const buttons = Array.from({ length: 17 }, (_, index) => ({ pressed: index === 5, value: 1 }));
  window.pad = { id: "made up", mapping: "standard", buttons, axes: [0, 0, 0, 0] };
  navigator.getGamepads = () => [window.pad];
}"""


def test_a_gamepad_of_unknown_axes_moves_nothing_and_the_page_says_why(operator, stage):
    operator.evaluate(GAMEPAD)
    operator.evaluate("() => { window.pad.mapping = ''; window.pad.axes = [0, 0, -1, 0, 0, -1]; }")
    operator.get_by_test_id("device").select_option("gamepad")
    expect(operator.get_by_test_id("drive-hint")).to_contain_text("does not know")
    assert operator.evaluate("() => window.consoleProbe.drive.axes") == [0] * 6
    assert operator.evaluate("() => window.consoleProbe.drive.clutch") is False
    operator.get_by_test_id("device").select_option("keyboard")


def test_after_a_note_and_from_an_invitation_space_stops(operator, stage):
    stage.in_policy()
    operator.get_by_test_id("note").fill("worn")
    operator.get_by_test_id("note").press("Enter")
    expect(operator.get_by_test_id("note")).to_have_value("")
    operator.keyboard.press("Space")
    stage.until(S.ESTOP)
    # The console has seen it, too, and the stop is answered before the robot is reset.
    expect(operator.get_by_test_id("authority-who")).to_have_text("STOPPED")
    stage.in_policy()
    operator.get_by_test_id("invite").click()
    operator.get_by_test_id("invite-dialog").wait_for()
    operator.keyboard.press("Space")
    stage.until(S.ESTOP)


def test_enter_on_a_link_is_for_the_link(operator, stage):
    operator.keyboard.press("KeyR")
    operator.get_by_test_id("ready").wait_for()
    operator.locator("a[href='/review']").focus()
    before = len(stage.actor.commands)
    operator.keyboard.press("Enter")
    operator.wait_for_url("**/review")
    assert [one["do"] for one in stage.actor.commands[before:]] == []
    stage.actor.phase = "running"


def test_a_key_that_repeats_itself_does_not_hold_the_clutch_again(operator, stage):
    clutch = lambda: (stage.teleoperator.intent or {}).get("clutch")  # noqa: E731
    operator.keyboard.down("Shift")
    wait_for(lambda: clutch() is True)
    operator.evaluate("() => window.dispatchEvent(new Event('blur'))")
    wait_for(lambda: clutch() is False)
    operator.keyboard.down("Shift")  # a key that is down already: the browser calls it a repeat
    time.sleep(0.3)
    assert clutch() is False
    operator.keyboard.up("Shift")
    operator.keyboard.down("Shift")
    wait_for(lambda: clutch() is True)
    operator.keyboard.up("Shift")


@pytest.mark.parametrize(
    "told", ["{code: 'ShiftRight', key: 'Shift'}", "{code: 'KeyX', key: 'x'}",
             "{code: 'MetaLeft', key: 'Meta', shiftKey: true}"],
)  # fmt: skip
def test_a_clutch_whose_release_no_browser_tells_is_let_go(operator, stage, told):
    """Of two Shifts Windows tells the last release alone; beside Command macOS tells none."""
    clutch = lambda: (stage.teleoperator.intent or {}).get("clutch")  # noqa: E731
    operator.keyboard.down("Shift")
    wait_for(lambda: clutch() is True)
    operator.evaluate(f"() => window.dispatchEvent(new KeyboardEvent('keyup', {told}))")
    wait_for(lambda: clutch() is False)
    operator.keyboard.up("Shift")


def test_an_action_that_is_no_number_leaves_the_page_alive(operator, stage):
    before, stage.actor.asked = stage.actor.asked, [float("nan"), 0.3, -0.4, float("inf")]
    try:
        expect(operator.get_by_test_id("action")).to_have_attribute(
            "title", re.compile(r"asks: x \S, y 0\.30, z -0\.40, gripper \S$")
        )
        assert operator.get_by_test_id("lost").is_hidden()
    finally:
        stage.actor.asked = before


def test_a_gamepad_whose_clutch_is_held_is_let_go_with_the_window(operator, stage):
    operator.evaluate(GAMEPAD)
    operator.get_by_test_id("device").select_option("gamepad")
    clutch = lambda: (stage.teleoperator.intent or {}).get("clutch")  # noqa: E731
    wait_for(lambda: clutch() is False)  # another device was chosen: it has to be pressed anew
    operator.evaluate("() => { window.pad.buttons[5].pressed = false; }")
    time.sleep(0.3)
    operator.evaluate("() => { window.pad.buttons[5].pressed = true; }")
    wait_for(lambda: clutch() is True)
    operator.evaluate("() => window.dispatchEvent(new Event('blur'))")
    wait_for(lambda: clutch() is False)
    time.sleep(0.5)
    assert clutch() is not True, "it is held down all the time"  # None: the page was late


def test_a_gripper_button_that_is_held_ends_with_its_gamepad(operator, stage):
    """It stayed down for good: key G was dead, and a take-over turned the gripper."""
    operator.evaluate(GAMEPAD)
    operator.get_by_test_id("device").select_option("gamepad")
    said = lambda name: (stage.teleoperator.intent or {}).get(name)  # noqa: E731
    operator.evaluate("() => { window.pad.buttons[0].pressed = true; }")
    wait_for(lambda: said("gripper") is True)
    operator.get_by_test_id("device").select_option("keyboard")
    wait_for(lambda: said("gripper") is False)


def test_after_a_stop_reset_and_arm_are_two_steps(operator, stage):
    stage.in_policy()
    operator.keyboard.press("Space")
    stage.until(S.ESTOP)
    expect(operator.get_by_test_id("arm")).to_be_disabled()  # once the page has heard of it
    operator.get_by_test_id("reset-stop").click()
    stage.until(S.PASSIVE)
    operator.get_by_test_id("arm").click()
    stage.until(S.HOLD)


def test_a_key_says_at_once_where_to(operator):
    said = operator.evaluate("""() => {
      const key = (code) => dispatchEvent(new KeyboardEvent('keydown', { code, shiftKey: true }));
      key('ShiftLeft');
      key('ArrowLeft');
      return [window.consoleProbe.drive.axes, window.consoleProbe.drive.clutch];
    }""")
    assert said == [[0, 1, 0, 0, 0, 0], True]


def test_the_clutch_lets_the_stick_move_the_robot_and_its_release_stands(operator, stage):
    drive(operator, stage)
    operator.keyboard.down("ArrowUp")
    before = hip(stage)
    wait_for(lambda: hip(stage) > before + 0.03)
    operator.keyboard.up("Shift")  # the axis is still held
    wait_for(
        lambda: stage.teleoperator.intent is not None and not stage.teleoperator.intent["clutch"]
    )
    operator.keyboard.up("ArrowUp")
    assert stage.status.safety is S.HUMAN  # the page is there: the lease lasts
    operator.keyboard.press("KeyB")
    wait_for(lambda: stage.status.safety in (S.POLICY, S.HUMAN))


@pytest.mark.parametrize("event", ["blur", "gamepaddisconnected"])
def test_events_of_the_window_let_the_clutch_go(operator, stage, event):
    drive(operator, stage)
    wait_for(lambda: stage.teleoperator.intent and stage.teleoperator.intent["clutch"])
    operator.evaluate(f"() => window.dispatchEvent(new Event('{event}'))")
    wait_for(lambda: stage.teleoperator.intent and not stage.teleoperator.intent["clutch"], 0.5)


@pytest.mark.parametrize("event", ["pagehide", "freeze"])
def test_a_page_that_is_left_gives_the_robot_back_to_nobody(operator, stage, event):
    drive(operator, stage)
    operator.evaluate(f"() => window.dispatchEvent(new Event('{event}'))")
    stage.until(S.HOLD, 0.5)


def test_a_hidden_page_gives_the_robot_back_to_nobody(operator, stage):
    drive(operator, stage)
    operator.evaluate(
        """() => {
          Object.defineProperty(document, 'hidden', { value: true });
          document.dispatchEvent(new Event('visibilitychange'));
        }"""
    )
    stage.until(S.HOLD, 0.5)


def test_a_closed_tab_ends_the_authority(operator, stage):
    drive(operator, stage)
    operator.close()
    stage.until(S.HOLD, 0.6)  # from before the browser began to close it
    assert stage.status.safety is S.HOLD


def test_a_frozen_page_loses_the_robot(operator, stage):
    drive(operator, stage)
    began = time.time()
    operator.evaluate("() => { const end = Date.now() + 900; while (Date.now() < end); }")
    assert stage.status.safety is S.HOLD
    lines = (stage.folder / "console_actions.jsonl").read_text().splitlines()
    last = [json.loads(line) for line in lines if "dead-man released" in line][-1]
    assert last["why"] == "the operator's page was silent"
    assert last["time"] - began < 0.6


def test_a_reload_shows_the_same_and_keeps_the_lock(operator, stage):
    operator.get_by_test_id("frame-tool").click()
    operator.keyboard.press("KeyS")
    operator.get_by_test_id("toast").wait_for()
    operator.reload()
    operator.get_by_test_id("toast").wait_for()
    expect(operator.get_by_test_id("toast-text")).to_contain_text("success")
    operator.get_by_test_id("operator-release").wait_for()
    expect(operator.get_by_test_id("frame-tool")).to_have_attribute("aria-pressed", "true")


def test_labels_by_keys_reach_the_actor_and_can_be_undone(operator, stage):
    for key, do in (("KeyF", "fail"), ("KeyD", "discard"), ("KeyS", "success")):
        operator.keyboard.press(key)
        wait_for(lambda do=do: stage.actor.commands[-1]["do"] == do)
    operator.get_by_test_id("toast-undo").click()
    wait_for(lambda: stage.actor.commands[-1]["do"] == "undo")
    operator.get_by_test_id("toast").wait_for(state="hidden")


def test_a_scene_is_reset_and_confirmed(operator, stage):
    operator.keyboard.press("KeyR")
    operator.get_by_test_id("ready").wait_for()
    expect(operator.get_by_test_id("prompt-text")).to_contain_text("Put the peg back")
    before = stage.actor.episode
    operator.keyboard.press("Enter")
    wait_for(lambda: stage.actor.episode == before + 1)


def test_the_step_of_a_reset_is_shown_and_skipped_only_where_it_may_be(operator, stage):
    told = operator.get_by_test_id("reset-step")
    expect(told).to_be_hidden()
    step = {"step": "move_joints", "number": 2, "count": 3, "seconds": 4.2, "asks": False}
    try:
        stage.actor.phase, stage.actor.reset_step = "waiting", step | {"may_skip": False}
        expect(told).to_have_text("reset, step 2 of 3: move joints, 4 s · 40 %")
        expect(operator.get_by_test_id("skip")).to_be_hidden()
        expect(operator.get_by_test_id("ready")).to_be_hidden()  # a person is not waited for
        stage.actor.reset_step = step | {"may_skip": True, "asks": True}
        expect(told).to_have_text("reset, step 2 of 3: waits for a person, 4 s · 40 %")
        expect(operator.get_by_test_id("ready")).to_be_visible()
        operator.get_by_test_id("skip").click()
        wait_for(lambda: stage.actor.commands[-1]["do"] == "skip")
    finally:
        stage.actor.phase, stage.actor.reset_step = "running", None


def test_a_reason_goes_with_the_next_discard_and_with_no_other(operator, stage):
    stage.actor.phase = "running"
    operator.get_by_test_id("reason").fill("peg fell")
    operator.get_by_test_id("reason").press("Enter")
    for reason in ("peg fell", None):
        before = len(stage.actor.commands)
        operator.keyboard.press("KeyD")
        wait_for(lambda before=before: len(stage.actor.commands) > before)
        assert stage.actor.commands[-1]["do"] == "discard"
        assert stage.actor.commands[-1].get("reason") == reason
        expect(operator.get_by_test_id("reason")).to_have_value("")
    expect(operator.get_by_test_id("log")).to_contain_text("peg fell")


def test_the_pads_turn_the_hand_and_grip(operator, stage):
    said = lambda name: (stage.teleoperator.intent or {}).get(name)  # noqa: E731
    operator.get_by_test_id("device").select_option("pad")
    box = operator.get_by_test_id("pad-pitchroll").bounding_box()
    operator.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 2)
    operator.mouse.down()
    wait_for(lambda: said("clutch") is True)
    assert stage.teleoperator.intent["axes"][3:5] == pytest.approx(
        [0.5, 0.95], abs=0.06
    )  # after the deadband
    operator.mouse.up()
    wait_for(lambda: said("clutch") is False)
    assert said("gripper") is False
    operator.get_by_test_id("grip").click()
    wait_for(lambda: any(one and one["gripper"] for _, one in stage.teleoperator.heard[-20:]))
    wait_for(lambda: said("gripper") is False)
    operator.get_by_test_id("device").select_option("keyboard")


def test_a_hand_over_is_shown_both_ways(operator, stage):
    stage.teleoperator.handover = 0.6
    try:
        stage.in_policy()
        text = operator.get_by_test_id("handover-text")
        expect(text).to_have_text("hand-over to the policy 60 %")
        drive(operator, stage)
        expect(text).to_have_text("hand-over to the person 60 %")
    finally:
        stage.teleoperator.handover = 1.0
    expect(operator.get_by_test_id("handover")).to_be_hidden()
    operator.keyboard.up("Shift")


def test_force_is_shown_against_its_limit_and_efforts_that_nobody_measures_are_called_so(
    operator, stage, monkeypatch
):
    view = stage.console.view
    measured = view.measured
    expect(operator.get_by_test_id("force")).to_be_hidden()
    unmeasured = operator.get_by_test_id("joints").get_by_text("not measured")
    expect(unmeasured).to_have_count(2)
    expect(unmeasured.first).to_be_hidden()

    def more():
        fields, stamp = measured()
        left = {name: one for name, one in fields.items() if name != "joint_effort"}
        return {**left, "wrench_ee": np.array([[0.0, 3.0, -18.0, 0.3, 0.4, 0.0]])}, stamp

    monkeypatch.setattr(view, "measured", more)
    expect(operator.get_by_test_id("force-text")).to_have_text("18.2 of 20 N · torque 0.50 N m")
    bar = operator.get_by_test_id("force").locator("b")
    expect(bar).to_have_attribute("data-level", "near")
    expect(unmeasured.first).to_be_visible()


def test_a_policy_is_frozen_seen_to_be_and_released(operator, stage):
    stage.actor.phase = "running"
    operator.get_by_test_id("freeze").get_by_text("Freeze policy").click()
    expect(operator.get_by_test_id("freeze")).to_have_attribute("aria-pressed", "true")
    told = "The episode runs. The policy is frozen at v184."
    expect(operator.get_by_test_id("prompt-text")).to_have_text(told)
    operator.get_by_test_id("freeze").get_by_text("Release v184").click()
    expect(operator.get_by_test_id("freeze")).to_have_attribute("aria-pressed", "false")
    assert not stage.actor.frozen


def test_an_evaluation_is_shown_and_can_be_ended_early(operator, stage):
    found = operator.get_by_test_id("evaluation")
    expect(found).to_have_text("v181: 5 successes in 7 of 10 trials, 36\u201392 % (95 %)")
    operator.get_by_test_id("evaluate-count").fill("12")
    operator.get_by_test_id("evaluate").click()
    wait_for(lambda: stage.actor.trials == 12)
    expect(operator.get_by_test_id("evaluate-count")).to_be_disabled()
    operator.get_by_test_id("evaluate").get_by_text("End trials").click()
    wait_for(lambda: stage.actor.trials == 0)
    expect(operator.get_by_test_id("evaluate")).to_have_text("Evaluate")


def test_a_second_operator_asks_and_is_granted(operator, open_page):
    other = open_page("Bob")
    other.wait_for_function("() => window.consoleProbe.state().operator.holder !== null")
    expect(other.get_by_test_id("success")).to_be_disabled()
    expect(other.get_by_test_id("stop")).to_be_enabled()
    other.get_by_test_id("operator-ask").click()
    operator.get_by_test_id("grant").click()
    other.get_by_test_id("operator-release").wait_for()
    operator.get_by_test_id("operator-ask").wait_for()
    other.get_by_test_id("operator-release").click()


def test_a_stale_camera_says_so_within_half_a_second(operator, stage):
    operator.wait_for_function(
        "() => document.querySelector('[data-testid=camera-0]').dataset.badge === ''"
    )
    stage.camera.stopped = True
    try:
        operator.wait_for_function(
            "() => document.querySelector('[data-testid=camera-0]').dataset.badge === 'stale'",
            timeout=1000,
        )
    finally:
        stage.camera.stopped = False


def test_a_camera_is_shown_as_the_policy_sees_it(operator):
    size = """() => { const it = document.querySelector('[data-testid=camera-0] canvas');
                      return [it.width, it.height]; }"""
    operator.wait_for_function(f"() => ({size})()[0] === 320")
    operator.get_by_test_id("camera-0-seen").click()
    operator.wait_for_function(f"() => ({size})()[0] === 84")
    operator.wait_for_function(f"() => ({size})()[1] === 84")
    shown = """() => {
      const it = document.querySelector('[data-testid=camera-0] canvas');
      const all = it.getContext('2d').getImageData(0, 0, 84, 84).data;
      return [...all].filter((_, i) => i % 4 === 0 && all[i] !== all[i + 1]).length; }"""
    operator.wait_for_function(f"() => ({shown})() === 0")  # grey, as the policy sees it
    expect(operator.get_by_test_id("camera-0-seen")).to_contain_text("84 \u00d7 84")
    operator.get_by_test_id("camera-0-seen").click()
    operator.wait_for_function(f"() => ({size})()[0] === 320")


def test_the_newest_action_is_drawn_beside_what_the_policy_asks(operator, stage):
    before, stage.actor.segment = stage.actor.segment, "policy"
    operator.get_by_test_id("action").wait_for()
    operator.wait_for_function("() => window.consoleProbe.state().actor.who === 'policy'")
    colours = """() => {
      const it = document.querySelector('[data-testid=action]');
      const data = it.getContext('2d').getImageData(0, 0, it.width, it.height).data;
      const has = (r, g, b) => [...Array(data.length / 4).keys()].some((i) =>
        data[4 * i] === r && data[4 * i + 1] === g && data[4 * i + 2] === b);
      return [has(0x56, 0xb4, 0xe9), has(0xe6, 0x9f, 0x00)]; }"""
    alone = f"() => {{ const [asked, done] = ({colours})(); return asked && !done; }}"
    operator.wait_for_function(alone)  # nobody helps
    stage.actor.segment = "human"
    try:
        operator.wait_for_function(f"() => ({colours})().every((seen) => seen)")
    finally:
        stage.actor.segment = before
    title = "the policy asks: x 0.70, y 0.30, z -0.40, gripper 1.00"
    expect(operator.get_by_test_id("action")).to_have_attribute("title", title)


def test_the_page_shows_what_the_learner_tells(operator):
    """Tests told losses by names that no learner has, and the page showed any."""
    expect(operator.get_by_test_id("metrics")).to_contain_text("critic loss 0.0213")
    shown = operator.get_by_test_id("metrics").inner_text().replace("\n", " ")
    for told in (
        "success alone 55 %",
        "time to success 6.2 s",
        "prior steps 3,630",
        "mean Q 0.630",
    ):
        assert told in shown


def test_everything_fits_a_small_screen_and_every_control_can_be_found(operator):
    inside = operator.evaluate(
        """() => [...document.querySelectorAll('button, select, input')]
          .filter((one) => one.offsetParent && !one.closest('dialog'))
          .map((one) => [one.dataset.testid, one.getBoundingClientRect()])
          .filter(([name, box]) => !name || box.right > innerWidth + 1 || box.width < 8)
          .map(([name]) => name)"""
    )
    assert inside == []
    cut = operator.evaluate(
        """() => [...document.querySelectorAll('.column, .row, .labels')]
          .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1)
          .map((one) => one.className)"""
    )
    assert cut == []
    assert operator.evaluate("() => document.documentElement.scrollHeight") <= SIZE["height"]


def test_the_review_page_relabels_an_episode(operator, stage):
    stage.actor.phase, stage.actor.episode = "running", 140
    folder = stage.folder / "console" / f"{stage.actor.session}_140"
    wait_for(lambda: list(folder.glob("*.jpg")))
    wait_for(lambda: len((folder / "timeline.jsonl").read_text().splitlines()) > 4)
    operator.goto(stage.base + "/review")
    operator.get_by_test_id(f"episode-{stage.actor.session}_140").click()
    # The page that labels is the operator; on this one nobody drives, so it asks for the lock.
    operator.get_by_test_id("film").locator("img").first.wait_for()
    operator.get_by_test_id("reason").fill("it slipped")
    operator.get_by_test_id("relabel-fail").click()
    wait_for(lambda: [one["do"] for one in stage.actor.commands[-1:]] == ["relabel"])
    correction = stage.actor.commands[-1]["correction"]
    assert correction["episode"] == 140
    assert correction["kind"] == "fail"
    assert correction["value"] == "it slipped"
    operator.get_by_test_id("history").get_by_text("fail").wait_for()
    expect(operator.get_by_test_id("history")).to_contain_text("it slipped")


def test_a_killed_console_is_told_on_the_page(open_page, stage):
    page = open_page("Cleo")
    page.evaluate("() => { window.WebSocket = class { constructor() { this.readyState = 3; } }; }")
    stage.running.drop_sockets()
    page.get_by_test_id("lost").wait_for()
    assert stage.status.safety is not None
    stage.ask(Condition.HOLD)


def test_a_killed_console_is_told_on_the_review_page(open_page, stage):
    page = open_page("Dora")
    page.goto(stage.base + "/review")
    page.wait_for_function(
        "() => document.querySelector('[data-testid=authority-who]').textContent !== ''"
    )
    expect(page.get_by_test_id("safety")).not_to_have_text("connecting")  # it has heard of a robot
    expect(page.get_by_test_id("lost")).to_be_hidden()
    page.evaluate("() => { window.WebSocket = class { constructor() { this.readyState = 3; } }; }")
    stage.running.drop_sockets()
    page.get_by_test_id("lost").wait_for()
    expect(page.get_by_test_id("safety")).to_have_text("unknown")


def hip(stage):
    return stage.console.view.snapshot(time.monotonic())["joints"][0]["q"]


def test_a_gamepad_at_the_robot_leads_while_the_operator_s_page_is_open(chromium, tmp_path):
    name, kernel = new_name(), Kernel(tmp_path / "event0")
    with contextlib.ExitStack() as stack:
        status = stack.enter_context(robot_process(name))
        gamepad = open_device(f"gamepad:{kernel.path}")
        stage = Stage(name, status, tmp_path / "run", stack, gamepad)
        page = stack.enter_context(
            contextlib.closing(chromium.new_context(viewport=SIZE))
        ).new_page()
        page.goto(stage.new_url())
        page.wait_for_function("() => window.consoleProbe && window.consoleProbe.state()")
        become_operator(page)
        expect(page.get_by_test_id("drive-hint")).to_contain_text("The gamepad at the robot")
        expect(page.get_by_test_id("device")).to_be_disabled()
        kernel.write(event(EV_ABS, 1, -32768), event(EV_KEY, KEYS["BTN_TR"], 1))
        wait_for(lambda: stage.teleoperator.intent and stage.teleoperator.intent["clutch"])
        assert stage.teleoperator.intent["axes"][0] == 1.0
        end = time.monotonic() + 10.0
        while stage.status.safety is not S.HUMAN:
            assert time.monotonic() < end, stage.status.newest()
            stage.in_policy()
            for value in (1, 0):
                kernel.write(event(EV_KEY, KEYS["BTN_TL"], value))
            with contextlib.suppress(AssertionError):
                stage.until(S.HUMAN, 1.0)
        page.close()
        stage.until(S.HOLD)
