"""Stored transitions: which column of a row is what, and the rewards and discounts made of rows.

One transition of one env is one row of float32. Ends of episodes are resolved in `Returns` alone,
and for rows on the CPU by the same rules in `gather.cpp`, whose results are equal:

- A termination ends the sum and the future: discount 0.
- A truncation ends the sum; the future counts from the true successor: discount gamma^k.
- An invalid row, and the newest row of a ring, are seams: the sum stops before the former and after
  the latter, and the future counts from the last valid successor.
- A row that is itself invalid gets weight 0.
- A chunk is the actions of n rows. Those behind the sum's last row are of another episode and not
  valid: a chunk is whole if its last action is not later than the episode's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.frames import is_image
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError, unknown_name
from robot_rl.core.meaning import meaning_difference, meaning_of_groups
from robot_rl.core.transition import Batch

FLAGS = ("terminated", "truncated", "valid", "intervened")


class RowLayout:
    """Columns of a packed row: obs groups, action, reward or its terms, next groups, flags.

    Packing makes storing one concatenation and sampling one `index_select`, whatever the number of
    groups. Images are no part of a row: `frames.py` keeps them.
    """

    def __init__(self, spec: EnvSpec, groups: Sequence[str]) -> None:
        """Lay out the columns.

        Args:
            groups: Observation groups that a learner reads; others are not stored.

        Raises:
            ConfigError: A group is unknown, and neither a float32 vector nor an image.
        """
        for group in groups:
            if group not in spec.groups:
                raise ConfigError(unknown_name("observation group", group, spec.groups))
        self.groups = tuple(name for name in groups if not is_image(spec.groups[name]))
        """Vectors among the groups."""
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
        """Write one step of N envs.

        Args:
            obs: What was acted on, groups (N, ...).
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
        # A faulted env may hold NaN, which no weight of zero would silence.
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
    shape, dtype = spec.groups[group].shape, spec.groups[group].dtype
    if len(shape) != 1 or dtype is not torch.float32:
        raise ConfigError(
            "replay stores float32 vectors and uint8 images (frames, height, width, channels); "
            f"group '{group}' has shape {shape} and type {dtype}"
        )
    return shape[0]


def describe_rows(layout: RowLayout, spec: EnvSpec) -> dict[str, Any]:
    """Columns in order, what their rewards are called, and whose they are; plain values."""
    return {
        "columns": [[name, column.stop - column.start] for name, column in layout.columns.items()],
        "reward_names": list(spec.reward_names),
        "control_dt": spec.control_dt,
        "robot": None if spec.robot is None else spec.robot.identity(),
        "meaning": meaning_of_groups(spec.meaning, layout.groups),
    }


def check_rows(saved: Mapping[str, Any], own: Mapping[str, Any], where: str) -> None:
    """Refuse saved rows that mean something else than one's own.

    Args:
        saved: From `describe_rows`, of the saved rows; may have more groups.
        own: The same of those they are to be mixed with.
        where: Where the saved rows are from, for the message.

    Raises:
        SpecMismatchError: A group or a width, the reward terms, the time step, the robot, or the
            meaning of actions or observations, where both tell it, differ; the message names both.
    """

    def refuse(what: str, theirs: object, ours: object, advice: str = "") -> None:
        raise SpecMismatchError(
            f"the transitions in {where} have {what} {theirs}, but this run has {what} {ours}; "
            "only transitions of the same robot, actions, observations, rewards and time step can "
            f"be mixed{advice}"
        )

    theirs: dict[str, int] = dict(saved["columns"])
    for name, width in own["columns"]:
        if name == "reward":
            continue  # as wide as it has names
        kind, _, group = name.partition("/")
        if name not in theirs:
            known, wanted = (
                [key.partition("/")[2] for key, _ in columns if key.startswith("obs/")]
                for columns in (saved["columns"], own["columns"])
            )
            refuse("the observation groups", known, wanted, _group_advice(group))
        if theirs[name] != width:
            what = f"observation group '{group}' of width" if group else f"{kind} of width"
            refuse(what, theirs[name], width)
    names = {"reward_names": "the reward terms", "control_dt": "the time step [s]"}
    for key, what in names.items():
        if saved[key] != own[key]:
            refuse(what, saved[key], own[key])
    one, two = saved["robot"], own["robot"]
    if one is None or two is None:
        if one != two:
            refuse("the robot", one and one["name"], two and two["name"])
    else:
        for key, value in two.items():
            if one[key] != value:
                what = "the robot" if key == "name" else f"robot '{two['name']}' with {key}"
                refuse(what, one[key], value)
    found = meaning_difference(saved.get("meaning", {}), own.get("meaning", {}))
    if found is not None:
        place, *values = found
        refuse(f"another meaning: {place}", *values)


