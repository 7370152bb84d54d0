"""Bags are written whole, and read or mended when their writer was killed; no ROS is needed."""

import os
import resource
import signal
from pathlib import Path
from typing import cast

import pytest
from rosbags.interfaces import ConnectionExtRosbag2, QosDurability, QosReliability
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore

from hardware.recording.bag import Bag, BagTopic, BagWriter, RecordingError
from hardware.recording.repair import repair

pytestmark = pytest.mark.slow

TYPES = get_typestore(Stores.ROS2_KILTED)
BOOL = "std_msgs/msg/Bool"
RAW = bytes(TYPES.serialize_cdr(TYPES.types[BOOL](data=True), BOOL))
ABOUT = {"robot": "go2", "bundle_digest": "abc"}


def write(folder: Path, count: int = 5, *, flushed: int | None = None) -> BagWriter:
    """A bag that is not closed, with messages at 1000, 1001, ..."""
    writer = BagWriter(folder, ABOUT)
    writer.add(BagTopic(name="/go2/estop", kind=BOOL, latched=True))
    writer.add(BagTopic(name="/go2/other", kind=BOOL))
    writer.add(BagTopic(name="/go2/step", kind=BOOL, reliable=True))
    for number in range(count):
        writer.write("/go2/estop", 1000 + number, RAW)
        if number + 1 == flushed:
            writer.flush()
    return writer


def times(folder: Path) -> list[int]:
    with Bag(folder) as bag:
        return [received for _, received, _ in bag.messages(bag.topics)]


def test_what_was_written_is_read_again(tmp_path):
    write(tmp_path / "bag").close()
    with Bag(tmp_path / "bag") as bag:
        assert bag.about == ABOUT
        assert bag.topics == {"/go2/estop": 5, "/go2/other": 0, "/go2/step": 0}
        found = list(bag.messages(["/go2/estop"]))
        assert found == [("/go2/estop", 1000 + number, RAW) for number in range(5)]
        assert bag.decode("/go2/estop", RAW).data is True
        assert list(bag.messages(["/nowhere"])) == []


def promises(folder: Path) -> dict[str, tuple[QosReliability, QosDurability]]:
    with Reader(folder) as reader:
        extras = {one.topic: cast("ConnectionExtRosbag2", one.ext) for one in reader.connections}
    profiles = {topic: extra.offered_qos_profiles[0] for topic, extra in extras.items()}
    return {topic: (qos.reliability, qos.durability) for topic, qos in profiles.items()}


def test_a_bag_tells_how_its_topics_were_sent_also_after_a_repair(tmp_path):
    surely, kept = QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL
    lossy, volatile = QosReliability.BEST_EFFORT, QosDurability.VOLATILE
    sent = {
        "/go2/estop": (surely, kept), "/go2/other": (lossy, volatile),
        "/go2/step": (surely, volatile),
    }  # fmt: skip
    writer = write(tmp_path / "bag")
    for topic in sent:
        writer.write(topic, 2000, RAW)
    writer.close()
    assert promises(tmp_path / "bag") == sent
    assert promises(repair(tmp_path / "bag").folder) == sent


def test_writer_that_was_killed_loses_what_came_after_the_last_flush_only(tmp_path):
    """What a process that dies leaves is what the operating system has: no close, no buffers."""
    folder = tmp_path / "bag"
    child = os.fork()
    if not child:
        write(folder, 7, flushed=5)
        os._exit(9)
    os.waitpid(child, 0)
    with pytest.raises(RecordingError, match=r"did not end in order.*robot-rl record repair"):
        Bag(folder)
    saved = repair(folder)
    assert (saved.messages, saved.torn) == (5, False)
    assert times(saved.folder) == [1000, 1001, 1002, 1003, 1004]
    with Bag(saved.folder) as bag:
        assert bag.about == ABOUT
    with pytest.raises(RecordingError, match="bag_repaired exists already"):
        repair(folder)


@pytest.mark.parametrize("named", [".", "../bag"])
def test_bag_is_repaired_beside_itself_however_it_is_named(tmp_path, monkeypatch, named):
    write(tmp_path / "bag", 3, flushed=3)
    monkeypatch.chdir(tmp_path / "bag")
    repair(Path(named))
    assert times(tmp_path / "bag_repaired") == [1000, 1001, 1002]


