"""Labels that a learner stored beside the keys that were pressed: every difference is found."""

import subprocess
import sys

import numpy as np
import pytest

from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame
from scripts.bench.learning_endurance import connections
from scripts.bench.pressed_keys import LabelCheck, Press

PERIOD = 0.1


def episode(number: int, begin: float, steps: int, *, success: bool = False) -> list[Frame]:
    """Frames of 0.1 s each; the last step ends it."""
    frames = [
        Frame(
            session="s", episode=number, index=index, obs={"state": np.zeros(2, np.float32)},
            action=np.zeros(1, np.float32), stamp=begin + PERIOD * index, reward=0.25,
            truncated=index == steps - 1, success=success and index == steps - 1,
        )
        for index in range(steps)
    ]  # fmt: skip
    last = Frame(
        session="s", episode=number, index=steps, obs={"state": np.zeros(2, np.float32)},
        stamp=begin + PERIOD * steps,
    )  # fmt: skip
    return [*frames, last]


def label(kind: str, time: float, index: int = 0, *, name: str = "a", text: str = "") -> Correction:
    value = float(kind == "success")
    return Correction(
        id=name, session="s", episode=0, kind=kind, index=index, value=value, time=time, text=text
    )


def wrong(labels: list[Correction], presses: list[Press], *, success: bool = False) -> list[str]:
    check = LabelCheck()
    for entry in [*episode(0, 100.0, 10, success=success), *episode(1, 102.0, 10), *labels]:
        check.take(entry)
    return check.compare(presses)["wrong"]


def test_labels_of_the_steps_that_the_keys_meant_are_right():
    """0.3 s before 100.75 step 4 was under way; the key that comes late means the last step."""
    assert wrong([label("fail", 100.75, 4)], [Press("fail", 100.75, 200)]) == []
    assert wrong([label("success", 101.5, 9)], [Press("success", 101.52, 200)], success=True) == []
    given = [label("fail", 102.1, 9), label("undo", 104.0, name="b", text="a")]
    assert wrong(given, [Press("fail", 102.1, 200), Press("undo", 104.0, 200)]) == []
    assert wrong([], [Press("discard", 100.5, 503)]) == []


@pytest.mark.parametrize(
    ("labels", "presses", "said"),
    [
        ([], [Press("fail", 100.75, 200)], "confirmed, and not stored"),
        ([label("fail", 100.75, 4)], [], "pressed by nobody"),
        (
            [label("fail", 100.75, 4), label("fail", 100.75, 4, name="b")],
            [Press("fail", 100.75, 200)],
            "pressed by nobody",
        ),
        (
            [label("fail", 100.75, 7)],
            [Press("fail", 100.75, 200)],
            "stored for step 7 of episode 0, and step 4 of episode 0 was meant",
        ),
        (
            [label("discard", 102.9)],
            [Press("discard", 102.9, 200)],
            "of episode 0, and step 6 of episode 1 was meant",
        ),
        (
            [label("fail", 100.75, 4), label("undo", 101.0, name="b", text="c")],
            [Press("fail", 100.75, 200), Press("undo", 101.0, 200)],
            "of another label than the one before it",
        ),
    ],
    ids=["lost", "invented", "twice", "misplaced", "another episode", "another label undone"],
)
def test_a_label_that_is_not_what_was_pressed_is_told(labels, presses, said):
    assert any(said in one for one in wrong(labels, presses))


def test_a_step_that_a_label_did_not_reach_is_told(monkeypatch):
    monkeypatch.setattr("robot_rl.link.transitions.judge", lambda index, original, labels: original)
    told = wrong([label("fail", 100.75, 4)], [Press("fail", 100.75, 200)])
    assert len(told) == 6  # step 4 does not end the episode so, and 5 to 9 are not void
    assert "step 4 of episode 0: (0.25, False, False, True, False) where the keys say" in told[0]


def test_a_connection_of_another_process_is_cut():
    serves = (
        "import socket\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "own = socket.create_connection(listener.getsockname())\n"
        "other, _ = listener.accept()\n"
        "print('ready', flush=True)\n"
        "print(own.recv(1), other.recv(1))\n"
    )
    with subprocess.Popen([sys.executable, "-c", serves], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(connections(process.pid)) == 2  # the listener is none
        connections(process.pid, cut=True)
        assert process.stdout.readline() == b"b'' b''\n"
    assert connections(process.pid) == []
    assert connections(None) == []
