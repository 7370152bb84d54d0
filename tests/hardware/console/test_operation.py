"""The console on a logical clock, without a web server: dead-man, lock, replies, a full disk."""

from importlib.resources import files

import pytest

from hardware.console.access import Doorkeeper
from hardware.console.operation import Console
from hardware.console.robot_view import RobotView
from hardware.console.stick import StickStream
from hardware.console.teleop_thread import TeleopThread
from hardware.console.timeline import TimelineReader, TimelineRecorder
from hardware.teleop.actor_socket import Answer, NoActorError
from hardware.teleop.input_device import EV_ABS, EV_KEY, KEYS, open_device
from hardware.teleop.intervention import SegmentKind
from robot_rl.training.online import CONSOLE_NUMBERS
from tests.hardware.console.running import SimpleActor, new_name, wait_for
from tests.hardware.teleop.test_input_device import Kernel, event


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class ToldActor:
    """An actor that a test lets answer."""

    def __init__(self):
        self.snapshot = {}
        self.connected, self.age = True, 0.1
        self.sent, self.answers = [], []

    def send(self, do, operator, **arguments):
        if not self.connected:
            raise NoActorError("no actor is running")
        self.sent.append((do, operator, arguments))
        return arguments.get("id", f"sent {len(self.sent)}")

    def poll(self):
        answers, self.answers = self.answers, []
        return answers


class ToldTeleoperator:
    """Remembers what it was told."""

    def __init__(self):
        self.intents, self.asked = [], []
        self.state = {"refusal": "", "segment": "policy"}

    def set_intent(self, intent, now):
        self.intents.append(intent)

    def take_over(self, now):
        self.asked.append("take_over")

    def give_back(self, now):
        self.asked.append("give_back")

    def rewind(self, seconds, now):
        self.asked.append(seconds)

    def mark(self, kind, now):
        self.asked.append(kind)
        self.state["segment"] = kind.value

    def forget_path(self):
        self.asked.append("forget_path")

    def tick(self, now):
        pass

    def status(self, now):
        return self.state

    def close(self):
        pass


class Desk:
    """A console with Ann as operator, and Bob."""

    def __init__(self, folder=None, stick=None):
        self.clock, self.actor, self.teleoperator = Clock(), ToldActor(), ToldTeleoperator()
        self.console = Console(
            RobotView(new_name()), self.actor, teleoperator=self.teleoperator, host_stick=stick,
            folder=folder, clock=self.clock,
        )  # fmt: skip
        door = Doorkeeper()
        self.ann, self.bob = door.client("", "Ann"), door.client("", "Bob")
        self.stream, self.sequence = StickStream("c"), 0
        self.replies = []
        self.do("acquire")
        assert self.replies.pop().code == 200

    def do(self, verb, client=None, **arguments):
        key = arguments.pop("id", f"{verb} {len(self.replies)} {self.clock.now}")
        message = {"id": key, "do": verb, **arguments}
        self.console.command(client or self.ann, message, self.replies.append)

    def stick(self, seconds=0.0, client=None, **changes):
        """Messages of a stick for a while, 20 per second."""
        fault = ""
        for _ in range(max(1, round(seconds / 0.05))):
            message = {"seq": self.sequence, "t": self.clock.now, "connection": "c",
                       "axes": [0.0] * 6, "clutch": True, **changes}  # fmt: skip
            fault = self.console.stick(client or self.ann, self.stream, message)
            self.sequence += 1
            self.clock.now += 0.05
            self.console.tick()
        return fault


@pytest.fixture
def desk():
    return Desk()


