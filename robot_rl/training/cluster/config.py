"""What is told about collectors in processes of their own."""

from dataclasses import dataclass

from robot_rl.core.errors import ConfigError

SMALLEST_BLOCK = 32
"""Below so many rows, sending a block costs more than collecting it."""


@dataclass(kw_only=True)
class ClusterConfig:
    """How many processes collect for one learner, and where (docs/parallel.md)."""

    collectors: int = 0
    """Processes with an equal share of the worlds each; 0 collects in the learner's own process."""
    address: str = ""
    """Ray cluster that they run in, such as auto or 10.0.0.1:6379; empty starts one here."""
    rows: int = 256
    """Transitions that a collector sends at once, at least: whole steps of its worlds."""
    device: str = "cpu"
    """Where its worlds live: cpu, or cuda, which takes a GPU of the cluster for each."""
    cpus: float = 1.0
    """Cores that the cluster sets aside for each."""
    start_seconds: float = 120.0
    """How long they may take to come up [s]."""
    answer_seconds: float = 60.0
    """How long one may take for a block before another takes its place [s]."""

    def __post_init__(self) -> None:
        """Refuse clusters that cannot work."""
        if self.collectors < 0:
            raise ConfigError(f"cluster.collectors must be at least 0, got {self.collectors}")
        if self.rows < SMALLEST_BLOCK:
            raise ConfigError(f"cluster.rows must be at least {SMALLEST_BLOCK}, got {self.rows}")
        if self.device not in ("cpu", "cuda"):
            raise ConfigError(f"cluster.device must be cpu or cuda, got '{self.device}'")
        for name in ("cpus", "start_seconds", "answer_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"cluster.{name} must be above 0, got {getattr(self, name)}")

    def share(self, num_envs: int) -> int:
        """Worlds of each collector.

        Raises:
            ConfigError: They cannot have equal shares.
        """
        if num_envs % self.collectors:
            lower = num_envs // self.collectors * self.collectors
            raise ConfigError(
                f"num_envs={num_envs} was asked of {self.collectors} collectors, which must have "
                f"equal shares; take a multiple of {self.collectors}, such as "
                f"{lower or self.collectors}"
            )
        return num_envs // self.collectors

    def steps(self, num_envs: int) -> int:
        """Steps of its worlds that a collector sends at once."""
        return -(-self.rows // self.share(num_envs))
