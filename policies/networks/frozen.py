"""A frozen base policy: bundles or ONNX files as black boxes, one or several mixed by weights.

They run in onnxruntime on the CPU, as they would on a robot; nothing of them is trained.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.bundle import bundle_digest, read_bundle
from policies.cameras import CameraInput
from policies.networks.images import ImagePolicy
from policies.networks.residual import FrozenBaseConfig, ResidualActor
from policies.runner import PolicySpec, open_network
from policies.zoo.catalog import bundle_folder
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.episodic import ChunkQueue
from robot_rl.core.errors import BundleError, ConfigError, MissingExtraError, SpecMismatchError
from robot_rl.core.observation import IMAGE_PREFIX, TermConfig

_FLOATS, _PIXELS = "tensor(float)", "tensor(uint8)"
"""float32 and uint8, as onnxruntime calls them."""
_NOT_ALWAYS_TOLD = ("period", "field_of_view")
"""Fields of a camera that are 0 in older bundles."""


@dataclass(frozen=True, kw_only=True)
class FrozenPolicy:
    """One of them."""

    path: Path
    digest: str
    """SHA-256 of all of it."""
    onnx: bytes
    """The network: the groups -> `action`."""
    groups: tuple[str, ...]
    """Observation groups that it sees: `actor`, and the images of its cameras, if any."""
    chunk_length: int
    """H."""
    replan_interval: int
    """Actions that are done before the network runs again."""
    weight: float
    """Share of its action in the base's."""


