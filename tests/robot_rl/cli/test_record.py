"""`robot-rl record` and `robot-rl replay`: what a robot did, kept, and done again."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hardware.recording.bag import Bag
from hardware.recording.repair import repair
from hardware.ros.compat import inspect_environment, message
from hardware.ros.session import RosSession
from robot_rl.core.process import clean_environ
from tests.hardware.recording.edited import edited
from tests.robot_rl.cli.standing_policy import write_standing_policy

pytestmark = [
    pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed"),
]
PATIENT = 100.0
"""Nobody promises a test machine that a policy is on time."""

WITHOUT_ROS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "rclpy", "std_msgs", "sensor_msgs", "mujoco"}:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Blocked())
from pathlib import Path
from hardware.recording.bag import Bag
from hardware.recording.replay import Comparison
from hardware.recording.replay import Replay
from policies.bundle import load_bundle

runner = load_bundle(sys.argv[2])
comparison = Comparison(runner.spec)
with Bag(Path(sys.argv[1])) as bag:
    for step in Replay(bag, runner).run():
        comparison.add(step)
assert comparison.same, comparison
"""


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return importlib.import_module("robot_rl.cli.deployment.recording")


@pytest.fixture
def talking(domain) -> Iterator[Callable[[], None]]:
    """Somebody who says something on a robot's topic whenever asked to."""
    session = RosSession("driver", namespace="/go2", domain=domain)
    kind = message("sensor_msgs", "JointState")
    publisher = session.publisher("joint_states", kind)
    yield lambda: publisher.publish(kind())
    session.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_deployment_is_recorded_and_replayed_to_the_last_bit(command, here, go2_bundle, domain):
    answer = command(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "seconds=1.5",
        "record=bag",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    answer = command("replay", "bag=bag", f"bundle={go2_bundle}", "out=out")
    assert answer.code == 0, answer
    assert "the same: no difference above 1e-06" in answer.out
    assert "largest difference of action: 0 in all 12" in answer.out
    told, rows = answer.out.split()[0], (here / "out" / "steps.csv").read_text().splitlines()
    assert "not recorded" not in answer.out
    assert "0 episodes" not in answer.out, "the recorder was there before the policy began"
    assert 30 <= int(told) == len(rows) - 1
    columns = rows[0].split(",")
    assert {"time", "action/FL_hip_joint", "replayed/action/FL_hip_joint"} <= {*columns}
    assert "observation/joint_position[11]" in columns
    assert (here / "out" / "replay.png").stat().st_size > 10_000
    with Bag(here / "bag") as bag:
        assert bag.topics["/go2/safety/state"] > 0
        assert bag.topics["/go2/joint_command"] > 0
    _says_that_nothing_can_be_replayed(command, here, go2_bundle)
    answer = command("replay", "bag=bag", f"bundle={go2_bundle}", "out=bag/bag.mcap/out")
    assert answer.code == 2
    assert "cannot write the replay bag/bag.mcap/out: a part of the path is a file" in answer.err
    _needs_no_ros(here, go2_bundle)
    _refuses_another_policy(command, write_standing_policy(here / "b", by="x"))


def _says_that_nothing_can_be_replayed(command: Any, here: Path, bundle: Path) -> None:
    def without(topic: str, number: int, raw: bytes) -> bytes | None:
        """Of all IMU samples one that nobody used."""
        if topic != "imu/data":
            return raw
        return raw[:4] + bytes(8) + raw[12:] if number == 0 else None

    edited(here / "bag", without)
    answer = command("replay", "bag=edited", f"bundle={bundle}", "out=none")
    assert answer.code == 1, answer
    assert "steps used a message that was not recorded" in answer.out
    assert "NOTHING could be compared: start the recorder before the policy" in answer.out
    assert [path.name for path in (here / "none").iterdir()] == ["steps.csv"]


def _refuses_another_policy(command: Any, other: Path) -> None:
    answer = command("replay", "bag=bag", f"bundle={other}")
    assert answer.code == 2
    assert "is a recording of another policy: its bundle has the SHA-256" in answer.err
    answer = command("replay", "bag=bag", f"bundle={other}", "force=true")
    assert answer.code == 0


def _needs_no_ros(here: Path, bundle: Path) -> None:
    environ = clean_environ({"PYTHONPATH": os.pathsep.join(sys.path)})
    arguments = [sys.executable, "-c", WITHOUT_ROS, str(here / "bag"), str(bundle)]
    subprocess.run(arguments, check=True, env=environ)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_bag_whole(recording, here, go2_bundle, domain, talking, number):
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        talking()
        if "joint_states" in line and "recorded" not in line:
            os.kill(os.getpid(), number)

    what = recording.Recording(
        bundle=str(go2_bundle), namespace="/go2", domain=domain, folder=Path("bag")
    )
    before = signal.getsignal(number)
    recording.record(what, ended_by=[number], say=say)
    assert signal.getsignal(number) is before
    assert said[-1].endswith("recorded into bag")
    with Bag(here / "bag") as bag:
        assert bag.topics["/go2/joint_states"] >= 1
        assert bag.about["robot"] == "go2"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_recorder_that_was_killed_leaves_a_bag_that_can_be_repaired(
    refused, here, go2_bundle, domain, talking
):
    arguments = [f"bundle={go2_bundle}", f"domain={domain}", "out=bag"]
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli", "record", *arguments],
        env=clean_environ(), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    file = here / "bag" / "bag.mcap"
    try:
        sizes = {0}
        while len(sizes) < 5:  # handed over some times
            assert process.poll() is None
            talking()
            sizes.add(file.stat().st_size if file.exists() else 0)
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert "did not end in order" in refused("replay", "bag=bag", f"bundle={go2_bundle}")
    saved = repair(here / "bag")
    assert not saved.torn
    with Bag(saved.folder) as bag:
        assert bag.topics["/go2/joint_states"] == saved.messages > 10
        assert bag.about["robot"] == "go2"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_recorder_whose_reader_has_gone_goes_on_and_ends_the_bag_whole(
    here, go2_bundle, domain, talking
):
    """As behind `| head -1`, or in a terminal that was closed."""
    arguments = [f"bundle={go2_bundle}", f"domain={domain}", "out=bag"]
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli", "record", *arguments],
        env=clean_environ(), stdout=subprocess.PIPE,
    )  # fmt: skip
    file = here / "bag" / "bag.mcap"
    assert process.stdout is not None
    try:
        process.stdout.readline()
        process.stdout.close()
        end = time.monotonic() + 2.5  # it says a line every second
        sizes = {0}
        while time.monotonic() < end or len(sizes) < 3:
            assert process.poll() is None
            talking()
            if time.monotonic() >= end:  # lines were refused, and it still writes
                sizes.add(file.stat().st_size if file.exists() else 0)
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    with Bag(here / "bag") as bag:
        assert bag.topics["/go2/joint_states"] > 10


