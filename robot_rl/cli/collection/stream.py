"""What tells the episodes of one command from those of another in the same data set.

Everything that decides them (worlds, experts, disturbance, seed, number of worlds) has a digest.
It is part of every episode's source, `<expert> <digest>/<number>`, so that the same command goes on
where it was, and lies in `meta/collected_<digest>.json` with what it is the digest of.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.compose import to_plain
from configs.schema import RunConfig
from robot_rl.cli.collection.experts import Expert
from robot_rl.cli.collection.options import CollectOptions, Share
from robot_rl.datasets.repair import COLLECTED
from robot_rl.training.runs.provenance import config_hash, git_state, package_versions
from robot_rl.training.storage.durable import replace_file, storage_errors

_LETTERS = 8
"""Of the digest."""
_DECIDES = ("noise", "bursts", "burst_steps", "noise_seconds", "starts", "words")
"""Options that change what an episode is."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Episodes of one command, numbered from 0."""

    content: dict[str, Any]
    """What decides them."""

    @property
    def name(self) -> str:
        """Digest of the content."""
        return config_hash(self.content)[:_LETTERS]

    def source(self, expert: str, number: int) -> str:
        """What is stored with an episode."""
        return f"{expert} {self.name}/{number}"

    def numbers(self, sources: Sequence[str]) -> set[int]:
        """Numbers of the episodes of this stream, out of all sources of a data set."""
        found = (re.fullmatch(rf".* {self.name}/(\d+)", one) for one in sources)
        return {int(one[1]) for one in found if one}

    def describe(self, folder: Path) -> None:
        """Write into a data set what the digest stands for.

        Raises:
            StorageError: The disk refused.
        """
        path = folder / "meta" / COLLECTED.format(self.name)
        if path.exists():
            return
        content = {
            **self.content,
            "git": git_state(Path(__file__).parent),
            "packages": package_versions(),
        }
        with storage_errors("write", path):
            replace_file(path, json.dumps(content, indent=1).encode())


def stream_of(
    options: CollectOptions, config: RunConfig, shares: Sequence[Share], experts: Sequence[Expert]
) -> Stream:
    """The stream of a command.

    Args:
        options: Of the command.
        config: Its worlds.
        shares: Of the experts.
        experts: Who acts, in the same order.
    """
    plain = to_plain(config)
    played = [
        {"name": expert.name, "identity": expert.identity, "share": one.share}
        for one, expert in zip(shares, experts, strict=True)
    ]
    worlds = {key: plain[key] for key in ("schemas", "env", "task", "robot")}
    worlds["schemas"] = {k: v for k, v in worlds["schemas"].items() if k != "learner"}
    return Stream(content={
        "experts": played,
        **{name: str(getattr(options, name)) for name in _DECIDES},
        "seed": config.seed,
        "num_envs": config.num_envs,
        "worlds": worlds,
    })  # fmt: skip