class FrozenBase:
    """Policies at work in N worlds; a `BasePolicy`."""

    def __init__(self, policies: Sequence[FrozenPolicy], count: int, action_size: int) -> None:
        """Begin without plans, with what `read_base` gave, in N worlds."""
        self.policies = list(policies)
        self.count = count
        """N."""
        self.action_size = action_size
        """A."""
        self.groups = tuple(dict.fromkeys(name for one in policies for name in one.groups))
        """Observation groups that they see."""
        self._networks = [open_network(one.onnx) for one in policies]
        zeros = torch.zeros(count, action_size)
        self._queues = [ChunkQueue(zeros, p.chunk_length, p.replan_interval) for p in policies]
        self._all = torch.ones(count, dtype=torch.bool)

    def of(self, count: int) -> "FrozenBase":
        """The same policies for another number of worlds."""
        return FrozenBase(self.policies, count, self.action_size)

    def next(self, obs: Obs) -> Tensor:
        """Action of all worlds for their next step, (N, A), in [-1, 1]; the plans go on by it."""
        return self._advance(self._all, obs)

    def restart(self, mask: Tensor, obs: Obs) -> Tensor:
        """First action of new episodes in the masked worlds; the others' rows mean nothing."""
        self.forget(mask)
        return self._advance(mask.cpu(), obs)

    def forget(self, mask: Tensor) -> None:
        """Throw the plans of the masked worlds away."""
        for queue in self._queues:
            queue.reset(mask.cpu())

    def state_dict(self) -> dict[str, Any]:
        """Plans, and which policies these are."""
        return {
            "digests": [one.digest for one in self.policies],
            "queues": {str(i): queue.state_dict() for i, queue in enumerate(self._queues)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`.

        Raises:
            SpecMismatchError: It is of other policies.
        """
        own = [one.digest for one in self.policies]
        if list(state["digests"]) != own:
            raise SpecMismatchError(
                "the base policies are not those that the run began with: "
                f"{[d[:12] for d in own]} in {[str(one.path) for one in self.policies]}, expected "
                f"{[d[:12] for d in state['digests']]}; put the old ones back, or begin a new run"
            )
        for i, queue in enumerate(self._queues):
            queue.load_state_dict(state["queues"][str(i)])

    def _advance(self, rows: Tensor, obs: Obs) -> Tensor:
        """The next action of these worlds' plans, which alone go on."""
        device = obs["actor"].device
        if not bool(rows.any()):
            return torch.zeros(len(rows), self.action_size, device=device)
        total: Tensor | float = 0.0
        seen: dict[str, np.ndarray] = {}
        for one, network, queue in zip(self.policies, self._networks, self._queues, strict=True):
            due = queue.due & rows
            if bool(due.any()):
                for name in one.groups:
                    if name not in seen:
                        seen[name] = obs[name].cpu().numpy()
                feed = {name: seen[name] for name in one.groups}
                chunk = torch.from_numpy(network.run(["action"], feed)[0])
                queue.put(chunk if chunk.ndim == 3 else chunk[:, None], due)
            total = total + one.weight * queue.take(rows)
        assert isinstance(total, Tensor)
        return total.clamp(-1.0, 1.0).to(device)


def read_base(
    config: FrozenBaseConfig, spec: EnvSpec, terms: Sequence[TermConfig] | None,
    cameras: Mapping[str, CameraInput] | None = None,
) -> list[FrozenPolicy]:  # fmt: skip
    """Read and check base policies for worlds.

    Args:
        config: Which they are.
        spec: Of the worlds.
        terms: Of their group `actor`, where known.
        cameras: Of the worlds, where known.

    Raises:
        BundleError: One is damaged, recurs, or is an ensemble of chunks.
        ConfigError: None is named, or one is not there.
        SpecMismatchError: One observes or does something else, or is for another robot.
    """
    if not config.paths:
        raise ConfigError(
            "a residual learner corrects a base policy, and none was named; expected "
            'learner.base.paths=[<folder of a bundle>] (see "Residual")'
        )
    weights = config.weights or [1.0] * len(config.paths)
    return [
        _read(
            base_folder(path), weight / sum(weights), config.replan_interval, spec, terms, cameras
        )
        for path, weight in zip(config.paths, weights, strict=True)
    ]


def base_digest(path: Path) -> str:
    """SHA-256 of all of a base: an ONNX file, or the folder of a bundle."""
    return bundle_digest(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def base_folder(name: str) -> Path:
    """Bundle or ONNX file of a base: it is one, a run has one, or the newest of some runs has."""
    given = bundle_folder(name)
    if (given / "spec.json").is_file() or not given.is_dir():
        return given
    inner = sorted([*given.glob("bundle/spec.json"), *given.glob("*/bundle/spec.json")])
    return inner[-1].parent if inner else given


def _read(
    path: Path, weight: float, interval: int, spec: EnvSpec, terms: Sequence[TermConfig] | None,
    cameras: Mapping[str, CameraInput] | None,
) -> FrozenPolicy:  # fmt: skip
    if path.is_file():
        onnx, told = path.read_bytes(), None
    elif path.is_dir():
        told, _ = read_bundle(path, verify=True)
        onnx = (path / "policy.onnx").read_bytes()
        _check_bundle(path, told, spec, terms)
        for name, camera in told.cameras.items():
            if cameras is not None and name in cameras:
                _check_camera(path, name, camera, cameras[name])
    else:
        raise ConfigError(
            f"learner.base.paths: there is no '{path}'; give the folder of a bundle, of a run or "
            "of runs, or an ONNX file"
        )
    groups, length = _look_into(path, onnx, spec)
    if find_spec("onnx") is None:
        raise MissingExtraError("onnx", "train", "a residual over a base policy")
    from policies.joined_graph import in_our_operations

    onnx = in_our_operations(onnx, f"the base {path}")
    own = min(length, interval) if interval else length
    if told is not None and not interval:
        own = told.replan_interval
    return FrozenPolicy(
        path=path, digest=base_digest(path), onnx=onnx, groups=groups, chunk_length=length,
        replan_interval=own, weight=weight,
    )  # fmt: skip


def _check_bundle(
    path: Path, told: PolicySpec, spec: EnvSpec, terms: Sequence[TermConfig] | None
) -> None:
    if spec.robot is not None:
        told.robot.check_compatible(spec.robot)
    if abs(told.control_dt - spec.control_dt) > 1e-6 * spec.control_dt:
        raise SpecMismatchError(
            f"the base {path} acts every {told.control_dt:g} s, and these worlds every "
            f"{spec.control_dt:g} s; expected the same"
        )
    if terms is not None and list(terms) != told.terms:
        raise SpecMismatchError(
            f"the base {path} observes {[one.term for one in told.terms]}, and these worlds give "
            f"{[one.term for one in terms]}; expected the same terms with the same scales and "
            "histories"
        )
    if told.initial_state or told.ensemble_decay is not None:
        what = "a recurrent state" if told.initial_state else "an ensemble of chunks"
        raise BundleError(
            f"the base {path} has {what}, which cannot go into the bundle of a residual; expected "
            "a policy that gives actions or chunks"
        )


def _look_into(path: Path, onnx: bytes, spec: EnvSpec) -> tuple[tuple[str, ...], int]:
    """Groups that a network takes, and its H, after looking at what it takes and gives."""
    try:
        network = open_network(onnx)
    except Exception as error:  # onnxruntime's own kinds have no common parent
        raise BundleError(f"the base {path} is no ONNX network: {error}") from error
    takes = {one.name: (one.type, one.shape) for one in network.get_inputs()}
    gives = {one.name: one.shape for one in network.get_outputs()}
    _check_cameras(path, takes, spec)
    size = spec.action_size
    expected = {
        name: (_PIXELS if name.startswith(IMAGE_PREFIX) else _FLOATS, list(spec.groups[name].shape))
        for name in ("actor", *takes)
        if name in spec.groups
    }
    rows = [shape[0] for _, shape in takes.values() if shape]
    fits = (
        {name: (kind, shape[1:]) for name, (kind, shape) in takes.items()} == expected
        and "action" in gives and len(gives["action"]) in (2, 3) and gives["action"][-1] == size
        and all(isinstance(n, int) for n in gives["action"][1:])
        and not any(isinstance(count, int) for count in rows)
    )  # fmt: skip
    if not fits:
        raise SpecMismatchError(
            f"the base {path} takes {takes} and gives {gives}; expected "
            + ", ".join(f"{name} (N, {str(shape)[1:-1]})" for name, (_, shape) in expected.items())
            + f" -> action (N, {size}), or chunks (N, H, {size}), images in {_PIXELS} and all else "
            f"in {_FLOATS}, for any number N of worlds"
        )
    zeros = {
        name: np.zeros((2, *shape), np.uint8 if kind == _PIXELS else np.float32)
        for name, (kind, shape) in expected.items()
    }
    try:
        action = np.asarray(network.run(["action"], zeros)[0])
    except Exception as error:
        raise BundleError(f"the base {path} cannot act for two worlds at once: {error}") from error
    if action.shape[0] != 2 or not np.isfinite(action).all():
        raise BundleError(
            f"the base {path} gave {action.tolist()} for two observations of zeros; expected an "
            "action for each, in finite numbers"
        )
    return tuple(takes), gives["action"][1] if len(gives["action"]) == 3 else 1


def _check_camera(path: Path, name: str, told: CameraInput, here: CameraInput) -> None:
    """Refuse a camera that shows a base something else than it was trained with."""
    for field in fields(CameraInput):
        wanted, got = getattr(told, field.name), getattr(here, field.name)
        unknown = field.name in _NOT_ALWAYS_TOLD and not wanted
        alike = math.isclose(wanted, got) if isinstance(wanted, float) else wanted == got
        if not (unknown or alike):
            raise SpecMismatchError(
                f"the base {path} was trained with a camera '{name}' of {field.name} {wanted}, and "
                f"that of these worlds has {got}; expected the same (robot.cameras, "
                "task.scene.cameras)"
            )


def _check_cameras(path: Path, takes: Mapping[str, Any], spec: EnvSpec) -> None:
    """Refuse a base that sees a camera which these worlds do not draw."""
    missing = [
        name.removeprefix(IMAGE_PREFIX)
        for name in takes
        if name.startswith(IMAGE_PREFIX) and name not in spec.groups
    ]
    if missing:
        drawn = [name for name in spec.groups if name.startswith(IMAGE_PREFIX)]
        raise SpecMismatchError(
            f"the base {path} sees the cameras {', '.join(missing)}, and these worlds draw "
            f"{', '.join(drawn) or 'none'}; have them drawn with env.cameras=[...]"
        )


class CorrectedPolicy(nn.Module):
    """Observations without base actions -> executed actions; its base plans, so it is episodic."""

    def __init__(self, actor: ResidualActor | ImagePolicy, base: FrozenBase) -> None:
        super().__init__()
        self.actor = actor
        self.base = base
        self._starting: Tensor | None = None

    def forward(self, obs: Obs) -> Tensor:
        """Actions, (N, A), in [-1, 1]; each call is the next step of all worlds."""
        count = obs["actor"].shape[0]
        if count != self.base.count:
            self.base = self.base.of(count)
            self._starting = None
        fresh = self._starting
        if fresh is None:
            fresh = torch.ones(count, dtype=torch.bool, device=obs["actor"].device)
        self._starting = torch.zeros_like(fresh)
        self.base.forget(fresh)
        return self.actor({**obs, BASE_ACTION: self.base.next(obs)})

    def begin(self, mask: Tensor) -> None:
        """Episodes start in the masked worlds, (N,) bool; in all for another N than before."""
        if self._starting is not None and self._starting.shape == mask.shape:
            self._starting = self._starting | mask.to(self._starting.device)
        else:
            self._starting = None


class CorrectedGraph(nn.Module):
    """The part of a `CorrectedPolicy` that torch exports: everything but the base's networks.

    The plans are its recurrent state: of each policy of the base a chunk (H * A numbers) and how
    many of its actions are done (1).
    """

    def __init__(
        self, actor: ResidualActor | ImagePolicy, policies: list[FrozenPolicy], action_size: int
    ) -> None:  # fmt: skip
        super().__init__()
        self.actor = actor
        self.policies = policies
        own = (name for one in policies for name in one.groups)
        of_actor = (name for name in actor.groups if name != BASE_ACTION)
        self.groups = tuple(dict.fromkeys((*of_actor, *own)))
        """Observation groups that correction or base see."""
        self._size = action_size

    @property
    def initial_state(self) -> list[float]:
        """All plans are done at an episode's start."""
        state: list[float] = []
        for one in self.policies:
            state += [0.0] * (one.chunk_length * self._size) + [float(one.replan_interval)]
        return state

    def forward(self, obs: Obs, state: Tensor, *chunks: Tensor) -> tuple[Tensor, Tensor]:
        """Executed action (N, A) and the next state, from what the base's networks gave.

        Args:
            obs: The group `actor`, (N, D), and those of images.
            state: (N, S).
            chunks: Of each policy of the base, (N, H, A), or (N, A) where H is 1.
        """
        base, after, start = 0.0, [], 0
        for one, chunk in zip(self.policies, chunks, strict=True):
            width = one.chunk_length * self._size
            plan, done = (
                state[:, start : start + width],
                state[:, start + width : start + width + 1],
            )
            start += width + 1
            due = done >= one.replan_interval
            plan = torch.where(due, chunk.reshape(-1, width), plan)
            done = torch.where(due, torch.zeros_like(done), done)
            steps = plan.reshape(-1, one.chunk_length, self._size)
            index = done.long().clamp(0, one.chunk_length - 1)[:, :, None].expand(-1, 1, self._size)
            base = base + one.weight * steps.gather(1, index)[:, 0]
            after += [plan, done + 1.0]
        assert isinstance(base, Tensor)
        action = self.actor({**obs, BASE_ACTION: base.clamp(-1.0, 1.0)})
        return action, torch.cat(after, dim=-1)
