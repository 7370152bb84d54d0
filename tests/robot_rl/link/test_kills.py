"""Robot, learner and connections are killed at random moments; every record is stored once."""

import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from robot_rl.core.process import clean_environ
from robot_rl.link.records import Frame
from robot_rl.link.store import ExperienceStore
from robot_rl.link.weights import WeightStore
from tests.robot_rl.link.link_processes import EPISODE
from tests.robot_rl.link.linked import robot, serving, until

ROOT = Path(__file__).parents[3]
KILLS = 14


class Wire:
    """Forwards connections to a learner; `cut` ends all that there are, in the middle of a byte."""

    def __init__(self, port):
        self._to, self._pairs = port, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            try:
                two = socket.create_connection(("127.0.0.1", self._to), timeout=1)
            except OSError:
                one.close()
                continue
            self._pairs.append((one, two))
            for pair in ((one, two), (two, one)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source, target):
        try:
            while content := source.recv(1 << 16):
                target.sendall(content)
        except OSError:
            pass
        for one in (source, target):
            one.close()

    def cut(self):
        for pair in self._pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self):
        self._listener.close()
        self.cut()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_after_many_kills_of_everything_each_record_is_stored_once(tmp_path):
    rng, said = random.Random(1), {}
    port = free_port()
    wire = Wire(port)
    places = {"robot": (tmp_path / "arm", wire.port), "learner": (tmp_path / "learner", port)}
    readers = []

    def listen(process):
        for line in process.stdout:
            words = line.split()
            if len(words) == 3 and line.endswith("\n"):
                said[words[0]] = int(words[1])
                versions.append(int(words[2]))

    def start(role):
        folder, at = places[role]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.robot_rl.link.link_processes", role, folder, str(at)],
            stdout=subprocess.PIPE if role == "robot" else None, text=True, cwd=ROOT,
            env=clean_environ(),
        )  # fmt: skip
        if role == "robot":
            readers.append(threading.Thread(target=listen, args=(process,)))
            readers[-1].start()
        return process

    versions = []
    running = {role: start(role) for role in places}
    until(lambda: max(versions, default=0) > 0)
    for kill in range(KILLS):
        time.sleep(rng.uniform(0.2, 1.0))
        victim = ("robot", "learner", "wire")[kill % 3]
        if victim == "wire":
            wire.cut()
            continue
        running[victim].send_signal(signal.SIGKILL)
        running[victim].wait()
        running[victim] = start(victim)
    count = len(said)
    until(lambda: len(said) > count or max(versions[-3:], default=0) > 3)
    for process in running.values():
        process.kill()
        process.wait()
    for reader in readers:
        reader.join()
    wire.close()

    # What is left goes to a learner that starts last.
    with serving(tmp_path / "learner") as (_, server), robot(tmp_path / "arm", server.port) as (
        spool, _,
    ):  # fmt: skip
        until(lambda: spool.unacknowledged == 0)
    store = ExperienceStore(tmp_path / "learner" / "log")
    found = {}
    for _, record in store.read(0):
        if isinstance(record, Frame):
            found.setdefault(record.session, []).append(record)
    store.close()
    assert len(said) >= KILLS // 3
    assert sum(len(one) for one in found.values()) > 500
    for session, last in said.items():
        records = found[session]
        assert len(records) > last  # all that the robot said it had written
        for k, record in enumerate(records):  # each once, in order, with its own content
            assert (record.seq, record.stamp) == (k, float(k))
            assert (record.episode, record.index) == divmod(k, EPISODE + 1)
            assert record.obs["actor"].tolist() == [record.episode, record.index, np.float32(k)]
    for folder in (tmp_path / "learner", tmp_path / "arm"):
        newest = WeightStore(folder / "weights").load_newest()
        assert newest is not None
        assert (newest.arrays["w"] == newest.version).all()
