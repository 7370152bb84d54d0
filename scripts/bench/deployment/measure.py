"""All figures of a deployment, part by part: tables and bars for a terminal, records for JSON."""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardware.ros.compat import rclpy
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.core.errors import ConfigError
from scripts.bench.deployment.figures import Figure
from scripts.bench.deployment.loop_figures import Windows, measure_loop
from scripts.bench.deployment.rehearsal import options_for
from scripts.bench.deployment.returns import measure_returns
from scripts.bench.deployment.standing import write_standing_bundle
from scripts.bench.deployment.stop_figures import measure_stops


@dataclass(frozen=True, kw_only=True)
class DeploymentBench:
    """Subjects of the measurement, and its duration."""

    bundles: Sequence[Path] = ()
    """Policies whose returns are compared."""
    episodes: int = 50
    """Pairs of episodes per bundle."""
    seconds: float = 0.0
    """Longest episode [s]; 0 takes the task's."""
    times: bool = True
    """True to measure the figures that need no trained policy."""
    windows: Windows = field(default_factory=Windows)
    presses: int = 40
    """Of the emergency stop."""
    kills: int = 10
    """Of the policy."""
    patience: float = 1.0
    """Factor on what the robot waits for."""
    domain: int = 77
    """ROS_DOMAIN_ID."""

    def __post_init__(self) -> None:
        """Refuse what measures nothing."""
        if self.episodes < 2 or not 0 <= self.seconds < math.inf:
            raise ConfigError(
                "episodes must be at least 2 and seconds at least 0 and finite, got "
                f"{self.episodes} and {self.seconds:g}"
            )
        options_for(Path("any"), domain=self.domain, patience=self.patience)  # refuses both
        if not self.times and not self.bundles:
            raise ConfigError("returns_only was asked for, but whose? bundle=[runs/<run>/bundle]")

    def measure(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Measure everything that is asked for.

        Args:
            say: Takes lines of the terminal.

        Raises:
            RobotRLError: ROS 2 is missing, a bundle is none, or the deployment does not run.
        """
        for bundle in self.bundles:
            _ = Deployment(DeployOptions(bundle=str(bundle), domain=self.domain)).runner
        rclpy()  # says what to do where ROS 2 is missing
        record: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="robot_rl_deploy_") as name:
            if self.times:
                record |= self._times(Path(name), say)
            record["returns"] = [
                self._returns(Path(name) / f"returns_{number}", bundle, say)
                for number, bundle in enumerate(self.bundles)
            ]
        if not self.bundles:
            say("paired returns need a trained policy: bundle=[runs/<run>/bundle]")
        return record

    def _times(self, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        bundle = write_standing_bundle(folder / "standing")
        sections, figures = measure_loop(folder, bundle, self.windows, domain=self.domain)
        for section in sections:
            say("\n".join(section.lines()))
        say("the whole deployment, an untrained 256x256 actor on a go2 that stands")
        for figure in figures:
            say(figure.line)
        stops = measure_stops(
            folder, bundle, presses=self.presses, kills=self.kills, domain=self.domain,
            patience=self.patience,
        )  # fmt: skip
        for figure in stops:
            say(figure.line)
        found: list[Figure] = [*figures, *stops]
        return {
            "sections": [section.record() for section in sections],
            "figures": [figure.record() for figure in found],
        }

    def _returns(self, folder: Path, bundle: Path, say: Callable[[str], None]) -> dict[str, Any]:
        returns = measure_returns(
            folder, bundle, episodes=self.episodes, seconds=self.seconds, domain=self.domain,
            patience=self.patience, say=say,
        )  # fmt: skip
        say("\n".join(returns.lines()))
        return returns.record()
