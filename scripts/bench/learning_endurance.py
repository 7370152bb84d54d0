"""`robot-rl learn` on the simulated peg robot with a simulated person: kills, and a long life.

Processes are killed at random moments, a console beside them too, and the connection between robot
and learner is cut. Afterwards the learner's log must hold every step that was on the robot's disk
when its actor died, once and in order, with the labels that were pressed, and the learner must have
learned from what the log holds. Meanwhile the robot's joints are compared with their limits, and
the memory, files and shared memory of all processes are counted. The state of the robot at the end
is compared with that of a run in which nothing is killed.
"""

import contextlib
import ctypes
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardware.control.ipc import ArraySubscriber, StatusSubscriber, channel_path
from hardware.control.process import RobotChannels
from hardware.control.safety import SafetyState
from robot_rl.cli.learning.options import LearnOptions, experience_folder, robot_folder
from robot_rl.core.process import clean_environ
from robot_rl.core.robot import RobotSpec
from robot_rl.link.records import Frame
from robot_rl.link.store import Begun, ExperienceStore
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.storage.checkpoint import CheckpointStore
from scripts.bench.deployment.endurance import is_running
from scripts.bench.pressed_keys import KeyPresser, LabelCheck, Press

ROLES = ("loop", "actor", "person", "learner", "console")
"""Processes that are killed."""
_LINK = "link"
"""The connection between robot and learner, which is cut."""
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
_LONGEST_CUT = 3.0
"""Time for which every connection to the learner is cut, at most [s]."""
_CONSOLE_PAUSE = 1.0
"""Time after which somebody starts a console again [s]."""
_UNHARMED_MINUTES = 0.25
_WORKING = (SafetyState.POLICY.value, SafetyState.HUMAN.value)
_PIDFD_GETFD = 438  # its number on every processor: include/uapi/asm-generic/unistd.h of Linux
_LOG_MAGIC, _LOG_HEAD = 8, struct.Struct("<II")


@dataclass(kw_only=True)
class LearningEndurance:
    """Size of the measurement."""

    folder: Path
    """For the run and its output."""
    minutes: float = 10.0
    kills: int = 30
    """At random moments, of random processes or of the connection; 0 only looks on."""
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
        record = self._measure(say)
        if self.kills:
            say("now a run in which nothing is killed, for its state at the end")
            other = replace(
                self, folder=self.folder / "unharmed", minutes=_UNHARMED_MINUTES, kills=0,
                samples=[],
            )  # fmt: skip
            record["safety_without_kills"] = other._measure(say)["safety"]
        say(summary(record))
        return record

    def _measure(self, say: Callable[[str], None]) -> dict[str, Any]:
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
            with (
                ConsoleBeside(run) as console,
                KeyPresser(console.address, random.Random(self.seed)) as keys,
            ):
                beside = _Beside(process, console, run, watch)
                beside.wait(lambda: console.pid is not None)
                kills = self._live(beside, rng, say)
            self._settle(process, run, watch)
            before = watch.safety
            process.send_signal(signal.SIGINT)
            after = self._end(process, watch)
        finally:
            if process.poll() is None:
                process.kill()
        record = {
            "minutes": self.minutes, "kills": kills, "exit_code": process.returncode,
            "safety": [before, after], "over_limits": watch.worst, "samples": self.samples,
            **compare(run, kills, keys.presses),
            "left": sorted(
                path.name for path in channel_path("x").parent.glob(f"*{_NAME}.learn.*")
            ),
        }  # fmt: skip
        record["growth"] = growth(self.samples)
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
        self, beside: "_Beside", rng: random.Random, say: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        begin = time.monotonic()
        moments = sorted(rng.uniform(0, 60 * self.minutes) for _ in range(self.kills))
        roles = [(*ROLES, _LINK)[i % (len(ROLES) + 1)] for i in range(self.kills)]
        rng.shuffle(roles)
        kills: list[dict[str, Any]] = []
        sampled = -_SAMPLE_SECONDS
        while (now := time.monotonic() - begin) < 60 * self.minutes:
            if beside.process.poll() is not None:
                raise RuntimeError(f"it ended by itself; see {self.folder / 'output.txt'}")
            beside.look()
            if moments and now >= moments[0]:
                moments.pop(0)
                role = roles.pop()
                cut_seconds = rng.uniform(0, _LONGEST_CUT)
                kills.append(beside.cut(cut_seconds) if role == _LINK else beside.kill(role))
                say(f"{now:.0f} s: kill {len(kills)} of {self.kills}: {kills[-1]}")
            if now >= sampled + _SAMPLE_SECONDS:
                sampled = now
                self.samples.append({"time": now, **usage(beside.children)})
            time.sleep(0.005)
        return kills

    def _settle(self, process: "subprocess.Popen[bytes]", run: Path, watch: "Watch") -> None:
        """Let the learner that was killed last hear what it missed, and the robot be led again.

        A robot that stays in a safe state is waited for in vain, which the record shows.
        """
        before, begin = len(read_metrics(run / "metrics.jsonl")), time.monotonic()
        while time.monotonic() < begin + _START_SECONDS and process.poll() is None:
            watch.look()
            heard = len(read_metrics(run / "metrics.jsonl")) > before + 3
            if heard and watch.safety in _WORKING:
                return
            time.sleep(0.1)

    def _end(self, process: "subprocess.Popen[bytes]", watch: "Watch") -> str:
        """Wait for the end; returns the last state that the robot's loop told."""
        end, last = time.monotonic() + _END_SECONDS, ""
        while process.poll() is None and time.monotonic() < end:
            watch.look()
            last = watch.safety or last
            time.sleep(0.001)
        process.wait(1.0)
        return last