class TestDeadMan:
    def test_a_silent_page_is_gone_after_220_ms(self, desk):
        desk.stick()
        desk.clock.now += 0.16
        desk.console.tick()
        assert desk.teleoperator.intents[-1]["clutch"]
        desk.clock.now += 0.02
        desk.console.tick()
        assert desk.teleoperator.intents[-1] is None
        assert not desk.console.snapshot()["stick"]["present"]

    def test_it_is_told_once_that_nobody_is_there(self, desk):
        desk.stick()
        for _ in range(20):
            desk.clock.now += 0.1
            desk.console.tick()
        assert desk.teleoperator.intents.count(None) == 1

    def test_a_stuck_axis_opens_the_clutch_until_it_moves(self, desk):
        desk.stick(5.5, axes=[0.4, 0, 0, 0, 0, 0])
        assert not desk.teleoperator.intents[-1]["clutch"]
        assert desk.console.snapshot()["stick"]["stuck"] == "x"
        desk.stick(axes=[0.41, 0, 0, 0, 0, 0])
        assert desk.teleoperator.intents[-1]["clutch"]

    def test_another_operator_and_a_stop_let_go_of_the_stick(self, desk):
        desk.stick()
        desk.do("stop", desk.bob)
        assert desk.teleoperator.intents[-1] is None
        desk.stick()
        desk.do("ask", desk.bob)
        desk.do("grant")
        assert desk.teleoperator.intents[-1] is None
        assert desk.stick() == "only the operator's stick counts"

    def test_one_who_drives_is_not_replaced_by_one_who_asks(self, desk):
        desk.stick()
        desk.do("ask", desk.bob)
        desk.stick(12.0)
        assert desk.console.lock.holder(desk.clock.now) is desk.ann
        desk.stick(10.2, clutch=False)
        assert desk.console.lock.holder(desk.clock.now) is desk.bob


class TestReplies:
    def test_an_actor_that_does_not_answer_is_told_after_three_seconds(self, desk):
        desk.do("success")
        desk.stick(2.9)
        assert desk.replies == []
        desk.stick(0.3)
        (reply,) = desk.replies
        assert reply.code == 504

    def test_a_command_that_comes_by_two_ways_is_done_once_and_both_hear_how_it_ended(self, desk):
        """The second was told "done before" at once, though the first then failed."""
        for _ in range(2):
            desk.do("success", id="one")
        assert desk.replies == []
        desk.actor.answers = [Answer("sent 1", False, "no step")]
        desk.stick()
        assert [(one.code, one.why) for one in desk.replies] == [(422, "no step")] * 2
        assert len(desk.actor.sent) == 1
        desk.do("success", id="one")
        assert len(desk.actor.sent) == 2, "what failed may be tried again"

    def test_without_an_actor_the_same_command_may_be_tried_again(self, desk):
        desk.actor.connected = False
        desk.do("success", id="one")
        assert desk.replies[-1].code == 503
        desk.actor.connected = True
        desk.do("success", id="one")
        desk.actor.answers = [Answer("sent 1", True, "")]
        desk.stick()
        assert desk.replies[-1].code == 200
        desk.do("success", id="one")
        assert desk.replies[-1] == desk.replies[-2]
        assert len(desk.actor.sent) == 1

    def test_a_press_that_is_too_old_to_be_believed_counts_as_now(self, desk):
        desk.do("success", t=desk.clock.now - 60.0)
        desk.do("fail", t=desk.clock.now - 0.5)
        at = [arguments["t"] for _, _, arguments in desk.actor.sent]
        assert at[1] - at[0] == pytest.approx(-0.5, abs=0.05)

    def test_a_refusal_of_the_teleoperator_is_the_reply(self, desk):
        desk.stick()
        desk.do("take_over", t=desk.clock.now)
        desk.stick()
        assert desk.replies == []
        desk.teleoperator.state["refusal"] = "the hand is 0.4 m away"
        desk.stick()
        (reply,) = desk.replies
        assert (reply.code, reply.why) == (422, "the hand is 0.4 m away")

    def test_a_command_of_the_robot_without_one_is_told_at_once(self, desk):
        desk.do("hold")
        assert desk.replies[-1].code == 503
        assert "could not be asked" in desk.replies[-1].why


def test_the_part_of_an_intervention_is_handed_on_once(desk):
    for kind in ("policy", "human", "human", "recovery", "policy", "recovery"):
        desk.teleoperator.state["segment"] = kind
        desk.stick()
    sent = [arguments["kind"] for do, _, arguments in desk.actor.sent if do == "segment"]
    assert sent == ["human", "recovery", "recovery"]


def test_a_key_marks_the_part_with_the_teleoperator_who_tells_the_actor(desk):
    desk.teleoperator.state["segment"] = "human"
    desk.stick()
    desk.do("segment", kind="recovery", t=desk.clock.now)
    desk.stick()
    assert desk.teleoperator.asked == [SegmentKind.recovery]
    assert desk.replies[-1].code == 200
    assert [one[2]["kind"] for one in desk.actor.sent] == ["human", "recovery"]


