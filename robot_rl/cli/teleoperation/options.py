"""Options of `robot-rl teleop`."""

from dataclasses import dataclass, field

from robot_rl.cli.learning.twin_robot import TwinRobotConfig
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class TeleopOptions:
    """Options of the command beside the fields of a run."""

    out: str = ""
    """Folder of the data set."""
    person: str = "simulated"
    """simulated, or a device of this computer."""
    episodes: int = 20
    """That are to be in the data set, those of before included."""
    only_successes: bool = False
    """Leave out episodes that did not meet the task's success rule."""
    attempts: int = 0
    """Episodes to play at most; 0 for ten times as many as are wanted."""
    seconds: float = 10.0
    """Length of an episode [s]."""
    skill: str = "human"
    """Of a simulated person: human or perfect."""
    append: bool = False
    """Go on with the data set if it exists."""
    twin: TwinRobotConfig = field(default_factory=TwinRobotConfig)
    """Actions, rewards and resets, as of `robot-rl learn`."""

    def __post_init__(self) -> None:
        if not self.out:
            raise ConfigError("out is empty; say where the data set goes, as out=datasets/peg")
        if self.episodes < 1 or self.attempts < 0:
            raise ConfigError(
                f"expected episodes >= 1 and attempts >= 0, got {self.episodes}, {self.attempts}"
            )
        if not self.seconds > 0:
            raise ConfigError(f"seconds must be > 0, got {self.seconds:g}")
        if self.skill not in ("human", "perfect"):
            raise ConfigError(f"skill must be human or perfect, got '{self.skill}'")