class ConsoleBeside:
    """A console beside the run, which is started again when it dies. Use it as a context."""

    def __init__(self, run: Path) -> None:
        """Prepare."""
        self._run, self._output = run, run / "console.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._due = 0.0

    def __enter__(self) -> "ConsoleBeside":
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_END_SECONDS)

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none that serves."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and running and self.address() else None

    def address(self) -> str:
        """Address for one browser; empty while there is no console."""
        found = re.findall(r"http://\S+token=\S+\n", self._output.read_text())
        return found[-1].strip() if found else ""

    def look(self) -> None:
        """Start it, where it is due."""
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._process, self._due = None, now + _CONSOLE_PAUSE
            self._output.write_text("")
        if self._process is None and now >= self._due:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "robot_rl.cli", "console", "port=0", "view=false",
                     f"channels={LearnOptions(name=_NAME).channels}", f"out={self._run}"],
                    stdout=output, stderr=subprocess.STDOUT, env=clean_environ({}),
                )  # fmt: skip


@dataclass
class _Beside:
    """What runs, and how it is harmed."""

    process: "subprocess.Popen[bytes]"
    console: ConsoleBeside
    run: Path
    watch: "Watch"

    @property
    def children(self) -> dict[str, int]:
        """Processes: role -> id."""
        pid = self.console.pid
        found = {**children(self.process.pid), "supervisor": self.process.pid}
        return found if pid is None else {**found, "console": pid}

    def look(self) -> None:
        """Compare the newest state, and look after the console."""
        self.watch.look()
        self.console.look()

    def kill(self, role: str) -> dict[str, Any]:
        """Kill a process, and wait until another has taken its place."""
        self.wait(lambda: role in self.children)  # it may have died a moment ago
        victim = self.children.get(role)
        if victim is None:
            return {"role": role, "was": "absent"}
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        found: dict[str, Any] = {"role": role}
        if role == "actor":
            while is_running(victim):
                time.sleep(0.001)
            found["spooled"] = spooled(robot_folder(self.run, _NAME) / "spool")
        back = self.wait(lambda: self.children.get(role, victim) != victim)
        return found | {"back_seconds": round(time.monotonic() - begin, 2) if back else None}

    def cut(self, seconds: float) -> dict[str, Any]:
        """Cut all connections to the learner, those of a while too; wait until there is one."""
        count = 0

        def cut() -> bool:
            nonlocal count
            count += len(connections(self.children.get("learner"), cut=True))
            return count > 0

        self.wait(cut)
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self.look()
            cut()
            time.sleep(0.01)
        ended = time.monotonic()
        back = self.wait(lambda: bool(connections(self.children.get("learner"))))
        return {
            "role": _LINK, "seconds": round(seconds, 2), "cut": count,
            "back_seconds": round(time.monotonic() - ended, 2) if back else None,
        }  # fmt: skip

    def wait(self, until: Callable[[], bool]) -> bool:
        """Look on until something is so; False where it is not within a minute."""
        end = time.monotonic() + _BACK_SECONDS
        while time.monotonic() < end:
            self.look()
            if until():
                return True
            time.sleep(0.01)
        return False


