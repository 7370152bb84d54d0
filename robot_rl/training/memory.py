"""Whether the memory for transitions is there, asked before it is taken: the system kills late."""

from pathlib import Path

import psutil
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.buffers.row_layout import RowLayout
from robot_rl.core.errors import ConfigError


def check_memory(needed: int, device: torch.device, *, what: str, remedy: str) -> None:
    """Refuse what does not fit.

    Args:
        needed: Bytes on this machine, by all its processes together.
        device: Where they will lie.
        what: Who needs them; begins the message.
        remedy: What to do; ends it.

    Raises:
        ConfigError: The device has not so many left.
    """
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if needed > free:
        raise ConfigError(
            f"{what}: {needed / 1e6:,.0f} MB on {device} are needed, but only "
            f"{free / 1e6:,.0f} MB are free; {remedy}"
        )


def check_room(path: Path, count: int, layout: RowLayout, own: ReplayBuffer, copies: int) -> None:
    """Refuse stored transitions that do not fit beside the run's own.

    Args:
        path: Where they are stored.
        count: How many.
        layout: Of a row.
        own: The run's replay, of which nothing is filled yet.
        copies: How many processes of this machine hold both.

    Raises:
        ConfigError: They do not.
    """
    device = own.generator.device
    needed = count * layout.width * 4  # float32
    if device.type != "cuda":
        needed = (needed + own.num_bytes) * copies
    check_memory(
        needed, device, what=f"the {count:,} transitions of {path}, beside the run's own",
        remedy="take a part of them (scripts/data.py split ...), or a machine with more",
    )  # fmt: skip
