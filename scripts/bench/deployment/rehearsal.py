"""A deployment that is measured: started, brought back to its policy as often as needed, ended."""

import multiprocessing
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from hardware.control.safety import SafetyState
from hardware.ros.compat import message
from hardware.ros.session import RosSession
from robot_rl.cli.deployment.operator import DeploymentError, Operator
from robot_rl.cli.deployment.options import LOOP_NODE, DeploymentParts, DeployOptions
from scripts.bench.deployment.monitors import quiet_policy

_TRIES = 3

Target = Callable[[DeploymentParts], None]


class Rehearsal:
    """Robot process, bridge and policy on a twin, and a person with a button."""

    def __init__(self, options: DeployOptions, targets: Mapping[str, Target]) -> None:
        """Start every process; use it as a context."""
        self.options = options
        self.operator = Operator(options, lambda _: None, {"policy": quiet_policy, **targets})
        self._person: RosSession | None = None

    def __enter__(self) -> "Rehearsal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._person is not None:
            self._person.close()
        self.operator.stop()

    @property
    def safety(self) -> SafetyState | None:
        """State of the robot now; None before it runs."""
        status = self.operator.status
        return None if status is None else status.safety

    def bring_to_policy(self) -> None:
        """Reset, arm and hand over as far as needed; what the robot refuses is tried again.

        Raises:
            DeploymentError: A process ended, or it does not get there.
        """
        operator, why = self.operator, ""
        for _ in range(_TRIES):
            try:
                if self.safety in (SafetyState.SAFE_STOP, SafetyState.ESTOP):
                    operator.reset()
                if self.safety is not SafetyState.POLICY:
                    operator.arm()
                    operator.hand_over()
                return
            except DeploymentError as error:
                why = str(error)
                self.check()
        raise DeploymentError(f"the policy did not get the robot in {_TRIES} tries: {why}")

    def check(self) -> None:
        """Raise DeploymentError if a process has ended."""
        for name, process in self.operator.processes.items():
            if process.exitcode is not None:
                raise DeploymentError(f"the process '{name}' ended with {process.exitcode}")

    def button(self, name: str) -> Callable[[], None]:
        """A service of the loop, found beforehand, so that a call costs no search.

        Raises:
            RosError: Nobody offers it.
        """
        plan = self.operator.plan
        if self._person is None:
            self._person = RosSession("person", namespace=plan.namespace, domain=plan.domain)
        kind = message("std_srvs", "Trigger")
        caller = self._person.caller(kind, f"{LOOP_NODE}/{name}")
        return lambda: caller(kind.Request())

    def kill_policy(self) -> float:
        """SIGKILL; returns when [s]."""
        process = self.operator.processes["policy"]
        now = time.monotonic()
        process.kill()
        process.join()
        return now

    def restart_policy(self) -> None:
        """Start one in the place of the killed."""
        context = multiprocessing.get_context("spawn")
        process = context.Process(
            target=quiet_policy, args=(self.operator.parts,), name="policy", daemon=True
        )
        process.start()
        self.operator.processes["policy"] = process


def options_for(bundle: Path, *, domain: int, patience: float) -> DeployOptions:
    """Options of a deployment on the twin."""
    return DeployOptions(bundle=str(bundle), domain=domain, patience=patience)
