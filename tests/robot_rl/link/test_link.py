"""Robots and a learner that die, come back, hang, lie and crowd: every record is stored once."""

import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.link.corrections import Correction
from robot_rl.link.messages import LARGEST_MESSAGE, PROTOCOL, MessageError, pack, unpack
from robot_rl.link.records import Frame, encode
from robot_rl.link.server import LinkServer
from robot_rl.link.transport import Channel, LinkDownError, LinkRefusedError, Security
from robot_rl.link.weights import WeightStore
from tests.robot_rl.link.linked import (
    SPEC,
    correction,
    ended,
    frame,
    robot,
    serving,
    until,
)


def stored(store):
    """All records by session, in order."""
    found = {}
    for _, record in store.read(0):
        if isinstance(record, Frame):
            found.setdefault(record.session, []).append((record.seq, record.episode, record.index))
    return found


def empty(spool):
    until(lambda: spool.unacknowledged == 0)


@pytest.mark.slow
def test_records_arrive_once_and_in_order(tmp_path):
    with serving(tmp_path / "learner") as (store, server):
        with robot(tmp_path / "arm", server.port) as (spool, client):
            for k in range(300):
                spool.append(frame(k // 100, k % 100))
            spool.append(correction(spool.session))
            empty(spool)
            assert stored(store) == {spool.session: [(k, k // 100, k % 100) for k in range(300)]}
            assert client.connected
        assert isinstance([r for _, r in store.read(0)][-1], Correction)


def test_a_restarted_actor_loses_nothing_and_doubles_nothing(tmp_path):
    """The peers' learner drops all of a new actor until it has sent more than the old one."""
    with serving(tmp_path / "learner") as (store, server):
        with robot(tmp_path / "arm", server.port) as (spool, _):
            first = spool.session
            for k in range(50):
                spool.append(frame(0, k))
            empty(spool)
        with robot(tmp_path / "arm", 1) as (spool, _):  # nobody listens there: all of it waits
            second = spool.session
            for k in range(30):
                spool.append(frame(0, k))
        with robot(tmp_path / "arm", server.port) as (spool, _):
            third = spool.session
            for k in range(10):
                spool.append(frame(0, k))
            empty(spool)
        found = stored(store)
        assert {name: len(one) for name, one in found.items()} == {first: 50, second: 30, third: 10}
        assert list(found) == [first, second, third]  # in order of time
        assert all([seq for seq, _, _ in one] == list(range(len(one))) for one in found.values())


def test_a_restarted_learner_gets_exactly_what_it_had_not_stored(tmp_path):
    """The peers' restarted learner is sent everything again, beside what it reads from disk."""
    with serving(tmp_path / "learner") as (_, server):
        port = server.port
        with robot(tmp_path / "arm", port) as (spool, client):
            for k in range(40):
                spool.append(frame(0, k))
            empty(spool)
            server.stop()
            for k in range(40, 70):
                spool.append(frame(0, k))
            until(lambda: not client.connected)
            assert spool.unacknowledged == 30
    with serving(tmp_path / "learner") as (store, server):
        with robot(tmp_path / "arm", server.port) as (spool, _):
            empty(spool)
        (found,) = stored(store).values()
        assert found == [(k, 0, k) for k in range(70)]


def test_a_learner_that_has_not_begun_is_said_in_plain_words(tmp_path, caplog):
    with serving(tmp_path / "learner") as (_, server):
        port = server.port
    with caplog.at_level("INFO"), robot(tmp_path / "arm", port) as (_, client):
        until(lambda: "127.0.0.1" in client.trouble)
        assert client.trouble.endswith(f"127.0.0.1:{port}: nothing listens there (yet)")
    assert "no link yet" in caplog.text
    assert "the link is down" not in caplog.text


def test_the_robot_reconnects_to_a_learner_that_comes_back(tmp_path):
    with serving(tmp_path / "learner") as (_, server):
        port = server.port
        with robot(tmp_path / "arm", port) as (spool, client):
            until(lambda: client.connected)
            server.stop()
            spool.append(frame())
            until(lambda: not client.connected)
            assert "127.0.0.1" in client.trouble
    again = serving(tmp_path / "learner", address=f"127.0.0.1:{port}")
    with again as (store, _), robot(tmp_path / "arm", port) as (spool, _):
        empty(spool)
        assert [len(one) for one in stored(store).values()] == [1]


def test_the_learner_of_another_run_gets_nothing_of_this_one(tmp_path):
    with serving(tmp_path / "learner") as (_, server), robot(tmp_path / "arm", server.port) as (
        spool, client,
    ):  # fmt: skip
        until(lambda: client.connected)
        name = spool.store
    with serving(tmp_path / "other") as (store, server):
        with robot(tmp_path / "arm", server.port) as (spool, client):
            spool.append(frame())
            until(lambda: client.refused)
            assert f"belongs to the learner of store {name[:8]}" in client.refused
            assert spool.unacknowledged == 1
        assert store.position == 0


def test_a_replacement_actor_connects_at_once_and_many_robots_do_not_wait_for_each_other(tmp_path):
    """The peers' learner has three threads, which a dead actor keeps: the next one hangs."""
    with serving(tmp_path / "learner") as (store, server):
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
        for name in ("a", "b", "a", "c", "a"):
            with robot(tmp_path / name, server.port, name=name) as (spool, _):
                begin = time.monotonic()
                spool.append(frame())
                empty(spool)
                assert time.monotonic() - begin < 5
        assert len(stored(store)) == 5
        assert sorted(server.robots) == ["a", "b", "c"]
        assert all(one.connected for one in server.robots.values())
        for one in idle:
            one.close()


class Proxy:
    """Forwards bytes between a robot and a learner, slowly, or holds them without a word."""

    def __init__(self, port):
        self._port, self.rate, self.held = port, 1e9, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            two = socket.create_connection(("127.0.0.1", self._port))
            for pair in ((one, two), (two, one)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source, target):
        held_at_start = self.held
        try:
            while content := source.recv(8192):
                while self.held or held_at_start:
                    time.sleep(0.01)  # a half-open peer: the bytes are taken and go nowhere
                time.sleep(len(content) / self.rate)
                target.sendall(content)
        except OSError:
            pass

    def close(self):
        self._listener.close()


@pytest.mark.slow
def test_of_two_robots_of_one_name_the_newer_is_refused_until_the_older_ends(tmp_path):
    """Each one's hello ended the other's running episode."""
    with serving(tmp_path / "learner") as (store, server):
        with robot(tmp_path / "one", server.port) as (first, older):
            first.append(frame())
            empty(first)
            with robot(tmp_path / "two", server.port) as (second, newer):
                until(lambda: "two robots call themselves 'arm'" in newer.refused)
                second.append(frame())
                first.append(frame(index=1))
                empty(first)
                assert older.connected
                assert [len(one) for one in stored(store).values()] == [2]
        with robot(tmp_path / "two", server.port) as (second, newer):
            empty(second)
            assert newer.refused == ""
        assert [len(one) for one in stored(store).values()] == [2, 1]


def test_a_half_open_learner_is_found_by_the_deadline_and_left(tmp_path):
    with serving(tmp_path / "learner") as (store, server):
        proxy = Proxy(server.port)
        with robot(tmp_path / "arm", proxy.port, call_seconds=0.5) as (spool, client):
            spool.append(frame(0, 0))
            empty(spool)
            proxy.held = True
            spool.append(frame(0, 1))
            until(lambda: not client.connected, 5)
            assert "Deadline" in client.trouble
            assert spool.unacknowledged == 1
            proxy.held = False
            empty(spool)
        assert [seq for seq, _, _ in next(iter(stored(store).values()))] == [0, 1]
        proxy.close()


@pytest.mark.slow
def test_a_slow_link_delays_frames_and_weights_and_loses_neither(tmp_path):
    weights = WeightStore(tmp_path / "learner" / "weights")
    with serving(tmp_path / "learner") as (store, server):
        proxy = Proxy(server.port)
        proxy.rate = 400_000
        with robot(tmp_path / "arm", proxy.port) as (spool, client):
            weights.publish({"w": np.arange(50_000, dtype=np.float32)})
            for k in range(200):
                spool.append(frame(0, k))
            until(lambda: client.newest is not None)
            empty(spool)
            assert client.newest is not None
            assert np.array_equal(client.newest.arrays["w"], np.arange(50_000, dtype=np.float32))
        assert len(stored(store)[spool.session]) == 200
        proxy.close()


def test_the_newest_weights_arrive_and_stay_for_a_robot_that_starts_alone(tmp_path):
    weights = WeightStore(tmp_path / "learner" / "weights")
    for value in range(5):
        weights.publish({"w": np.full(3, value, np.float32)})
    assert len(list(weights.folder.iterdir())) == 3
    with serving(tmp_path / "learner") as (_, server), robot(tmp_path / "arm", server.port) as (
        _, client,
    ):  # fmt: skip
        until(lambda: client.newest is not None)
        assert client.newest is not None
        assert client.newest.version == 5
    with robot(tmp_path / "arm", 1) as (_, client):
        assert client.newest is not None
        assert client.newest.arrays["w"].tolist() == [4, 4, 4]


def test_weights_go_on_where_they_were_when_the_link_was_down(tmp_path, monkeypatch):
    """What took longer than 120 s began anew, and its version was gone meanwhile."""
    monkeypatch.setattr("robot_rl.link.server.PIECE", 1000)
    weights, asked, give = WeightStore(tmp_path / "weights"), [], LinkServer._give_weights

    def give_slowly(self, message):
        header, _ = unpack(message)
        asked.append((header["version"], header["start"]))
        if len(asked) == 5:
            for value in range(1, 6):
                weights.publish({"w": np.full(2000, value, np.float32)})
            raise StorageError("the link fails")
        return give(self, message)

    monkeypatch.setattr(LinkServer, "_give_weights", give_slowly)
    weights.publish({"w": np.zeros(2000, np.float32)})
    with serving(tmp_path) as (_, server), robot(tmp_path / "arm", server.port) as (_, client):
        until(lambda: client.newest is not None and client.newest.version == 6)
    places = [start for version, start in asked if version == 1]
    assert places == [0, 1000, 2000, 3000, 4000, 4000, 5000, 6000, 7000, 8000]
    assert {version for version, _ in asked} == {1, 6}


def test_weights_of_a_learner_that_lost_its_folder_are_newer_than_what_robots_have(tmp_path):
    """It began again at version 1, which robots of before never took."""
    weights = WeightStore(tmp_path / "weights")
    for value in range(5):
        weights.publish({"w": np.full(3, value, np.float32)})
    with serving(tmp_path) as (_, server), robot(tmp_path / "arm", server.port) as (_, client):
        until(lambda: client.newest is not None)
    shutil.rmtree(weights.folder)
    weights.publish({"w": np.full(3, 7, np.float32)})
    with serving(tmp_path) as (_, server), robot(tmp_path / "arm", server.port) as (_, client):
        until(lambda: client.newest is not None and client.newest.version == 6)
        assert client.newest is not None
        assert client.newest.arrays["w"].tolist() == [7, 7, 7]
        assert weights.publish({"w": np.full(3, 8, np.float32)}) == 7
        until(lambda: client.newest is not None and client.newest.version == 7)


def test_weights_that_the_disk_has_damaged_are_passed_over(tmp_path):
    weights = WeightStore(tmp_path)
    weights.publish({"w": np.zeros(3, np.float32)})
    weights.publish({"w": np.ones(3, np.float32)})
    newest = max(tmp_path.iterdir())
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    found = weights.load_newest()
    assert found is not None
    assert found.version == 1
    assert weights.publish({"w": np.ones(3, np.float32)}) == 3


def test_a_wish_is_fulfilled_once_and_a_refusal_says_why(tmp_path):
    wished = []

    def controls(do, arguments):
        wished.append((do, arguments))
        return ended("done")

    with serving(tmp_path / "learner", controls=controls) as (_, server):
        channel = Channel(f"127.0.0.1:{server.port}", Security())
        message = pack({"id": "1", "do": "pause_learning", "arguments": {"x": 1}})
        for _ in range(3):
            answer, _ = unpack(channel.call("control", message, 5))
            assert answer == {"ok": True, "why": "done"}
        assert wished == [("pause_learning", {"x": 1})]
        channel.close()
    with serving(tmp_path / "other") as (_, server), robot(tmp_path / "arm", server.port) as (
        _, client,
    ):  # fmt: skip
        client.ask("2", "dance", {})
        answers = []
        until(lambda: answers.extend(client.answers()) or answers)
        assert (answers[0].ok, answers[0].why) == (False, "'dance' is not known here")


def test_wishes_that_the_learner_has_not_looked_at_keep_no_robot_waiting(tmp_path):
    """Each held a thread of the link, and its robot's stream, for up to 10 s."""
    future = Future()
    with (
        serving(tmp_path / "learner", controls=lambda do, arguments: future) as (_, server),
        robot(tmp_path / "arm", server.port) as (spool, client),
    ):
        for k in range(40):
            client.ask(str(k), "pause_learning", {})
        begin = time.monotonic()
        spool.append(frame())
        empty(spool)
        assert time.monotonic() - begin < 5
        assert client.answers() == []
        future.set_result("learning is paused")
        answers = []
        until(lambda: answers.extend(client.answers()) or len(answers) == 40)
        assert {(one.ok, one.why) for one in answers} == {(True, "learning is paused")}


def test_a_wish_that_nobody_looked_at_in_time_is_not_done(tmp_path, monkeypatch):
    monkeypatch.setattr("robot_rl.link.server.ANSWER_SECONDS", 0.0)
    future = Future()
    with (
        serving(tmp_path / "learner", controls=lambda do, arguments: future) as (_, server),
        robot(tmp_path / "arm", server.port) as (_, client),
    ):
        client.ask("1", "rollback", {})
        answers = []
        until(lambda: answers.extend(client.answers()) or answers)
    assert answers[0].why == "the learner has not answered for 0 s: it was not done"
    assert future.cancelled()


@pytest.mark.slow
def test_a_wish_without_a_learner_is_answered_so(tmp_path):
    with robot(tmp_path / "arm", 1) as (_, client):
        client.ask("3", "rollback", {})
        answers = []
        until(lambda: answers.extend(client.answers()) or answers)
        assert not answers[0].ok
        assert "the learner cannot be reached" in answers[0].why


@pytest.mark.slow
def test_a_lasting_wish_waits_for_the_learner(tmp_path, monkeypatch):
    monkeypatch.setattr("robot_rl.link.client._WISH_SECONDS", 0.2)
    heard = []

    def control(do, arguments):
        heard.append((do, arguments))
        return ended("noted")

    with robot(tmp_path / "arm", 1) as (_, client):
        client.ask("4", "evaluated", {"success": 1.0}, lasting=True)
        client.ask("5", "rollback", {})
        answers = []
        until(lambda: answers.extend(client.answers()) or answers)
        time.sleep(0.5)
        answers += client.answers()
        assert [one.id for one in answers] == ["5"]
        with serving(tmp_path / "learner", controls=control) as (_, server):
            client._address = f"127.0.0.1:{server.port}"
            until(lambda: answers.extend(client.answers()) or len(answers) > 1)
    assert heard == [("evaluated", {"success": 1.0})]
    assert (answers[1].id, answers[1].ok) == ("4", True)


@pytest.mark.slow
def test_frames_come_to_the_disk_while_the_learner_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr("robot_rl.link.client._SYNC_SECONDS", 0.05)
    with robot(tmp_path / "arm", 1) as (spool, _):
        synced, sync = [], spool.sync
        spool.sync = lambda: synced.append(sync())
        spool.append(frame())
        until(lambda: len(synced) > 3)


@pytest.mark.slow
def test_the_link_takes_no_proxy(tmp_path, monkeypatch):
    """gRPC takes that of the environment even for this computer, unless it is told not to."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with (
        serving(tmp_path / "learner") as (_, server),
        robot(tmp_path / "arm", server.port) as (_, client),
    ):
        until(lambda: client.connected)


class TestMessages:
    """Damaged, oversized, wrong and repeated ones change nothing."""

    @pytest.fixture
    def learner(self, tmp_path):
        with serving(tmp_path) as (store, server):
            channel = Channel(f"127.0.0.1:{server.port}", Security())
            hello = {"protocol": PROTOCOL, "robot": "arm", "session": "a" * 32, "store": ""}
            hello["spec"] = SPEC.plain()
            channel.call("hello", pack(hello), 5)
            yield store, channel, hello
            channel.close()

    def push(self, channel, first, *records):
        about = {"robot": "arm", "session": "a" * 32, "first": first}
        parts = [one if isinstance(one, bytes) else encode(one) for one in records]
        return unpack(channel.call("push", pack(about, parts), 5))[0]["stored"]

    def test_repeated_ones_are_acknowledged_and_not_stored_again(self, learner):
        store, channel, _ = learner
        records = [frame(0, k, session="a" * 32, seq=k) for k in range(5)]
        assert self.push(channel, 0, *records[:3]) == 3
        assert self.push(channel, 0, *records[:3]) == 3
        assert self.push(channel, 1, *records[1:]) == 5
        assert [seq for seq, _, _ in stored(store)["a" * 32]] == [0, 1, 2, 3, 4]

    def test_gaps_forgeries_and_strangers_are_refused(self, learner):
        store, channel, hello = learner
        assert self.push(channel, 0, frame(0, 0, session="a" * 32)) == 1
        with pytest.raises(LinkRefusedError, match="expected 1"):
            self.push(channel, 2, frame(0, 2, session="a" * 32, seq=2))
        with pytest.raises(LinkRefusedError, match="came again with other content"):
            self.push(channel, 0, frame(0, 0, session="a" * 32, reward=1.0))
        with pytest.raises(LinkRefusedError, match="came as record 1"):
            self.push(channel, 1, frame(0, 1, session="b" * 32, seq=1))
        with pytest.raises(LinkRefusedError, match="is of robot 'arm'"):
            channel.call("hello", pack({**hello, "robot": "leg"}), 5)
        with pytest.raises(LinkRefusedError, match="32 hexadecimal"):
            channel.call("hello", pack({**hello, "session": "../../etc"}), 5)
        with pytest.raises(LinkRefusedError, match="same version of robot_rl"):
            channel.call("hello", pack({**hello, "protocol": 99}), 5)
        other = {**hello, "spec": {**SPEC.plain(), "action_size": 7}}
        with pytest.raises(LinkRefusedError, match="action_size 7, and this learner has 2"):
            channel.call("hello", pack(other), 5)
        assert len(stored(store)["a" * 32]) == 1

    def test_damaged_and_oversized_ones_are_refused_and_the_link_goes_on(self, learner):
        store, channel, _ = learner
        whole = pack({"robot": "arm", "session": "a" * 32, "first": 0}, [b"none"])
        for content in (b"", b"x" * 100, whole[:-2], whole[:-1] + b"!", whole + b"!"):
            with pytest.raises(LinkRefusedError):
                channel.call("push", content, 5)
        with pytest.raises(LinkRefusedError, match="hold no record"):
            channel.call("push", whole, 5)
        good, bad = frame(0, 0, session="a" * 32), frame(0, 1, session="a" * 32, seq=1)
        with pytest.raises(LinkRefusedError):  # one of two is damaged: neither is stored
            self.push(channel, 0, good, encode(bad)[:-40])
        with pytest.raises((LinkDownError, LinkRefusedError), match="larger than max"):
            channel.call("push", b"x" * (LARGEST_MESSAGE + 1), 5)
        assert store.position == 1  # the session's beginning
        assert self.push(channel, 0, good) == 1

    def test_a_message_says_what_is_wrong_with_it(self):
        for content in (
            pack({}, [b"a"])[:20],
            b"RRL1\xff\xff\xff\xff",
            b"RRL1\x02\0\0\0[]\0\0\0\0",
        ):
            with pytest.raises(MessageError):
                unpack(content)
        assert unpack(pack({"a": 1}, [b"", b"x"])) == ({"a": 1}, [b"", b"x"])


class TestSecurity:
    @pytest.fixture
    def pair(self, tmp_path):
        """A key and a certificate for this computer."""
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        command = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return str(key), str(certificate)

    @pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.5:50151", "robot.lan:1"])
    def test_an_address_that_others_reach_needs_tls_and_a_token(self, tmp_path, address):
        missing = "missing: a token, a certificate, a key"
        with pytest.raises(ConfigError, match=missing), serving(tmp_path, address=address):
            pass
        with pytest.raises(ConfigError, match="missing: a token, a certificate"):
            Channel(address, Security())
        with pytest.raises(
            ConfigError, match="needs TLS and a token there; missing: a certificate"
        ):
            Channel(address, Security(token="word"))

    def test_a_wrong_token_is_refused_and_nothing_is_stored(self, tmp_path):
        with serving(tmp_path / "learner", security=Security(token="right")) as (store, server):
            for token in ("", "wrong", "right "):
                with robot(
                    tmp_path / "arm", server.port, security=Security(token=token)
                ) as (spool, client):  # fmt: skip
                    spool.append(frame())
                    until(lambda client=client: client.refused)
                    assert "token is missing or wrong" in client.refused
            assert store.position == 0
            with robot(
                tmp_path / "arm", server.port, security=Security(token="right")
            ) as (spool, _):  # fmt: skip
                empty(spool)
            assert len(stored(store)) == 3

    def test_tls_carries_records_and_refuses_who_does_not_trust_the_learner(self, tmp_path, pair):
        key, certificate = pair
        secret = Security(token="word", key=key, certificate=certificate)
        with serving(tmp_path / "learner", address="0.0.0.0:0", security=secret) as (store, server):
            trusts = Security(token="word", certificate=certificate)
            with robot(
                tmp_path / "arm", server.port, security=trusts, host="localhost"
            ) as (spool, _):  # fmt: skip
                spool.append(frame())
                empty(spool)
            plain = Channel(f"127.0.0.1:{server.port}", Security(token="word"))
            with pytest.raises(LinkDownError):
                plain.call("poll", b"", 1)
            plain.close()
            assert len(stored(store)) == 1

    def test_a_certificate_that_is_replaced_while_the_learner_is_away_ends_no_link(
        self, tmp_path, pair
    ):
        key, certificate = pair
        secret = Security(token="word", key=key, certificate=certificate)
        trusts = Security(token="word", certificate=certificate)
        content = Path(certificate).read_bytes()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with robot(tmp_path / "arm", port, security=trusts, host="localhost") as (spool, client):
            spool.append(frame())
            Path(certificate).unlink()
            until(lambda: certificate in client.trouble)
            Path(certificate).write_bytes(content)
            address = f"0.0.0.0:{port}"
            with serving(tmp_path / "learner", address=address, security=secret) as (store, _):
                until(lambda: len(stored(store)) == 1)

    def test_half_a_pair_is_refused_where_none_is_needed(self, pair):
        """A key alone was passed over, and the link was plain text."""
        key, certificate = pair
        for half, word in ({"key": key}, "certificate="), ({"certificate": certificate}, "key="):
            with pytest.raises(ConfigError, match=f"came without its.*{word}"):
                Security(**half).check_address("127.0.0.1:50151", serves=True)
        Security(certificate=certificate).check_address("127.0.0.1:50151", serves=False)

    def test_files_that_are_no_pair_are_refused_before_anything_begins(self, tmp_path, pair):
        key, certificate = pair
        text = tmp_path / "text.pem"
        text.write_text("no certificate")
        with pytest.raises(ConfigError, match=r"text\.pem holds no certificate in PEM"):
            Channel("robot.lan:1", Security(token="word", certificate=str(text)))
        others = tmp_path / "other.pem"
        command = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        subprocess.run([*command, "-out", others], check=True, capture_output=True)
        locked = tmp_path / "locked.pem"
        command = ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:word"]
        subprocess.run([*command, "-out", locked], check=True, capture_output=True)
        for wrong in (text, others, locked):
            secret = Security(token="word", key=str(wrong), certificate=certificate)
            with (
                pytest.raises(ConfigError, match=f"{wrong.name} cannot be used with certificate"),
                serving(tmp_path, address="0.0.0.0:0", security=secret),
            ):
                pass