def test_interventions_are_logged_when_they_are_over_with_the_wait_before_them(desk):
    one = {"requested": 99.0, "granted": 99.5, "ended": None, "interrupted": False}
    desk.teleoperator.state["intervention"] = one
    desk.stick()
    desk.teleoperator.state["intervention"] = {**one, "ended": 101.5}
    desk.stick(0.2)
    (told,) = [line for line in desk.console.log.newest if line["action"] == "intervention"]
    assert (told["waited"], told["seconds"], told["interrupted"]) == (0.5, 2.0, False)
    assert desk.console.log.summary.endswith("1 intervention (2 s led by a person)")
    assert "1 acquire" in desk.console.log.summary


def test_a_disk_that_is_full_ends_the_timeline_and_nothing_else(tmp_path):
    desk = Desk(tmp_path)
    (tmp_path / "console").write_text("a file where the folder of the episodes should be")
    desk.actor.snapshot = {"session": "a", "episode": 1, "phase": "running"}
    desk.stick(1.0)
    assert desk.console.snapshot()["stick"]["present"]
    told = [one for one in desk.console.snapshot()["log"] if one["action"] == "timeline"]
    assert len(told) == 1
    assert "episodes are not recorded" in told[0]["why"]
    desk.console.close()


def test_a_label_belongs_to_the_episode_that_the_actor_names(tmp_path):
    desk = Desk(tmp_path)
    desk.actor.snapshot = {"session": "a", "episode": 3, "phase": "running"}
    desk.stick(0.3)
    desk.do("success", id="one")
    desk.actor.snapshot = {"session": "a", "episode": 4, "phase": "running"}
    desk.actor.answers = [Answer("sent 1", True, "", "a_3")]
    desk.stick(0.3)
    assert desk.console.snapshot()["label"]["episode"] == "a_3"
    labels = {name: TimelineReader(tmp_path).timeline(name)["labels"] for name in ("a_3", "a_4")}
    assert [one["kind"] for one in labels["a_3"]] == ["success"]
    assert labels["a_4"] == []
    desk.console.close()


def test_a_label_that_the_disk_refuses_is_answered_all_the_same(tmp_path, monkeypatch):
    desk = Desk(tmp_path)
    desk.actor.snapshot = {"session": "a", "episode": 3, "phase": "running"}
    desk.stick(0.3)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TimelineRecorder, "label", refuse)
    desk.do("success", id="one")
    desk.actor.answers = [Answer("sent 1", True, "", "a_3")]
    desk.stick()
    assert [one.code for one in desk.replies] == [200]
    assert desk.console.snapshot()["log"][-1]["action"] == "timeline"
    desk.console.close()


def test_nothing_is_recorded_of_an_actor_that_has_gone(tmp_path):
    desk = Desk(tmp_path)
    desk.actor.snapshot = {"session": "a", "episode": 3, "phase": "running"}
    desk.stick(1.0)
    for gone in ({"connected": False}, {"connected": True, "age": 5.0}):
        vars(desk.actor).update(gone)
        before = len(TimelineReader(tmp_path).timeline("a_3")["rows"])
        desk.stick(2.0)
        assert len(TimelineReader(tmp_path).timeline("a_3")["rows"]) == before
    desk.console.close()


def test_a_wish_of_the_learner_may_take_as_long_as_the_link_waits_for_it(desk):
    desk.do("rollback", checkpoint="last")
    desk.stick(9.0)
    assert desk.replies == []
    desk.actor.answers = [Answer("sent 1", False, "the learner cannot be reached")]
    desk.stick()
    assert desk.replies[-1].why == "the learner cannot be reached"


def test_a_rewind_does_not_lead_back_into_the_episode_before(desk):
    """It led on through the reset, to where the robot was before the world began anew."""
    for phase, episode in (
        ("resetting", 1), ("running", 2), ("running", 2), ("resetting", 2), ("running", 3),
    ):  # fmt: skip
        desk.actor.snapshot = {"phase": phase, "session": "s", "episode": episode}
        desk.stick(0.2)
    assert desk.teleoperator.asked == ["forget_path"] * 2


def test_a_tick_that_fails_is_told_and_the_next_one_is_tried():
    fails, ticks = [True], []

    class Sometimes(ToldTeleoperator):
        def tick(self, now):
            ticks.append(now)
            if fails[0]:
                raise ZeroDivisionError("an attitude of length 0")

    thread = TeleopThread(Sometimes())
    try:
        wait_for(lambda: len(ticks) > 3)
        assert thread.status(0.0)["refusal"] == "teleoperation fails: an attitude of length 0"
        fails[0] = False
        wait_for(lambda: thread.status(0.0)["refusal"] == "")
    finally:
        thread.close()


