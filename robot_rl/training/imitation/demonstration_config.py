"""What a run that learns from demonstrations is told about them."""

from dataclasses import dataclass

from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class DemonstrationConfig:
    """What is learned from, and when it has been learned."""

    data: str = ""
    """Folder of a data set of episodes (docs/data.md)."""
    validation_share: float = 0.1
    """Share of the episodes that are held out, at least one; 0 holds none out."""
    successes_only: bool = False
    """Leave out episodes that did not succeed."""
    episodes: int = 0
    """Learn from the first so many episodes, those held out among them; 0 takes all."""
    patience: int = 0
    """Stop after so many evaluations without a lower validation loss; 0 goes on to the end."""

    def __post_init__(self) -> None:
        """Refuse splits that leave nothing."""
        if not 0 <= self.validation_share < 1:
            raise ConfigError(
                "training.demonstrations.validation_share must lie in [0, 1), got "
                f"{self.validation_share}"
            )
        for name in ("episodes", "patience"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"training.demonstrations.{name} must be >= 0, got {getattr(self, name)}"
                )
        if self.patience and not self.validation_share:
            raise ConfigError(
                f"training.demonstrations.patience={self.patience} waits for a validation loss; "
                "give a validation_share above 0"
            )
