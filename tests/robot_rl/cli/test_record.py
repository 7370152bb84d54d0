"""`robot-rl record` and `robot-rl replay`: what a robot did, kept, and done again."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.recording.bag import Bag
from hardware.recording.repair import repair
from hardware.ros.compat import message
from hardware.ros.session import RosSession
from robot_rl.cli.deployment.recording import ENDINGS, Recording, record, run_recorder
from robot_rl.core.process import clean_environ
from scripts.bench.deployment.scripted import write_standing_policy
from tests.hardware.recording.test_replay import edited
from tests.robot_rl.cli.deployments import WITHOUT_ROS, left_behind
from tests.robot_rl.cli.tiny_run import output_of

pytestmark = [
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.timeout(400),
]
PATIENT = 100.0
"""A test machine does not promise that a policy is on time."""


@pytest.fixture
def talking(domain) -> Iterator[Callable[[], None]]:
    """Somebody who says something on a robot's topic whenever asked to."""
    session = RosSession("driver", namespace="/go2", domain=domain)
    kind = message("sensor_msgs", "JointState")
    publisher = session.publisher("joint_states", kind)
    yield lambda: publisher.publish(kind())
    session.close()


@pytest.fixture(scope="class")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="class")
def deployed(folder, go2_bundle, domain) -> list[str]:
    said = output_of(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}",
        "seconds=1.5", f"record={folder / 'bag'}",
    )  # fmt: skip
    return said.splitlines()


@pytest.fixture
def again(command, deployed, folder) -> Callable[..., Any]:
    """Replay the bag, or another one of the folder."""
    del deployed
    return lambda bundle, *more, bag="bag", exits=0: command(
        "replay", f"bag={folder / bag}", f"bundle={bundle}", *more, exits=exits
    )


@pytest.mark.slow
class TestDeployment:
    """A deployment from the command line that records itself, looked at from all sides."""

    def test_policy_stands_the_robot_and_everything_ends(self, deployed, folder, domain):
        told = deployed
        assert told[0].startswith("checking ")
        assert "hardware/robots/go2.yaml: tracking_error every joint 0.5" in told
        assert "robot process is up; arming" in told
        assert any(line.startswith("policy  ") for line in told)
        assert told[-1] == "stopping softly"
        assert left_behind(domain) == []
        with Bag(folder / "bag") as bag:
            assert bag.topics["/go2/safety/state"] > 0
            assert bag.topics["/go2/joint_command"] > 0

    def test_it_is_replayed_to_the_last_bit(self, again, folder, go2_bundle):
        answer = again(go2_bundle, f"out={folder / 'out'}")
        assert "the same: no difference above 1e-06" in answer.out
        assert "largest difference of action: 0 in all 12" in answer.out
        assert "not recorded" not in answer.out
        assert "0 episodes" not in answer.out, "the recorder was there before the policy began"
        rows = (folder / "out" / "steps.csv").read_text().splitlines()
        assert 30 <= int(answer.out.split()[0]) == len(rows) - 1
        columns = rows[0].split(",")
        assert {"time", "action/FL_hip_joint", "replayed/action/FL_hip_joint"} <= {*columns}
        assert "observation/joint_position[11]" in columns
        assert (folder / "out" / "replay.png").stat().st_size > 10_000
        answer = again(go2_bundle, f"out={folder / 'bag/bag.mcap/out'}", exits=2)
        assert "bag/bag.mcap/out: a part of the path is a file" in answer.err

    def test_without_the_messages_that_were_used_nothing_is_compared(
        self, again, folder, go2_bundle
    ):
        def without(topic: str, number: int, raw: bytes) -> bytes | None:
            """Of all IMU samples one that nobody used."""
            if topic != "imu/data":
                return raw
            return raw[:4] + bytes(8) + raw[12:] if number == 0 else None

        edited(folder / "bag", without)
        answer = again(go2_bundle, f"out={folder / 'none'}", bag="edited", exits=1)
        assert "steps used a message that was not recorded" in answer.out
        assert "NOTHING could be compared: start the recorder before the policy" in answer.out
        assert [path.name for path in (folder / "none").iterdir()] == ["steps.csv"]

    def test_another_policy_is_refused_unless_it_is_forced(self, again, folder):
        other = write_standing_policy(folder / "b", by="x")
        answer = again(other, exits=2)
        assert "is a recording of another policy: its bundle has the SHA-256" in answer.err
        again(other, "force=true")


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.full) for n in ENDINGS[1:])]
)
def test_signal_ends_the_bag_whole(here, go2_bundle, domain, talking, number):
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        talking()
        if "joint_states" in line and "recorded" not in line:
            os.kill(os.getpid(), number)

    what = Recording(bundle=str(go2_bundle), namespace="/go2", domain=domain, folder=Path("bag"))
    before = signal.getsignal(number)
    record(what, ended_by=[number], say=say)
    assert signal.getsignal(number) is before
    assert said[-1].endswith("recorded into bag")
    with Bag(here / "bag") as bag:
        assert bag.topics["/go2/joint_states"] >= 1
        assert bag.about["robot"] == "go2"


@pytest.mark.slow
def test_recorder_that_was_killed_leaves_a_bag_that_can_be_repaired(
    refused, here, go2_bundle, domain, talking
):
    what = Recording(bundle=str(go2_bundle), namespace="/go2", domain=domain, folder=here / "bag")
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=run_recorder, args=(what,))
    process.start()
    file = here / "bag" / "bag.mcap"
    try:
        sizes = {0}
        while len(sizes) < 5:  # handed over some times
            assert process.is_alive()
            talking()
            sizes.add(file.stat().st_size if file.exists() else 0)
            time.sleep(0.01)
    finally:
        process.kill()
        process.join()
    assert "did not end in order" in refused("replay", "bag=bag", f"bundle={go2_bundle}")
    saved = repair(here / "bag")
    assert not saved.torn
    with Bag(saved.folder) as bag:
        assert bag.topics["/go2/joint_states"] == saved.messages > 10
        assert bag.about["robot"] == "go2"


@pytest.mark.slow
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
        ("record", ["bundle=x", "driver=twin"], "option 'driver' is unknown"),
        ("record", ["bundle=nowhere"], "bundle 'nowhere' is not a folder"),
        ("record", ["repair"], "repair takes one folder, got none"),
        ("record", ["repair", "nowhere"], "nowhere is not a folder"),
        ("replay", [], "which recording? bag="),
        ("replay", ["bag=x"], "which policy? bundle=runs/<run>/bundle"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(refused, here, script, arguments, told):
    assert told in refused(script, *arguments)
