"""Whether the memory for transitions is there, asked before it is taken: the system kills late."""

from pathlib import Path

import psutil
import torch

from robot_rl.buffers.row_layout import RowLayout
from robot_rl.core.errors import ConfigError


def check_memory(needed: int, device: torch.device, *, copies: int, what: str, remedy: str) -> None:
    """Refuse what does not fit.

    Args:
        needed: Bytes, by each process.
        device: Where they will lie.
        copies: Processes of this machine; each has a GPU of its own, and they share the memory.
        what: Who needs them; begins the message.
        remedy: What to do; ends it.

    Raises:
        ConfigError: The device has not so many left.
    """
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if not on_gpu:
        needed *= copies
    if needed > free:
        raise ConfigError(
            f"{what}: {needed / 1e6:,.0f} MB on {device} are needed, but only "
            f"{free / 1e6:,.0f} MB are free; {remedy}"
        )


def check_room(
    path: Path, count: int, layout: RowLayout, device: torch.device, copies: int
) -> None:
    """Refuse stored transitions that do not fit; the run's own have their memory by then.

    Args:
        path: Where they are stored.
        count: How many.
        layout: Of a row.
        device: Where they will lie.
        copies: Processes of this machine that hold them.

    Raises:
        ConfigError: They do not.
    """
    check_memory(
        count * layout.row_bytes, device, copies=copies,
        what=f"the {count:,} transitions of {path}",
        remedy="take a part of them (scripts/data.py split ...), or a machine with more",
    )  # fmt: skip
