"""One stored transition of one world as one row of float32: which column is what."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError, ShapeError, unknown_name

FLAGS = ("terminated", "truncated", "valid", "intervened")


class RowLayout:
    """Columns of a packed row: obs groups, action, reward or its terms, next groups, flags.

    Packing makes storing one concatenation and sampling one `index_select`, whatever the number of
    groups.
    """

    def __init__(self, spec: EnvSpec, groups: Sequence[str]) -> None:
        """Lay out the columns.

        Args:
            spec: Environment whose transitions are stored.
            groups: Observation groups that a learner reads; others are not stored.

        Raises:
            ConfigError: A group is unknown or not a float32 vector.
        """
        self.groups = tuple(groups)
        self.reward_names = spec.reward_names
        columns: dict[str, slice] = {}
        start = 0

        def add(name: str, width: int) -> None:
            nonlocal start
            columns[name] = slice(start, start + width)
            start += width

        for prefix in ("obs/", "next_obs/"):
            for group in self.groups:
                add(prefix + group, _vector_width(spec, group))
            if prefix == "obs/":
                add("action", spec.action_size)
                add("reward", max(1, len(spec.reward_names)))
        for flag in FLAGS:
            add(flag, 1)
        self.columns = columns
        self._widths = [column.stop - column.start for column in columns.values()]
        self.width = start
        """W: floats per row."""
        self.row_bytes = 4 * start
        """Of a row in float32."""

    def pack(self, obs: Obs, step: EnvStep, out: Tensor) -> None:
        """Write one step of N worlds.

        Args:
            obs: What was acted on, groups (N, ...).
            step: What came of it.
            out: Rows to fill, (N, W).

        Raises:
            ShapeError: The step is not what the environment's spec says.
        """
        reward = step.reward[:, None] if step.reward_terms is None else step.reward_terms
        flags = [step.terminated, step.truncated, step.valid, step.intervened]
        parts = [
            *(obs[group] for group in self.groups),
            step.action,
            reward,
            *(step.next_obs[group] for group in self.groups),
            torch.stack(flags, dim=-1).to(out.dtype),
        ]
        widths = [part.shape[-1] for part in parts]
        if sum(widths) != self.width:  # torch.cat would write into the next row
            raise ShapeError(
                f"a step was to be stored in rows of {self.width} floats, but has {widths}; "
                f"expected the columns {list(self.columns)} of the environment's spec"
            )
        torch.cat(parts, dim=-1, out=out)
        # A faulted world may hold NaN, which no weight of zero would silence.
        if out.device.type != "cpu" or not bool(step.valid.all()):
            keep = step.valid[:, None]
            out.copy_(torch.where(keep, out, torch.zeros((), device=out.device)))

    def split(self, rows: Tensor) -> dict[str, Tensor]:
        """All parts by name as views, each (..., width).

        One call for all: in small batches a slice costs as much as a copy.
        """
        return dict(zip(self.columns, rows.split(self._widths, dim=-1), strict=True))

    def obs(self, part: Mapping[str, Tensor], prefix: str) -> Obs:
        """Observation groups under `obs/` or `next_obs/` among split parts, each (..., D)."""
        return {group: part[prefix + group] for group in self.groups}


def _vector_width(spec: EnvSpec, group: str) -> int:
    if group not in spec.groups:
        raise ConfigError(unknown_name("observation group", group, spec.groups))
    shape, dtype = spec.groups[group].shape, spec.groups[group].dtype
    if len(shape) != 1 or dtype is not torch.float32:
        raise ConfigError(
            f"replay stores float32 vectors; group '{group}' has shape {shape} and type {dtype}"
        )
    return shape[0]
