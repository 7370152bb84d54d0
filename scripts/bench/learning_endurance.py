"""`robot-rl learn` on the simulated peg robot with a simulated person: kills, and a long life.

Processes are killed at random moments. Afterwards the learner's log must hold every step that was
on the robot's disk when its actor died, once and in order, and the learner must have learned from
what the log holds. Meanwhile the robot's joints are compared with their limits, and the memory,
files and shared memory of all processes are counted.
"""

import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hardware.control.ipc import ArraySubscriber, StatusSubscriber, channel_path
from hardware.control.process import RobotChannels
from robot_rl.cli.learning.options import LearnOptions, experience_folder, robot_folder
from robot_rl.core.process import clean_environ
from robot_rl.core.robot import RobotSpec
from robot_rl.link.records import Frame
from robot_rl.link.store import Begun, ExperienceStore
from robot_rl.link.transitions import Transition, TransitionAssembler
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.storage.checkpoint import CheckpointStore
from scripts.bench.deployment.endurance import is_running

ROLES = ("loop", "actor", "person", "learner")
_NAME = "endured"
_WORDS = (
    f"name={_NAME}", "task=peg", "task.kind=sparse", "person=simulated", "twin.success_reward=1",
    "twin.reach=0.15",
    "learner=hil_serl", "learner.gripper.commands=[]", "learner.batch_size=64",
    "training.updates_per_step=1", "training.replay_capacity=20000",  # full in a quarter of an hour
    "training.checkpoint_seconds=20", "online.publish_seconds=5", "logging.interval_seconds=5",
    "logging.tensorboard=false",
)  # fmt: skip
_START_SECONDS, _BACK_SECONDS, _END_SECONDS = 180.0, 60.0, 60.0
_SAMPLE_SECONDS = 10.0
_LOG_MAGIC, _LOG_HEAD = 8, struct.Struct("<II")


@dataclass(kw_only=True)
class LearningEndurance:
    """Size of the measurement."""

    folder: Path
    """For the run and its output."""
    minutes: float = 10.0
    kills: int = 30
    """At random moments, of random processes; 0 only looks on."""
    seed: int = 0
    words: Sequence[str] = ()
    """Further words of the command."""
    samples: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Memory, files and steps over time."""

    def measure(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Learn, kill, end as a person does, and compare.

        Args:
            say: Takes lines of the terminal.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        rng = random.Random(self.seed)
        earlier = set((self.folder / "runs").glob("*"))
        with (self.folder / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "robot_rl.cli", "learn", *_WORDS, *self.words,
                 f"runs={self.folder / 'runs'}"],
                stdout=output, stderr=subprocess.STDOUT,
                env=clean_environ({"OMP_NUM_THREADS": "1"}),
            )  # fmt: skip
        try:
            run = self._started(process, earlier)
            say(f"learns in {run}")
            watch = Watch(run)
            kills = self._live(process, run, watch, rng, say)
            self._settle(process, run, watch)
            before = watch.safety
            process.send_signal(signal.SIGINT)
            code = process.wait(_END_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
        record = {
            "minutes": self.minutes, "kills": kills, "exit_code": code, "safety_before": before,
            "over_limits": watch.worst, "samples": self.samples, **compare(run, kills),
            "left": sorted(
                path.name for path in channel_path("x").parent.glob(f"*{_NAME}.learn.*")
            ),
        }  # fmt: skip
        record["growth"] = growth(self.samples)
        say(summary(record))
        return record

    def _started(self, process: "subprocess.Popen[bytes]", earlier: Collection[Path]) -> Path:
        """Folder of the run, once its learner has updated; those of `earlier` are others."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            for path in (self.folder / "runs").glob("*/metrics.jsonl"):
                updated = any(one.get("train/updates", 0) > 0 for one in read_metrics(path))
                if path.parent not in earlier and updated:
                    return path.parent
            time.sleep(0.5)
        raise TimeoutError(f"nothing was learned; see {self.folder / 'output.txt'}")

    def _live(
        self, process: "subprocess.Popen[bytes]", run: Path, watch: "Watch", rng: random.Random,
        say: Callable[[str], None],
    ) -> list[dict[str, Any]]:  # fmt: skip
        begin = time.monotonic()
        moments = sorted(rng.uniform(0, 60 * self.minutes) for _ in range(self.kills))
        kills: list[dict[str, Any]] = []
        sampled = -_SAMPLE_SECONDS
        while (now := time.monotonic() - begin) < 60 * self.minutes:
            if process.poll() is not None:
                raise RuntimeError(f"it ended by itself; see {self.folder / 'output.txt'}")
            watch.look()
            if moments and now >= moments[0]:
                moments.pop(0)
                kills.append(self._kill(process.pid, run, watch, rng.choice(ROLES)))
                say(f"{now:.0f} s: kill {len(kills)} of {self.kills}: {kills[-1]}")
            if now >= sampled + _SAMPLE_SECONDS:
                sampled = now
                self.samples.append({"time": now, **usage(process.pid)})
            time.sleep(0.005)
        return kills

    def _settle(self, process: "subprocess.Popen[bytes]", run: Path, watch: "Watch") -> None:
        """Let the learner that was killed last come back, and hear what it missed."""
        before, begin = len(read_metrics(run / "metrics.jsonl")), time.monotonic()
        while time.monotonic() < begin + _START_SECONDS and process.poll() is None:
            watch.look()
            if len(read_metrics(run / "metrics.jsonl")) > before + 3:
                return
            time.sleep(0.1)

    def _kill(self, pid: int, run: Path, watch: "Watch", role: str) -> dict[str, Any]:
        """Kill a process, and wait until another has taken its place."""
        victim = children(pid).get(role)
        if victim is None:  # it died a moment ago, and starts again
            return {"role": role, "was": "absent"}
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        found: dict[str, Any] = {"role": role}
        if role == "actor":
            while is_running(victim):
                time.sleep(0.001)
            found["spooled"] = spooled(robot_folder(run, _NAME) / "spool")
        while time.monotonic() < begin + _BACK_SECONDS:
            watch.look()
            if children(pid).get(role, victim) != victim:
                return found | {"back_seconds": round(time.monotonic() - begin, 2)}
            time.sleep(0.01)
        return found | {"back_seconds": None}


