"""Episodes in a deployment: who hosts them in the robot process, and who brings them about.

A deployed robot knows no episodes. For a comparison the twin's world is put at the start of one
while the policy is in charge, which no real robot can do:

1. Between episodes the world stands still: nothing falls while the robot is armed and handed over.
2. No new measurement comes until the policy takes that for a pause, and begins anew with its
   histories, as it does on a robot whose measurements had stopped.
3. The world is put at the start that a training world with this seed begins at, and stands there
   until the loop writes a command that answers a measurement of it.
4. Time passes, and the twin's task values every control step as in training.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.control.process import RobotProcess
from hardware.control.robot_loop import RobotLoop
from hardware.control.safety import SafetyState
from robot_rl.cli.deployment.operator import DeploymentError
from robot_rl.cli.deployment.options import DeploymentParts
from robot_rl.cli.deployment.processes import run_robot
from scripts.bench.deployment.journal import Journal
from scripts.bench.deployment.rehearsal import Rehearsal, options_for
from sim.twin import Twin

PATIENCE = 20.0
"""Least factor on what the robot waits for: it must bear the pause between two episodes."""
_SETTLE_SECONDS = 0.6
"""Of the policy in charge before an episode: the hand-over blends for 0.4 s."""
_PAUSE_SECONDS = 0.25
"""Measurements count as too old after 0.1 s, and the policy looks at least 25 times a second."""
_AGAIN_SECONDS = 0.05
"""After which a start that nobody has answered yet is measured anew."""
_SILENT_SECONDS = 90.0
"""Without any event, beyond the time that an episode takes."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """Outcome of one episode."""

    total_return: float
    """Undiscounted sum of rewards."""
    steps: int
    """Control steps until the task or the time ended it."""
    terminated: bool
    success: bool
    """In the task's words, at the end."""
    lost: str = ""
    """Why the robot took itself from the policy; empty where it did not."""
    clamped: float = 0.0
    """Share of the loop's ticks in which a limit changed the command."""
    answer: float = 0.0
    """Age of a measurement when the command that answers it is applied, median so far [s]."""
    seconds: float = 0.0
    """That it took, of the clock on the wall [s]; slower than real time on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class EpisodeRobot:
    """The robot process, with a host of episodes in it."""

    journal: Path
    seeds: Sequence[int]
    steps: int
    """Control steps after which an episode ends."""

    def __call__(self, parts: DeploymentParts) -> None:
        """Run it."""
        run_robot(parts, self._run)

    def _run(self, process: RobotProcess, twin: Twin, until: Callable[[], bool]) -> None:
        host = EpisodeHost(process.loop, twin, self.seeds, self.steps, Journal(self.journal))

        def look() -> bool:
            host.look(time.monotonic())
            return until()

        process.run(look)


class EpisodeHost:
    """Begins and ends episodes between the ticks of a loop."""

    def __init__(
        self, loop: RobotLoop, twin: Twin, seeds: Sequence[int], steps: int, journal: Journal
    ) -> None:
        """Host an episode for each seed, of so many control steps at most."""
        self._loop, self._twin = loop, twin
        twin.valued = True
        self._seeds, self._steps, self._journal = list(seeds), steps, journal
        self._stage = self._wait
        self._since, self._lost, self._stopped = math.inf, "", False
        self._clamped = self._ticks = self._rest = 0

    def look(self, now: float) -> None:
        """Once per tick.

        Args:
            now: Clock of the loop [s].
        """
        self._stage(now)
        if self._twin.frozen and self._loop.safety is SafetyState.POLICY:
            self._loop.restart()  # a target that goes on alone would be a joint that is caught

    def _wait(self, now: float) -> None:
        """For a policy that is in charge; a robot that was stopped gets another start to rest at.

        A soft stop needs a world that moves: it lasts until a drone has landed.
        """
        safety = self._loop.safety
        self._twin.frozen = safety is not SafetyState.SAFE_STOP
        if safety is SafetyState.POLICY and self._seeds:
            self._since = min(self._since, now)
            if now - self._since >= _SETTLE_SECONDS:
                self._since, self._stage = now, self._pause
            return
        self._since = math.inf
        if safety is SafetyState.PASSIVE and self._stopped:
            self._rest += 1  # some starts lean so far that nobody may hand them over
            self._begin(self._rest)
        self._stopped = safety is not SafetyState.PASSIVE

    def _begin(self, seed: int) -> None:
        self._twin.begin(seed)
        self._loop.restart()  # else its limits would lead from where the robot was

    def _pause(self, now: float) -> None:
        if self._gave_up():
            return
        self._twin.stamp = self._since
        if now - self._since >= _PAUSE_SECONDS:
            self._begin(self._seeds[0])
            self._stage = self._start

    def _start(self, now: float) -> None:
        if self._gave_up():
            return
        if self._loop.answered > self._since + _PAUSE_SECONDS / 2:
            self._twin.frozen, self._since, self._lost = False, now, ""
            status = self._loop.status
            self._clamped, self._ticks = status.clamped, status.ticks
            self._journal.write(begun=self._seeds.pop(0))
            self._stage = self._play
        elif now - self._twin.stamp > _AGAIN_SECONDS:
            self._begin(self._seeds[0])

    def _play(self, now: float) -> None:
        status = self._loop.status
        if status.safety is not SafetyState.POLICY and not self._lost:
            self._lost = status.trip or f"in '{status.safety.value}'"
        outcome = self._twin.outcome
        if not (outcome.terminated or outcome.steps >= self._steps):
            return
        self._journal.write(
            total_return=outcome.total_return, steps=outcome.steps,
            terminated=outcome.terminated, success=outcome.success, lost=self._lost,
            clamped=(status.clamped - self._clamped) / max(1, status.ticks - self._ticks),
            answer=float(np.median(self._loop.latencies.samples("answer"))),
            seconds=now - self._since,
        )  # fmt: skip
        self._begin(self._rest)
        self._since, self._stage = now - _SETTLE_SECONDS, self._wait

    def _gave_up(self) -> bool:
        """True if the policy lost the robot before the episode began; it is begun anew then."""
        if self._loop.safety is SafetyState.POLICY:
            return False
        self._since, self._stage = math.inf, self._wait
        return True


def deployed_episodes(
    folder: Path, bundle: Path, seeds: Sequence[int], *, steps: int, control_dt: float,
    domain: int, patience: float, say: Callable[[str], None],
) -> list[Episode]:  # fmt: skip
    """Deploy a bundle on the twin over ROS 2 and let it play an episode for each seed.

    An episode in which the robot stops its policy goes on until it would have ended: it counts
    with what the robot gets while it stops. The robot is armed again afterwards.

    Args:
        folder: For files that are needed meanwhile.
        bundle: The policy, with the plant that the twin is to have.
        seeds: Of the starts and goals.
        steps: Control steps of an episode.
        control_dt: Of one control step [s].
        domain: ROS_DOMAIN_ID.
        patience: Factor on what the robot waits for, at least `PATIENCE`.
        say: Takes lines about the progress.
    """
    options = options_for(bundle, domain=domain, patience=max(PATIENCE, patience))
    journal = Journal(folder / "episodes")
    robot = EpisodeRobot(journal=folder / "episodes", seeds=seeds, steps=steps)
    episodes: list[Episode] = []
    with Rehearsal(options, {"robot": robot}) as rehearsal:
        heard, at = -1, time.monotonic()
        while len(episodes) < len(seeds):
            entries = journal.read()
            ended = [entry for entry in entries if "begun" not in entry]
            if len(entries) > heard:
                heard, at = len(entries), time.monotonic()
            elif time.monotonic() - at > _SILENT_SECONDS + 5 * steps * control_dt:
                raise DeploymentError(
                    f"episode {len(ended) + 1} of {len(seeds)} did not end; the robot is in "
                    f"'{rehearsal.safety.value if rehearsal.safety else 'no state'}'"
                )
            for entry in ended[len(episodes) :]:
                episodes.append(Episode(**entry))
                say(_line(len(episodes), len(seeds), episodes[-1]))
            rehearsal.check()
            playing = len(entries) > 2 * len(ended)
            if not playing and len(ended) < len(seeds):
                rehearsal.bring_to_policy()
            time.sleep(0.1)
    return episodes


def _line(number: int, count: int, episode: Episode) -> str:
    told = f"    episode {number}/{count}: return {episode.total_return:.4g}"
    told += f" in {episode.steps} steps, {episode.seconds:.1f} s"
    return told + (f"; {episode.lost}" if episode.lost else "")
