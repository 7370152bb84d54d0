"""A robot and a learner as processes that are killed: `python -m ... robot|learner folder port`."""

import sys
import time
from pathlib import Path

from robot_rl.link.weights import WeightStore
from tests.robot_rl.link.linked import frame, robot, serving

EPISODE = 20


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_robot(folder, port):
    """Record frames as fast as a quick robot, and say each that is in the spool."""
    with robot(folder, port, call_seconds=1.0) as (spool, client):
        k = 0
        while True:
            episode, index = divmod(k, EPISODE + 1)
            spool.append(frame(episode, index, last=index == EPISODE, stamp=float(k)))
            say(f"{spool.session} {k} {client.newest.version if client.newest else 0}")
            k += 1
            time.sleep(0.002)


def run_learner(folder, port):
    """Store what comes, and publish a version every now and then."""
    import numpy as np

    weights = WeightStore(folder / "weights")
    with serving(folder, address=f"127.0.0.1:{port}"):
        while True:
            time.sleep(0.1)
            weights.publish({"w": np.full(1000, weights.newest + 1, np.float32)})


if __name__ == "__main__":
    role, where, at = sys.argv[1:]
    {"robot": run_robot, "learner": run_learner}[role](Path(where), int(at))
