"""Deployments at default options, many times, as a user starts them: `robot-rl deploy`.

Starts: does the policy stay in charge for as long as it was asked to, with a training beside it?
Faults: whatever process is killed or suspended, is the robot safe in time, is it shown, and is
nothing left behind?
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware.control.ipc import StatusSubscriber, channel_path
from hardware.control.process import RobotChannels
from hardware.control.safety import SafetyState
from robot_rl.cli.deployment.operator import DeploymentError
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.process import clean_environ
from scripts.bench.deployment.machine import MachinePauses
from scripts.bench.deployment.scripted import SCRIPTED

_START_SECONDS, _END_SECONDS = 90.0, 40.0
_SAFE = (SafetyState.HOLD, SafetyState.SAFE_STOP, SafetyState.ESTOP)
_SAFE_SECONDS, _SHOWN_SECONDS = 0.5, 1.1
"""Bars: a robot without commands is safe, and a silent one is shown: 0.5 s, and a line's time."""
_FROZEN_SECONDS = 3.0
VICTIMS = ("robot", "bridge", "policy", "operator")


@dataclass(kw_only=True)
class Endurance:
    """Size of the measurement."""

    robots: Sequence[str] = tuple(SCRIPTED)
    bundles: Sequence[Path] = ()
    """Trained policies, in the place of the scripted ones of their robots."""
    starts: int = 20
    """Of each robot."""
    seconds: float = 10.0
    """Time for which the policy is in charge."""
    kills: int = 60
    freezes: int = 30
    domain: int = 77
    """ROS_DOMAIN_ID."""
    found: Path = Path("outputs/endure.json")
    """Results so far; the same command goes on with what is missing."""

    def __post_init__(self) -> None:
        """Refuse robots that nobody knows."""
        for robot in self.robots:
            if robot not in SCRIPTED:
                raise ConfigError(unknown_name("robot", robot, SCRIPTED))

    def measure(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Measure what is missing.

        Args:
            say: Takes lines of the terminal.
        """
        record: dict[str, Any] = {"starts": {}, "faults": []}
        if self.found.is_file():
            record |= json.loads(self.found.read_text())
        self.found.parent.mkdir(parents=True, exist_ok=True)
        folder = self.found.parent / "endure"
        bundles = dict(self._bundles(folder))
        with training_beside(folder / "training"), MachinePauses() as machine:
            for robot, bundle in bundles.items():
                done = record["starts"].setdefault(robot, [])
                while len(done) < self.starts:
                    machine.take()
                    result = start(bundle, seed=len(done), seconds=self.seconds,
                                   domain=self.domain)  # fmt: skip
                    done.append({**result, "machine_ms": 1e3 * machine.take()})
                    say(f"{robot} {len(done)} of {self.starts}: {result['said']}; the machine "
                        f"itself paused for up to {done[-1]['machine_ms']:.0f} ms")  # fmt: skip
                    self._keep(record)
        self._faults(bundles, record["faults"], say, lambda: self._keep(record))
        say(summary(record))
        return record

    def _faults(
        self, bundles: Mapping[str, Path], done: list[dict[str, Any]],
        say: Callable[[str], None], keep: Callable[[], None],
    ) -> None:  # fmt: skip
        if not bundles:
            return
        bundle = bundles.get("go2") or next(iter(bundles.values()))
        for number in range(len(done), self.kills + self.freezes):
            random.seed(number)
            sent = signal.SIGKILL if number < self.kills else signal.SIGSTOP
            victim = VICTIMS[number % len(VICTIMS)]
            try:
                result = Trial(bundle, self.domain).run(victim, sent)
            except DeploymentError as error:
                result = {"victim": victim, "signal": sent.name, "good": False, "said": str(error)}
            done.append(result)
            say(f"fault {number + 1}: {done[-1]}")
            keep()

    def _bundles(self, folder: Path) -> Iterator[tuple[str, Path]]:
        given: dict[str, Path] = {}
        for bundle in self.bundles:
            spec = json.loads((bundle / "spec.json").read_bytes())
            given[spec["policy"]["robot"]["name"]] = bundle
        for robot in self.robots:
            bundle = given.get(robot, folder / robot)
            if not bundle.is_dir():
                SCRIPTED[robot](bundle)
            yield robot, bundle

    def _keep(self, record: Mapping[str, Any]) -> None:
        beside = self.found.with_suffix(".part")
        beside.write_text(json.dumps(record, indent=1))
        beside.replace(self.found)


@contextmanager
def training_beside(folder: Path) -> Iterator[None]:
    """A training of hover on the same cores, until the end."""
    command = [
        sys.executable, "-m", "robot_rl.cli", "train", "task=hover", f"runs={folder}",
        "training.total_steps=1_000_000_000",
    ]  # fmt: skip
    training = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environ()
    )
    try:
        yield
        if training.poll() is not None:
            raise DeploymentError("the training beside the deployments ended early")
    finally:
        training.kill()
        training.wait()
        shutil.rmtree(folder, ignore_errors=True)


def deploy_command(bundle: Path, domain: int, *more: str) -> list[str]:
    """The command that a user gives."""
    return [sys.executable, "-m", "robot_rl.cli", "deploy", f"bundle={bundle}",
            f"domain={domain}", *more]  # fmt: skip


def start(bundle: Path, *, seed: int, seconds: float, domain: int) -> dict[str, Any]:
    """One deployment from the command to its end."""
    command = deploy_command(bundle, domain, f"seconds={seconds:g}", f"seed={seed}")
    deployment = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_environ()
    )
    slow = ""
    try:
        told, _ = deployment.communicate(timeout=_START_SECONDS + seconds + _END_SECONDS)
    except subprocess.TimeoutExpired:
        deployment.send_signal(signal.SIGINT)
        told, _ = deployment.communicate(timeout=_END_SECONDS)
        slow = "did not end by itself; "
    lines, code = told.splitlines(), deployment.returncode
    margin = next((line for line in reversed(lines) if "oldest command" in line), "")
    wrong = next((line for line in reversed(lines) if line.startswith("error")), "")
    if slow:
        wrong = slow + " | ".join(lines[-3:])
    good = code == 0 and not slow
    said = "stayed in charge" if good else wrong or f"exit code {code}"
    left = left_behind(domain)
    return {"good": good and not left, "said": f"{said} {margin}".strip(), "left": left}


def left_behind(domain: int) -> list[str]:
    """Channels of a domain's deployments that are still there."""
    return sorted(name for name in os.listdir(channel_path("x").parent) if f".{domain}." in name)


class Trial:
    """One deployment to which one thing happens."""

    def __init__(self, bundle: Path, domain: int) -> None:
        """Start it and wait until the policy is in charge.

        Raises:
            DeploymentError: It does not come to that.
        """
        self._domain = domain
        self._lines: list[tuple[float, str]] = []
        began = time.monotonic()
        self._process = subprocess.Popen(
            deploy_command(bundle, domain), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=clean_environ(),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        robot = json.loads((bundle / "spec.json").read_bytes())["policy"]["robot"]["name"]
        self._status = StatusSubscriber(RobotChannels(f"{robot}.{domain}").status)
        if not self._within(_START_SECONDS, lambda: self._in_charge(began)):
            self._process.kill()
            raise DeploymentError(f"the policy did not get the robot: {self._lines[-3:]}")

    def run(self, victim: str, sent: signal.Signals) -> dict[str, Any]:
        """Send a signal to one of the processes, and look what becomes of the robot."""
        family = children(self._process.pid)
        pid = self._process.pid if victim == "operator" else family[victim]
        time.sleep(random.uniform(0.0, 2.0))
        begin = time.monotonic()
        os.kill(pid, sent)
        killed, robot = sent is signal.SIGKILL, victim == "robot"
        result: dict[str, Any] = {"victim": victim, "signal": sent.name}
        if victim in ("bridge", "policy") or (killed and victim == "operator"):
            safe = self._within(_SAFE_SECONDS, lambda: self._safety in (*_SAFE, None))
            result |= {"safe_ms": 1e3 * (time.monotonic() - begin), "safe": safe}
        if robot:
            shown = self._within(_SHOWN_SECONDS, lambda: self._shown(begin))
            result |= {"shown_ms": 1e3 * (time.monotonic() - begin), "shown": shown}
        if not killed:
            time.sleep(_FROZEN_SECONDS)
            os.kill(pid, signal.SIGCONT)
            if robot:
                result["safe"] = self._within(5.0, lambda: self._safety in (*_SAFE, None))
        self._end(killed and victim == "operator")
        gone = self._within(_END_SECONDS, lambda: not left_behind(self._domain))
        alive = [name for name, one in family.items() if is_running(one)]
        return {**result, "left": left_behind(self._domain), "alive": alive,
                "good": gone and not alive and result.get("safe", True)
                and result.get("shown", True)}  # fmt: skip

    def _end(self, orphans: bool) -> None:
        """End the deployment as a user would, and force it only where that fails."""
        if not orphans and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._status.close()
        self._reader.join(5.0)

    @property
    def _safety(self) -> SafetyState | None:
        return self._status.safety

    def _in_charge(self, since: float) -> bool:
        """Of this deployment, not one that was killed before it."""
        status = self._status.newest() if self._safety is SafetyState.POLICY else None
        return status is not None and status.time > since

    def _shown(self, since: float) -> bool:
        words = re.compile(r"not answered|has ended|silent|died")
        return any(at > since and words.search(line) for at, line in self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append((time.monotonic(), line.rstrip()))

    def _within(self, seconds: float, ready: Callable[[], bool]) -> bool:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True


def children(parent: int) -> dict[str, int]:
    """Processes of a deployment by what they do, from the words of their command lines."""
    import psutil

    found: dict[str, int] = {}
    names = ("robot", "bridge", "policy")  # in the order in which they are started
    spawned = [one for one in psutil.Process(parent).children() if "spawn_main" in
               " ".join(one.cmdline())]  # fmt: skip
    for name, one in zip(names, sorted(spawned, key=lambda p: p.pid), strict=True):
        found[name] = one.pid
    return found


def is_running(pid: int) -> bool:
    """True for a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except OSError:
        return False


def _beside_the_machine(done: Sequence[Mapping[str, Any]]) -> str:
    """Pauses of the machine itself, where it was watched: of good starts, and of others."""
    known = [one for one in done if "machine_ms" in one]
    if not known:
        return ""
    worst = max((one["machine_ms"] for one in known if one["good"]), default=0.0)
    failed = ", ".join(f"{one['machine_ms']:.0f}" for one in known if not one["good"])
    told = f"; the machine itself paused for up to {worst:.0f} ms in those"
    return told + (f", for {failed} ms in the others" if failed else "")


def summary(record: Mapping[str, Any]) -> str:
    """Counts, a line for each robot and each kind of fault."""
    lines = [
        f"{robot}: {sum(one['good'] for one in done)} of {len(done)} stayed in charge"
        + _beside_the_machine(done)
        for robot, done in record["starts"].items()
    ]
    for sent in ("SIGKILL", "SIGSTOP"):
        for victim in VICTIMS:
            done = [one for one in record["faults"]
                    if (one["victim"], one["signal"]) == (victim, sent)]  # fmt: skip
            if done:
                worst = max((one.get("safe_ms", 0.0) for one in done), default=0.0)
                shown = max((one.get("shown_ms", 0.0) for one in done), default=0.0)
                times = (f", safe within {worst:.0f} ms" if worst else "") + (
                    f", shown within {shown:.0f} ms" if shown else ""
                )
                good = sum(one["good"] for one in done)
                lines.append(f"{sent} of {victim}: {good} of {len(done)} good{times}")
    return "\n".join(lines)