def connections(pid: int | None, *, cut: bool = False) -> list[str]:
    """Open TCP connections of a process that is a child of this one, by the other side.

    Args:
        pid: Its id; None has no connections.
        cut: Shut them down, so that both sides lose them.
    """
    found: list[str] = []
    with contextlib.suppress(OSError):  # it has died
        process = os.pidfd_open(pid or 0)
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    found += _connection(process, int(name), cut)
        finally:
            os.close(process)
    return found


def _connection(process: int, number: int, cut: bool) -> list[str]:
    """The other side of a process's socket, if it is a TCP connection."""
    own = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, number, 0)
    if own < 0:
        return []
    with socket.socket(fileno=own) as one, contextlib.suppress(OSError):  # one that only listens
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
            peer = str(one.getpeername())
            if cut:
                one.shutdown(socket.SHUT_RDWR)
            return [peer]
    return []


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
        self.safety = ""
        """State of the loop's machine when it was last looked at; empty while there is no loop."""
        self.worst = {"speed": (0.0, "", ""), "position": (0.0, "", "")}
        """Largest measured speed, as a multiple of a limit, and way beyond one [rad], of which
        joint, and in which state of the safety machine."""

    def look(self) -> None:
        """Compare the newest state."""
        safety = self._status.safety
        self.safety = "" if safety is None else safety.value
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


def compare(run: Path, kills: Sequence[dict[str, Any]], presses: Sequence[Press]) -> dict[str, Any]:
    """The learner's log beside the robot's disk, pressed keys, and the last checkpoint."""
    store = ExperienceStore(experience_folder(run))
    labels, sessions, steps = LabelCheck(), dict[str, list[int]](), 0
    counts = Counter[str]()
    for _, entry in store.read(0):
        counts[entry.session] += not isinstance(entry, Begun)
        if isinstance(entry, Frame):
            sessions.setdefault(entry.session, []).append(entry.seq)
        steps += labels.take(entry)
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
        "sessions_out_of_order": gaps, "lost": lost, "labels": labels.compare(presses),
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


def usage(processes: Mapping[str, int]) -> dict[str, Any]:
    """Memory that is a process's own [MB] and open files, by role; and files of shared memory."""
    found: dict[str, Any] = {}
    for role, child in processes.items():
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
    worst, labels = record["over_limits"], record["labels"]
    same = record["learned_position"] == record["position"]
    good = not (record["sessions_out_of_order"] or record["lost"] or labels["wrong"]) and same
    harmed = Counter(kill["role"] for kill in record["kills"])
    before, after = record["safety"]
    unharmed = record.get("safety_without_kills")
    return "\n".join([
        f"{len(record['kills'])} kills in {record['minutes']:g} min ({dict(harmed)}): "
        f"{record['frames']:,} frames "
        f"of {record['sessions']} sessions, {record['steps']:,} steps, "
        f"{len(record['lost'])} lost, {len(record['sessions_out_of_order'])} out of order; "
        f"learned from entry {record['learned_position']:,} of {record['position']:,}: "
        + ("as it must be" if good else "WRONG"),
        f"{labels['pressed']} keys, replies {labels['replies']}, stored {labels['stored']}, "
        f"{labels['late']} after their episode; {len(labels['wrong'])} wrong",
        *labels["wrong"][:10],
        f"largest speed {worst['speed'][0]:.2f} of the limit ({_where(worst['speed'])}), position "
        f"{worst['position'][0]:.3f} rad beyond one ({_where(worst['position'])})",
        f"ended with {record['exit_code']}, from '{before}' in '{after}'"
        + (f"; without kills from '{unharmed[0]}' in '{unharmed[1]}'" if unharmed else "")
        + f"; left: {record['left'] or 'nothing'}",
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