def _group_advice(group: str) -> str:
    advice = f": import data that have '{group}' (robot-rl data convert ... groups=)"
    if group == "critic":
        advice += ", or take task.critic=[], with which the critic reads what the actor does"
    return advice


def picked_columns(saved: Mapping[str, Any], layout: RowLayout) -> list[int]:
    """Columns of saved rows in the order of a layout that has some or all of their parts."""
    starts: dict[str, int] = {}
    stop = 0
    for name, width in saved["columns"]:
        starts[name], stop = stop, stop + width
    columns: Sequence[tuple[str, slice]] = list(layout.columns.items())
    return [starts[name] + i for name, part in columns for i in range(part.stop - part.start)]


class Returns:
    """Makes transitions of up to n steps out of rows."""

    def __init__(
        self, layout: RowLayout, gamma: float, n_step: int, device: torch.device,
        *, chunks: bool = False, interventions: bool = False, last: bool = False,
    ) -> None:  # fmt: skip
        """Value all reward terms alike.

        Args:
            chunks: Hand out with every transition of several steps the actions of all n of them.
            interventions: Hand out whether a person acted in its first step.
            last: Hand out with every transition of several steps the place of its last row.
        """
        self.weights = torch.ones(max(1, len(layout.reward_names)), device=device)
        """Of the reward terms, (K,); the newest are valid for rows of any age."""
        self._layout, self._n_step, self._chunks = layout, n_step, chunks
        self._interventions, self._last = interventions, last
        self._gamma = gamma
        self._discount = torch.tensor(gamma, device=device)

    def one_step(self, rows: Tensor, index: Tensor) -> Batch:
        """Transitions of one step.

        Args:
            rows: (B, W).
            index: Their places, (B,).
        """
        part = self._layout.split(rows)
        return Batch(
            obs=self._layout.obs(part, "obs/"),
            action=part["action"],
            reward=self.paid(part["reward"]),
            # gamma, or gamma - gamma
            discount=torch.add(self._discount, part["terminated"][:, 0], alpha=-self._gamma),
            next_obs=self._layout.obs(part, "next_obs/"),
            weight=part["valid"][:, 0],
            extra=self._extra(part, index),
        )

    def several_steps(
        self, rows: Tensor, index: Tensor, later: Callable[[int], tuple[Tensor, Tensor]]
    ) -> Batch:
        """Transitions of up to n steps.

        Args:
            rows: All rows, (M, W).
            index: Where transitions begin, (B,).
            later: For k steps later the places in the same envs, (B,), and whether these are
                not beyond the newest step, (B,) bool.

        Returns:
            With chunks, `extra` has "chunk" (B, n, A), and "valid" (B, n) bool: which of its
            actions were done one after another in one episode.
        """
        part = self._layout.split(rows.index_select(0, index))
        last = index  # (B,): row whose successor is bootstrapped from
        reward = self.paid(part["reward"])
        discount = torch.full_like(reward, self._gamma)
        going = _goes_on(part)
        chunk = [(part["action"], part["valid"][:, 0] > 0)] if self._chunks else []
        for k in range(1, self._n_step):
            place, inside = later(k)
            here = self._layout.split(rows.index_select(0, place))
            going = going & inside & (here["valid"][:, 0] > 0)
            reward = reward + going * discount * self.paid(here["reward"])
            discount = torch.where(going, discount * self._gamma, discount)
            last = torch.where(going, place, last)
            if self._chunks:  # copied: a view would keep the whole rows
                chunk.append((here["action"].clone(), going))
            going = going & _goes_on(here)
        end = self._layout.split(rows.index_select(0, last))
        extra = self._extra(part, index)
        if self._last:
            extra["last"] = last
        if chunk:
            actions, done = zip(*chunk, strict=True)
            extra |= {"chunk": torch.stack(actions, dim=1), "valid": torch.stack(done, dim=1)}
        return Batch(
            obs=self._layout.obs(part, "obs/"),
            action=part["action"],
            reward=reward,
            discount=discount * (1 - end["terminated"][:, 0]),
            next_obs=self._layout.obs(end, "next_obs/"),
            weight=part["valid"][:, 0],
            extra=extra,
        )

    def _extra(self, part: Mapping[str, Tensor], index: Tensor) -> dict[str, Tensor]:
        """Tensors beside the transition, of its first row."""
        if not self._interventions:
            return {"index": index}
        return {"index": index, "intervened": part["intervened"][:, 0] > 0}

    def paid(self, terms: Tensor) -> Tensor:
        """Reward of terms (..., K), (...,)."""
        return terms[..., 0] * self.weights if terms.shape[-1] == 1 else terms @ self.weights


def _goes_on(part: Mapping[str, Tensor]) -> Tensor:
    ended = part["terminated"] + part["truncated"]
    return (ended[:, 0] == 0) & (part["valid"][:, 0] > 0)