@pytest.mark.parametrize(
    ("torn", "cut", "about"),
    [("bag.mcap", 40, ABOUT), ("metadata.yaml", 40, ABOUT), ("metadata.yaml", -100, {}),
     ("unfinished.json", 40, {})],
)  # fmt: skip
def test_a_repaired_bag_still_says_of_which_robot_and_bundle_it_is(tmp_path, torn, cut, about):
    """A bag that was closed and damaged later lost its label: only an unfinished one kept it."""
    folder = tmp_path / "bag"
    writer = write(folder, 6, flushed=6)
    if torn != "unfinished.json":
        writer.close()
    raw = (folder / torn).read_bytes()
    (folder / torn).write_bytes(raw[:-cut])
    with Bag(repair(folder).folder) as bag:
        assert bag.about == about


def test_disk_that_is_full_leaves_nothing_that_stands_in_the_way_of_another_try(tmp_path):
    write(tmp_path / "bag", 3, flushed=3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(RecordingError, match=r"cannot write .*bag_repaired: File too large$"):
            repair(tmp_path / "bag")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]
    assert repair(tmp_path / "bag").messages == 3


def test_file_that_is_cut_anywhere_gives_every_whole_message(tmp_path):
    write(tmp_path / "bag", 6).close()
    whole = (tmp_path / "bag" / "bag.mcap").read_bytes()
    first = whole.index(RAW)
    counts = []
    for cut in (first + len(RAW), *range(first, len(whole), 101)):  # 101: every alignment
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "bag.mcap").write_bytes(whole[:cut])
        expected = whole[:cut].count(RAW)
        counts.append(expected)
        if not expected:
            with pytest.raises(RecordingError, match="nothing can be saved"):
                repair(folder)
            assert not (tmp_path / f"cut{cut}_repaired").exists()
            continue
        saved = repair(folder)
        assert saved.messages == expected
        assert len(times(saved.folder)) == expected
    assert {0, 1, 6} <= set(counts)


def test_noise_behind_a_torn_file_is_not_taken_for_messages(tmp_path):
    write(tmp_path / "bag", 6, flushed=4)
    path = tmp_path / "bag" / "bag.mcap"
    for value in (0x00, 0x05, 0x08, 0x0F, 0x80, 0xFF):  # three of them begin records of MCAP
        torn = tmp_path / f"noise{value}"
        torn.mkdir()
        (torn / "bag.mcap").write_bytes(path.read_bytes() + bytes([value]) * 4096)
        assert repair(torn).messages == 4


def test_what_is_no_bag_is_refused_in_words(tmp_path):
    with pytest.raises(RecordingError, match="nowhere does not exist; give the folder of a bag"):
        Bag(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match=r"is not a bag: it has no metadata.yaml"):
        Bag(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match="file is a file; give the folder"):
        Bag(tmp_path / "file")
    with pytest.raises(RecordingError, match=r"has 0 files \*.mcap"):
        repair(tmp_path)
    with pytest.raises(RecordingError, match="exists already"):
        BagWriter(tmp_path, {})
    with pytest.raises(RecordingError, match=r"cannot write .*/file/bag: Not a directory$"):
        BagWriter(tmp_path / "file" / "bag", {})
    (tmp_path / "bag" / "bag.mcap").mkdir(parents=True)
    with pytest.raises(RecordingError, match=r"bag\.mcap cannot be read: Is a directory"):
        repair(tmp_path / "bag")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bag", "file"]


@pytest.mark.parametrize("where", [0, -20])
def test_damaged_file_is_a_sentence(tmp_path, where):
    write(tmp_path / "bag").close()
    path = tmp_path / "bag" / "bag.mcap"
    raw = bytearray(path.read_bytes())
    start = where % len(raw)
    raw[start : start + 16] = b"\xee" * 16
    path.write_bytes(raw)
    with pytest.raises(RecordingError, match=r"is damaged: .*repair"):
        times(tmp_path / "bag")