class Watch:
    """The robot's joints beside their limits, as its loop publishes them."""

    def __init__(self, run: Path) -> None:
        channels = RobotChannels(LearnOptions(name=_NAME).channels)
        self._spec = _robot(run)
        self._state = ArraySubscriber(channels.state, self._spec.state_widths)
        self._status = StatusSubscriber(channels.status)
        joints = self._spec.joints
        self._lower, self._upper = np.array([joint.position_limit for joint in joints]).T
        self._speed = np.array([joint.velocity_limit for joint in joints])
        self.worst = {"speed": (0.0, "", ""), "position": (0.0, "", "")}
        """Largest measured speed, as a multiple of a limit, and way beyond one [rad], of which
        joint, and in which state of the safety machine."""

    def look(self) -> None:
        """Compare the newest state."""
        newest = self._state.newer()
        if newest is None:
            return
        q, dq = newest[0]["joint_position"], newest[0]["joint_velocity"]
        for what, values in (
            ("speed", abs(dq) / self._speed),
            ("position", np.maximum(self._lower - q, q - self._upper)),
        ):
            joint = int(values.argmax())
            if (value := float(values.flat[joint])) > self.worst[what][0]:
                self.worst[what] = value, self._spec.joint_names[joint], self.safety

    @property
    def safety(self) -> str:
        """State of the loop's machine."""
        safety = self._status.safety
        return "" if safety is None else safety.value


