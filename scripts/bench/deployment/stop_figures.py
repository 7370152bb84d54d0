"""Time until the robot is safe: after an emergency stop over ROS 2, and after its policy dies."""

import random
import time
from collections.abc import Callable
from pathlib import Path

from hardware.control.safety import SafetyState
from robot_rl.cli.deployment.operator import DeploymentError
from scripts.bench.deployment.figures import Figure, counted, p99
from scripts.bench.deployment.journal import Journal
from scripts.bench.deployment.monitors import WatchedRobot
from scripts.bench.deployment.rehearsal import Rehearsal, options_for

ESTOP_MS, BEYOND_MS = 100.0, 20.0
"""Bars of a deployment."""
_HEARD_SECONDS = 10.0
_LOST = 3
"""Tries per sample: on a busy machine the robot may stop by itself before it is asked to."""


def measure_stops(
    folder: Path, bundle: Path, *, presses: int, kills: int, domain: int, patience: float
) -> list[Figure]:
    """Press and kill, from a policy in charge every time.

    Args:
        folder: For files that are needed meanwhile.
        bundle: A policy.
        presses: Of the emergency stop.
        kills: Of the policy.
        domain: ROS_DOMAIN_ID.
        patience: Factor on what the robot waits for.
    """
    options = options_for(bundle, domain=domain, patience=patience)
    journal = Journal(folder / "stops")
    with Rehearsal(options, {"robot": WatchedRobot(journal=folder / "stops")}) as rehearsal:
        rehearsal.bring_to_policy()
        estop = rehearsal.button("estop")
        timeout = rehearsal.operator.parts.limits.command_late

        def press() -> float | None:
            begin = time.monotonic()
            estop()
            found = journal.find(
                lambda entry: entry["time"] >= begin and entry["after"] == "estop", _HEARD_SECONDS
            )
            if found is None:
                raise DeploymentError(
                    f"the emergency stop was pressed, and after {_HEARD_SECONDS:g} s the robot "
                    "still moves"
                )
            return 1e3 * (found["time"] - begin)

        def kill() -> float | None:
            begin = rehearsal.kill_policy()
            left = journal.find(
                lambda entry: entry["time"] >= begin and entry["before"] == "policy",
                _HEARD_SECONDS + timeout,
            )
            rehearsal.restart_policy()
            return None if left is None else 1e3 * (left["time"] - begin - timeout)

        pressed = [_sample(rehearsal, press, "an emergency stop") for _ in range(presses)]
        killed = [_sample(rehearsal, kill, "a killed policy") for _ in range(kills)]
    return [
        Figure(what="e-stop service -> damping in the twin, p99", value=p99(pressed), unit="ms",
               most=ESTOP_MS, note=counted(pressed)),
        Figure(what="policy killed -> safe, beyond the timeout, longest", value=max(killed),
               unit="ms", most=BEYOND_MS,
               note=f"of {len(killed)}; timeout {1e3 * timeout:g} ms after the last measurement "
                    "that was answered"),
    ]  # fmt: skip


def _sample(rehearsal: Rehearsal, measure: Callable[[], float | None], what: str) -> float:
    """One sample, at a random moment of the policy's reign."""
    for _ in range(_LOST):
        rehearsal.bring_to_policy()
        time.sleep(random.uniform(0.5, 0.6))
        if rehearsal.safety is SafetyState.POLICY and (found := measure()) is not None:
            return found
    raise DeploymentError(
        f"{what} could not be timed in {_LOST} tries: the policy loses the robot before; on a busy "
        "machine give more patience="
    )
