"""What a trial of a policy can be told; loads neither torch nor a simulator."""

from dataclasses import dataclass

from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class EvaluateOptions:
    """What the command takes beside the fields of the run."""

    run: str = ""
    """Folder of the run, or `latest`."""
    checkpoint: str = "best"
    """best, latest, or the folder of a checkpoint."""
    bundle: str = ""
    """Folder of a bundle to fly instead of the checkpoint."""
    episodes: int = 1000
    """N: episodes, one per world."""
    seed: int = 2_000_003
    """Chooses starts, goals, physical parameters and noise."""
    device: str = "cpu"
    """Where the worlds and the policy live."""
    threads: int = 1
    """CPU threads of torch."""
    video: bool = True
    """Plot flights and render a video."""
    out: str = ""
    """Folder of the result."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        for name, lowest in (("episodes", 1), ("threads", 1), ("seed", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if not self.run and not self.bundle:
            raise ConfigError("run is empty; say which: run=runs/..., run=latest or bundle=...")
