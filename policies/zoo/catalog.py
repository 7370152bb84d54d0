"""Trained policies that come with the package: a bundle and its card in a folder each.

`zoo:<name>` stands for the folder wherever a bundle is named. `robot-rl zoo list` shows them;
`python -m scripts.zoo` trains, measures and writes them.
"""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from policies.decoding import decode, read_json
from robot_rl.core.errors import ConfigError, unknown_name

PREFIX = "zoo:"
"""Begins the name of a bundle that ships."""
CARD = "card.json"
"""File beside the bundle's own that says what its policy does, and how well."""
ROOT = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class ZooCard:
    """Facts of a policy that ships; every number was measured by the command beside it."""

    title: str
    """Its skill, in a sentence."""
    task: str
    robot: str
    sees: list[str]
    """Terms of the observation."""
    steps: int
    """Env-steps of its training, up to the checkpoint that was taken."""
    training: str
    """Command that trained it."""
    training_seconds: float
    """Wall time of the whole training [s]."""
    processor: str
    """That trained it."""
    evaluation: str
    """Command that measured what follows."""
    episodes: int
    success: float
    """Share of these episodes."""
    success_interval: list[float]
    """Of that share, 95 %."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Means at the ends of the episodes that lasted to their time limit, SI units."""
    drawn: dict[str, Any] = field(default_factory=dict[str, Any])
    """Physical parameters that are drawn in training and evaluation, as in the task's YAML."""
    commit: str = ""
    """Of the code that trained it."""
    date: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON has them."""
        return asdict(self)


def zoo_names() -> list[str]:
    """Names of the policies that ship."""
    return sorted(path.parent.name for path in ROOT.glob(f"*/{CARD}"))


def bundle_folder(given: Path | str) -> Path:
    """Folder of a bundle that is named by its path, or as zoo:<name>.

    Raises:
        ConfigError: No policy of that name ships.
    """
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"expected the folder of a bundle, or {PREFIX}<name>, got {given!r}")
    if not str(given).startswith(PREFIX):
        return Path(given)
    name = str(given).removeprefix(PREFIX)
    if name not in zoo_names():
        raise ConfigError(unknown_name("policy of the zoo", name, zoo_names()))
    return ROOT / name


def place_beside(bundle: Path | str) -> Path:
    """Folder for what is written beside a bundle: `runs` for one of the package."""
    folder = bundle_folder(bundle)
    return Path("runs") if folder.resolve().is_relative_to(ROOT.resolve()) else folder.parent


def read_card(name: str) -> ZooCard:
    """The card of a policy that ships.

    Raises:
        ConfigError: No policy of that name ships, or its card is damaged.
    """
    raw = (bundle_folder(PREFIX + name) / CARD).read_bytes()
    return decode(read_json(raw, CARD), ZooCard, CARD)
