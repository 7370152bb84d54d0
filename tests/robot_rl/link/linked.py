"""Frames, a learner's end and a robot's end for tests of the link."""

import time
import uuid
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np

from robot_rl.link.client import LinkClient
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, FrameSpec
from robot_rl.link.server import ControlError, LinkServer
from robot_rl.link.spool import Spool
from robot_rl.link.store import ExperienceStore
from robot_rl.link.transport import Security
from robot_rl.link.weights import WeightStore

SPEC = FrameSpec(groups={"actor": (3,)}, action_size=2, control_dt=0.1)
QUOTA = 64 << 20


def frame(episode=0, index=0, *, last=False, **values):
    """A frame whose numbers say where it belongs."""
    obs = np.array([episode, index, values.get("stamp", 0.0)], np.float32)
    action = None if last else np.array([index / 100, -1], np.float32)
    return Frame(episode=episode, index=index, obs={"actor": obs}, action=action, **values)


def correction(session, episode=0, kind="success", **values):
    return Correction(id=uuid.uuid4().hex, session=session, episode=episode, kind=kind, **values)


def ended(remark):
    """End of a wish that came to this remark."""
    future = Future()
    future.set_result(remark)
    return future


def no_controls(do, arguments):
    future = Future()
    future.set_exception(ControlError(f"'{do}' is not known here"))
    return future


@contextmanager
def serving(folder, *, address="127.0.0.1:0", security=None, controls=no_controls):
    """A learner's end over a folder."""
    store = ExperienceStore(folder / "log")
    server = LinkServer(
        store, WeightStore(folder / "weights"), address=address, security=security or Security(),
        spec=SPEC, controls=controls, metrics=lambda session: {"updates": 7},
    )  # fmt: skip
    try:
        yield store, server
    finally:
        server.stop()
        store.close()


@contextmanager
def robot(folder, port, *, name="arm", security=None, quota=QUOTA, host="127.0.0.1", **options):
    """A robot's end over a folder, started."""
    spool = Spool(folder / "spool", quota_bytes=quota)
    client = LinkClient(
        spool, WeightStore(folder / "weights"), address=f"{host}:{port}", robot=name, spec=SPEC,
        security=security or Security(), **options,
    )  # fmt: skip
    client.start()
    try:
        yield spool, client
    finally:
        client.stop()
        spool.close()


def until(condition, seconds=60.0):
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
