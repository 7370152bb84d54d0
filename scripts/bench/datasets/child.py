"""Does one thing with a data set and says what it took; a process of its own, for `streaming.py`.

child.py <file for the figures> <megabytes of a file> make <folder> <bytes>
child.py <file for the figures> <megabytes of a file> iterate <folder>
child.py <file for the figures> <megabytes of a file> <command of robot-rl data> ...
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from robot_rl.core.process import peak_bytes
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files import lerobot_meta
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import write_new

_SPEC = DatasetSpec(groups={"actor": 500}, action_size=12, control_dt=0.02)
_STEPS = 1000
EPISODE_BYTES = 4 * (_STEPS + 1) * (500 + 12)
"""Observations and actions of an episode."""


def main() -> None:
    """Do what the command line says."""
    out, megabytes, command, *arguments = sys.argv[1:]
    lerobot_meta.DATA_MEGABYTES = int(megabytes)
    start, code = time.perf_counter(), 0
    if command == "make":
        write_new(Path(arguments[0]), _SPEC, _episodes(int(arguments[1])))
    elif command == "iterate":
        dataset = EpisodeDataset(arguments[0])
        assert sum(one.num_steps for one in dataset) == sum(dataset.lengths)
    elif command != "nothing":
        try:
            from robot_rl.cli.main import main as robot_rl_command

            robot_rl_command(["data", command, *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    seconds = time.perf_counter() - start
    figures = {"seconds": seconds, "processor": time.process_time(), "peak": peak_bytes()}
    Path(out).write_text(json.dumps(figures))
    raise SystemExit(code)


def _episodes(size: int) -> Iterator[Episode]:
    random = np.random.default_rng(0)
    last = np.arange(_STEPS) == _STEPS - 1
    for number in range(max(1, round(size / EPISODE_BYTES))):
        yield Episode(
            obs={"actor": random.standard_normal((_STEPS + 1, 500), np.float32)},
            action=random.random((_STEPS, 12), np.float32),
            reward=random.random(_STEPS, np.float32),
            terminated=last & bool(number % 2), truncated=last & (not number % 2),
            success=last & bool(number % 2), valid=np.ones(_STEPS, bool),
            intervened=np.zeros(_STEPS, bool), policy_version=np.zeros(_STEPS, np.int64),
            stamp_ns=np.arange(_STEPS + 1) * 20_000_000, task="move", source=f"made up/{number}",
        )  # fmt: skip


if __name__ == "__main__":
    main()
