"""Commands called in this process, as the tests of `robot_rl.cli` call them."""

from tests.robot_rl.cli.conftest import (
    command,
    domain,
    finished,
    finished_run,
    go2_bundle,
    here,
    refused,
    train_only,
)

__all__ = [
    "command", "domain", "finished", "finished_run", "go2_bundle", "here", "refused", "train_only",
]  # fmt: skip