def compare(run: Path, kills: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The learner's log beside what was on the robot's disk, and beside the last checkpoint."""
    store = ExperienceStore(experience_folder(run))
    assembler, sessions, steps = TransitionAssembler(), dict[str, list[int]](), 0
    counts = Counter[str]()
    for _, entry in store.read(0):
        counts[entry.session] += not isinstance(entry, Begun)
        if isinstance(entry, Frame):
            sessions.setdefault(entry.session, []).append(entry.seq)
        steps += sum(isinstance(event, Transition) for event in assembler.take(entry))
    position = store.position
    store.close()
    gaps = [name for name, seqs in sessions.items() if sorted(set(seqs)) != seqs]
    at_the_end = spooled(robot_folder(run, _NAME) / "spool")
    lost = {
        session: count
        for seen in (*(kill.get("spooled", {}) for kill in kills), at_the_end)
        for session, count in seen.items()
        if counts[session] < count
    }
    state = CheckpointStore(run / "checkpoints", read_only=True).load().state
    return {
        "sessions": len(sessions), "frames": sum(map(len, sessions.values())), "steps": steps,
        "sessions_out_of_order": gaps, "lost": lost,
        "learned_steps": int(state["steps"]), "learned_position": int(state["position"]),
        "position": position,
    }  # fmt: skip


def spooled(folder: Path) -> dict[str, int]:
    """Whole records of each session that a robot's disk says were made: session -> count."""
    found: dict[str, int] = {}
    for path in folder.iterdir():
        if path.is_dir() and (files := sorted(path.glob("*.log"))):
            content, place = files[-1].read_bytes(), _LOG_MAGIC
            count = int(files[-1].stem)
            while place + _LOG_HEAD.size <= len(content):
                place += _LOG_HEAD.size + _LOG_HEAD.unpack_from(content, place)[0]
                count += place <= len(content)
            found[path.name.rpartition("_")[2]] = count
    return found


def usage(pid: int) -> dict[str, Any]:
    """Memory that is a process's own [MB] and open files, by role; and shared memory [MB]."""
    found: dict[str, Any] = {}
    for role, child in {**children(pid), "supervisor": pid}.items():
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            files = len(os.listdir(f"/proc/{child}/fd"))
            found[role] = {"mb": round(kilobytes / 1024, 1), "files": files}
    shared = [path for path in channel_path("x").parent.glob(f"*{_NAME}.learn.*") if path.is_file()]
    return {"processes": found, "shared": len(shared)}


def growth(samples: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Memory and files of each process: means of the last quarter beside the second one."""
    found: dict[str, dict[str, float]] = {}
    quarter = len(samples) // 4
    for role in (*ROLES, "supervisor"):
        for what in ("mb", "files"):
            parts = [
                [one["processes"][role][what] for one in some if role in one["processes"]]
                for some in (samples[quarter : 2 * quarter], samples[3 * quarter :])
            ]
            if all(parts):
                early, late = (sum(part) / len(part) for part in parts)
                found.setdefault(role, {})[what] = round(late / early, 3)
    return found


def summary(record: dict[str, Any]) -> str:
    """Lines of the terminal."""
    worst = record["over_limits"]
    same = record["learned_position"] == record["position"]
    good = not (record["sessions_out_of_order"] or record["lost"]) and same
    return "\n".join([
        f"{len(record['kills'])} kills in {record['minutes']:g} min: {record['frames']:,} frames "
        f"of {record['sessions']} sessions, {record['steps']:,} steps, "
        f"{len(record['lost'])} lost, {len(record['sessions_out_of_order'])} out of order; "
        f"learned from entry {record['learned_position']:,} of {record['position']:,}: "
        + ("as it must be" if good else "WRONG"),
        f"largest speed {worst['speed'][0]:.2f} of the limit ({_where(worst['speed'])}), position "
        f"{worst['position'][0]:.3f} rad beyond one ({_where(worst['position'])})",
        f"ended with {record['exit_code']}, from '{record['safety_before']}'; left: "
        f"{record['left'] or 'nothing'}",
        "last quarter beside the second: " + json.dumps(record["growth"]),
    ])  # fmt: skip


def _where(worst: Sequence[Any]) -> str:
    """Joint and state of a value of `Watch.worst`."""
    return " in ".join(filter(None, worst[1:])) or "no joint"


def children(pid: int) -> dict[str, int]:
    """Processes of a run: role -> id."""
    found: dict[str, int] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has just died
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
            found |= {word[5:]: int(child) for word in words if word.startswith("role=")}
    return {role: one for role, one in found.items() if is_running(one)}


def _robot(run: Path) -> RobotSpec:
    """The robot of a run."""
    from configs.compose import read_only_options
    from robot_rl.cli.learning.environment import robot_spec
    from robot_rl.cli.resume import resumed_config
    from robot_rl.training.runs.run_folder import RunFolder

    config = resumed_config(RunFolder.open(run), ())
    words = [word for word in _WORDS if word.startswith(("twin.", "person="))]
    robot = robot_spec(config, read_only_options(LearnOptions, words)).robot
    assert robot is not None
    return robot