@pytest.mark.slow
def test_silence_leaves_no_bag(refused, here, go2_bundle, domain):
    said = refused("record", f"bundle={go2_bundle}", f"domain={domain}", "out=bag", "seconds=0.2")
    assert (
        f"nothing came below /go2: is the robot running, in the same ROS domain (here {domain}"
        in (said)
    )
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        ("record", [], "which policy? bundle=runs/<run>/bundle"),
        ("record", ["bundle=x", "seconds=-1"], "seconds must be >= 0, got -1"),
        ("record", ["bundle=x", "speed=3"], "option 'speed' is unknown"),
        ("record", ["bundle=x", "driver=twin"], "option 'driver' is unknown"),
        ("record", ["bundle=nowhere"], "nowhere/provenance.json does not say"),
        ("record", ["repair"], "repair takes one folder, got none"),
        ("record", ["repair", "nowhere"], "nowhere is not a folder"),
        ("replay", [], "which recording? bag="),
        ("replay", ["bag=x"], "which policy? bundle=runs/<run>/bundle"),
        ("replay", ["bag=x", "bundle=nowhere"], "nowhere is not a policy bundle"),
        ("replay", ["bag=x", "bundle=y", "mode=shadow"], "option 'mode' is unknown"),
        ("deploy", ["bundle=x", "record=."], "record=. exists already; name a new folder"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(refused, here, script, arguments, told):
    assert told in refused(script, *arguments)


def test_folder_that_is_no_bag_is_refused_in_a_sentence(refused, here, go2_bundle):
    told = "nowhere does not exist; give the folder of a bag"
    assert told in refused("replay", "bag=nowhere", f"bundle={go2_bundle}")
    assert "is not a bag: it has no metadata.yaml" in refused(
        "replay", "bag=.", f"bundle={go2_bundle}"
    )


@pytest.mark.parametrize("script", ["record", "replay"])
def test_help_fits_a_terminal(command, script):
    answer = command(script, "--help")
    assert answer.code == 0
    assert f"usage: robot-rl {script}" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 100