def press(desk, kernel, button):
    kernel.write(event(EV_KEY, KEYS[button], 1), event(EV_KEY, KEYS[button], 0))
    desk.stick()


class TestStickOfThisComputer:
    """A gamepad's bytes as the kernel writes them, beside the operator's page."""

    @pytest.fixture
    def kernel(self, tmp_path):
        return Kernel(tmp_path / "event0")

    @pytest.fixture
    def desk(self, kernel):
        return Desk(stick=open_device(f"gamepad:{kernel.path}"))

    def test_it_leads_in_place_of_the_page_s_stick(self, desk, kernel):
        kernel.write(event(EV_ABS, 1, -32768), event(EV_KEY, KEYS["BTN_TR"], 1))
        desk.stick(0.1, axes=[0, 1.0, 0, 0, 0, 0], clutch=False)
        intent = desk.teleoperator.intents[-1]
        assert intent["axes"] == [1.0, 0, 0, 0, 0, 0]
        assert intent["clutch"]
        assert intent["speed"] == desk.console.settings.speed
        assert desk.console.snapshot()["stick"]["device"] == "gamepad"

    def test_without_the_operator_s_page_it_moves_nothing(self, desk, kernel):
        kernel.write(event(EV_KEY, KEYS["BTN_TR"], 1))
        desk.stick(0.1)
        assert desk.teleoperator.intents[-1]["clutch"]
        for _ in range(10):
            desk.clock.now += 0.05
            desk.console.tick()
        assert desk.teleoperator.intents[-1] is None
        kernel.write(event(EV_KEY, KEYS["BTN_TL"], 1))
        desk.console.tick()
        assert desk.teleoperator.asked == [], "nor does a button ask for the robot"

    def test_its_buttons_are_the_operator_s_commands(self, desk, kernel):
        desk.stick()
        for button in ("BTN_TL", "BTN_Y", "BTN_X"):
            press(desk, kernel, button)
        assert desk.teleoperator.asked == ["take_over"]
        told = [(do, more.get("what")) for do, _, more in desk.actor.sent]
        assert told == [("success", None), ("discard", "episode")]

    def test_one_button_takes_over_and_gives_back(self, desk, kernel):
        desk.stick()
        press(desk, kernel, "BTN_TL")
        desk.teleoperator.state["leads"] = True
        press(desk, kernel, "BTN_TL")
        assert desk.teleoperator.asked == ["take_over", "give_back"]

    def test_one_button_marks_recovery_and_then_correction(self, desk, kernel):
        desk.stick()
        for _ in range(2):
            press(desk, kernel, "BTN_START")
        assert desk.teleoperator.asked == [SegmentKind.recovery, SegmentKind.correction]

    def test_a_refused_button_is_in_the_log(self, desk, kernel):
        desk.stick()
        desk.actor.connected = False
        press(desk, kernel, "BTN_Y")
        assert "no actor is running" in desk.console.snapshot()["log"][-1]["why"]

    def test_an_unplugged_one_lets_go_and_pages_count_again(self, desk, kernel):
        kernel.write(event(EV_KEY, KEYS["BTN_TR"], 1))
        desk.stick(0.1)
        kernel.unplug()
        desk.stick(axes=[0] * 6)
        assert None in desk.teleoperator.intents
        assert "is gone" in desk.console.snapshot()["log"][-1]["why"]
        desk.stick(axes=[0, 1.0, 0, 0, 0, 0])
        assert desk.teleoperator.intents[-1]["axes"] == [0, 1.0, 0, 0, 0, 0]


def test_learner_fake_and_page_agree_about_the_numbers_of_a_learner():
    """The fake told losses by names of its own, which no learner ever sent."""
    actor = SimpleActor(new_name())
    told = actor.snapshot(0.0)
    actor.close()
    assert {"q", *told["learner"]} == set(CONSOLE_NUMBERS)
    page = (files("hardware.console") / "static" / "app.js").read_text()
    for name in CONSOLE_NUMBERS:
        owner = "actor" if name == "q" else "learner"
        assert f"{owner}.{name}" in page or f'["{name}"' in page
