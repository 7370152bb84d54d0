"""What was played in a trial, and what came of it."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from configs.schema import RunConfig
from robot_rl.cli.parts import TrainedPolicy
from robot_rl.core.env import BatchEnv
from robot_rl.training.evaluation import Evaluation
from robot_rl.training.runs.run_folder import RunFolder

STATISTICS = ("mean", "median", "p95", "max")
"""What is told of a distribution."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What was played and what came of it."""

    run: RunFolder
    config: RunConfig
    env: BatchEnv
    policy: TrainedPolicy
    result: Evaluation
    tilt: Tensor | None
    """Lean at the start, (N,), [rad]; None for a fixed base and in foreign environments."""
    bundle: Path | None = None
    """The bundle that flew; None where torch did."""
    bundle_difference: float = 0.0
    """Largest difference between an action of the bundle and one of torch."""

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Distribution of every final metric over the episodes that lasted to their time limit."""
        complete = ~self.result.terminated
        return {name: _describe(v[complete]) for name, v in self.result.metrics.items()}


def _describe(values: Tensor) -> dict[str, float]:
    values = values[values.isfinite()].double()
    if values.numel() == 0:
        return dict.fromkeys(STATISTICS, float("nan"))
    numbers = (values.mean(), values.median(), values.quantile(0.95), values.max())
    return dict(zip(STATISTICS, map(float, numbers), strict=True))
