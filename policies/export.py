"""Writes a policy as a bundle: network to ONNX, golden sequences, provenance, seal.

A bundle appears whole or not at all, and takes the place of an older one only after it was loaded
from the disk and replayed.
"""

import contextlib
import copy
import io
import json
import logging
import math
import os
import platform
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.bundle import (
    BUNDLE_FILES,
    DRAFT_SUFFIX,
    PICTURE_TOLERANCE,
    SEALED_FILES,
    command_arrays,
    read_bundle,
    seal,
)
from policies.caller import CallerSpec, fields_read
from policies.cameras import CameraInput, FrameStacks
from policies.env_policy import EnvPolicy, EnvPolicySpec, read_env_policy
from policies.golden import draw_inputs, first_inputs, planned, record, stacks_at
from policies.runner import PolicySpec, open_network
from robot_rl.core.action import ActionMap
from robot_rl.core.episodic import ClockSpec
from robot_rl.core.errors import (
    BundleError,
    ConfigError,
    MissingExtraError,
    ShapeError,
    StorageError,
)
from robot_rl.core.observation import IMAGE_PREFIX, ObservationMap, TermConfig
from robot_rl.core.playback import PlaybackSpec
from robot_rl.core.pose_target import TARGET_OFFSET
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind

ONNX_TOLERANCE = 1e-5
"""Largest difference between an action of onnxruntime and one of torch, without images."""
_TRIES = 64
"""Golden sequences that are drawn for a policy that chooses, until rounding cannot change it."""
EXPORT_PACKAGES = ("onnx", "onnxscript")
"""Packages by which torch writes ONNX."""


def export_bundle(
    path: Path | str,
    *,
    policy: nn.Module,
    terms: Sequence[TermConfig],
    robot: RobotSpec,
    action_map: ActionMap,
    control_dt: float,
    goal_widths: Mapping[str, int],
    initial_action: Sequence[float],
    provenance: Mapping[str, Any],
    sensed_widths: Mapping[str, int] | None = None,
    clocks: Mapping[str, ClockSpec] | None = None,
    playback: PlaybackSpec | None = None,
    initial_state: Sequence[float] = (),
    chunk_length: int = 1,
    replan_interval: int = 1,
    ensemble_decay: float | None = None,
    caller: CallerSpec | None = None,
    inner: Sequence[bytes] = (),
    cameras: Mapping[str, CameraInput] | None = None,
    seed: int = 0,
) -> Path:
    """Write a policy bundle; an older one at `path` is replaced once the new one has been verified.

    Args:
        policy: Deterministic, normaliser inside: {"actor": (N, D)} -> action (N, A) in [-1, 1].
            With a recurrent state: (obs, state (N, S)) -> (action, next state). Is copied, so that
            training may go on. With chunks: -> (N, H, A).
        provenance: Config, git hash, seed, score: anything that JSON can hold, else its `str`.
        caller: Duties of whoever runs the policy; its control period, its fields and the pose to
            arm in are taken from the other arguments.
        initial_state: As of `PolicySpec`, like all that is not named here; none with chunks.
        inner: ONNX networks that go into the graph: `actor`, and images where they see, ->
            `action`; the policy, which recurs, takes what they give after its state:
            (obs, state, action, ...) -> (action, next state).
        cameras: Images that the policy or one of `inner` reads beside `actor`, by camera.

    Raises:
        BundleError: The network cannot be exported, or runs differently in onnxruntime; or `path`
            holds something that is not a bundle.
        StorageError: The folder cannot be written.
    """
    folder = _place(path)
    if not 0 < control_dt < math.inf:
        raise ConfigError(f"control_dt must be a time above 0 s, got {control_dt}")
    action_map.check_robot(robot)
    if len(initial_action) != action_map.size:
        raise ShapeError(
            f"initial_action: expected {action_map.size} entries as in the action map, "
            f"got {len(initial_action)}"
        )
    if chunk_length > 1 and len(initial_state):
        raise BundleError(
            f"a policy with chunks of {chunk_length} actions and a recurrent state of "
            f"{len(initial_state)} was to be exported; expected one of the two"
        )
    widths = (robot.state_widths, goal_widths, sensed_widths or {})
    golden = draw_inputs(*widths, seed, cameras)
    spec = PolicySpec(
        robot=robot,
        control_dt=control_dt,
        terms=list(terms),
        widths=ObservationMap(terms, first_inputs(golden, action_map.size)).widths,
        goal_widths=dict(goal_widths),
        sensed_widths=dict(sensed_widths or {}),
        action_map=action_map,
        initial_action=[float(value) for value in initial_action],
        initial_state=[float(value) for value in initial_state],
        chunk_length=chunk_length,
        replan_interval=replan_interval,
        ensemble_decay=ensemble_decay,
        clocks=dict(clocks or {}),
        playback=playback,
        cameras=dict(cameras or {}),
    )
    for name, camera in spec.cameras.items():
        camera.check(name)
    if playback is not None:
        playback.check(goal_widths)
    spec = replace(spec, caller=_caller_spec(spec, caller or CallerSpec(control_dt=control_dt)))
    network = _Network(copy.deepcopy(policy).cpu().eval(), inner, list(spec.cameras))
    with torch.no_grad():
        drawn = (draw_inputs(*widths, seed + i, spec.cameras) for i in range(_TRIES))
        golden = _recorded(network, spec, drawn)
        state_size = len(spec.initial_state)
        onnx = _to_onnx(network, spec.observation_size, state_size, spec.cameras)
        _check_onnx(onnx, network, golden, spec)
    from policies.onnx_metadata import ros2_control, with_metadata

    beside = ros2_control(onnx, spec)
    onnx = with_metadata(onnx, spec)
    files = _files(onnx, golden, provenance)
    sealed = {**files, **beside, "spec.json": seal(spec.to_dict(), files)}
    _publish(folder, sealed, lambda draft: read_bundle(draft, verify=True))
    return folder


def export_env_policy(
    path: Path | str,
    *,
    policy: nn.Module,
    spec: EnvPolicySpec,
    observations: np.ndarray,
    provenance: Mapping[str, Any],
) -> Path:
    """Write the policy of a Gymnasium environment, as `policies.env_policy.load_policy` reads it.

    Args:
        policy: As of `export_bundle`, without a state or chunks.
        spec: The environment's observation and action.
        observations: A few that it was in, (T, D), float32.
        provenance: As of `export_bundle`.

    Raises:
        BundleError: The network cannot be exported, or runs differently in onnxruntime; or `path`
            holds something else.
        StorageError: The folder cannot be written.
    """
    folder = _place(path)
    network = _Network(copy.deepcopy(policy).cpu().eval(), (), ())
    rng = np.random.default_rng(len(observations))
    jitter = rng.standard_normal(observations.shape, np.float32) * (0.1 + observations.std(axis=0))
    seen = np.concatenate([observations, observations + jitter]).astype(np.float32)
    with torch.no_grad():
        seen = seen[network.decided(torch.from_numpy(seen)).numpy()]  # else rounding chooses
        if not len(seen):
            raise BundleError(
                "the policy finds two choices alike in all that it saw, so that rounding would "
                "choose; nothing was written: train it longer"
            )
        onnx = _to_onnx(network, spec.observation_size)
        unit = network(torch.from_numpy(seen))
        assert isinstance(unit, Tensor)
        session = open_network(onnx)
        _check_close(session.run(["action"], {"actor": seen}), (unit,), slice(None), ONNX_TOLERANCE)
    files = _files(
        onnx, {"observation": seen, "action": EnvPolicy(spec, session).actions(seen)}, provenance
    )
    sealed = {**files, "spec.json": seal(spec.to_dict(), files)}
    _publish(folder, sealed, lambda draft: read_env_policy(draft, verify=True))
    return folder


def _place(path: Path | str) -> Path:
    """The folder to write; refuses one that holds something else, or cannot be read again."""
    folder = Path(path).absolute()
    try:
        if folder.exists():
            _check_replaceable(folder)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    if folder.suffix == DRAFT_SUFFIX:
        raise BundleError(
            f"{folder} ends as an export that did not finish ({DRAFT_SUFFIX}); give another path"
        )
    return folder


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder with anything that no export wrote: replacing it would delete that.

    Raises:
        BundleError: Names the strangers.
    """
    is_bundle = (folder / "spec.json").is_file() and any(
        (folder / name).is_file() for name in SEALED_FILES
    )  # a damaged one may be written anew
    if not is_bundle:
        raise BundleError(f"{folder} exists and is not a policy bundle; give another path")
    strangers = sorted(
        one.name for one in folder.iterdir() if one.name not in BUNDLE_FILES or not one.is_file()
    )
    if strangers:
        more = f" and {len(strangers) - 5} more" if len(strangers) > 5 else ""
        raise BundleError(
            f"{folder} holds {', '.join(strangers[:5])}{more} beside a policy bundle, which a new "
            f"bundle in its place would delete; expected nothing but {', '.join(BUNDLE_FILES)}: "
            "move the others away, or give another path"
        )


def _files(
    onnx: bytes, golden: Mapping[str, np.ndarray], provenance: Mapping[str, Any]
) -> dict[str, bytes]:
    compressed = io.BytesIO()
    np.savez_compressed(compressed, allow_pickle=False, **golden)
    return {
        "policy.onnx": onnx,
        "golden.npz": compressed.getvalue(),
        "provenance.json": _provenance_bytes(provenance),
    }


def _caller_spec(spec: PolicySpec, caller: CallerSpec) -> CallerSpec:
    """With what the policy itself says of its caller."""
    state, action_map = spec.robot.state_widths, spec.action_map
    widths = {"state": state, "goal": spec.goal_widths, "sensed": spec.sensed_widths}
    meanings = {TARGET_OFFSET: "m, rad; from the measured pose to the target: the runner's own"}
    fields = fields_read(spec.terms, widths, action_map.size, meanings)
    if caller.target_speed_limit is not None and not any(
        one.name == "joint_position" for one in fields
    ):  # where targets start from
        of_joints = [TermConfig(term="state/joint_position")]
        fields = [*fields_read(of_joints, widths, action_map.size), *fields]
    pose = [joint.default_position for joint in spec.robot.joints]
    if action_map.kind is CommandKind.joint:
        command = action_map.to_command(np.array([spec.initial_action], np.float32))
        pose = [float(value) for value in command_arrays(command)["command/q"][0]]
        pose = [round(value, 6) for value in pose]  # of float32
    return replace(caller, control_dt=spec.control_dt, arming_pose=pose, fields=fields)


class _Network(nn.Module):
    """The policy with arrays instead of groups as inputs: what becomes the ONNX graph."""

    def __init__(
        self, policy: nn.Module, inner: Sequence[bytes], cameras: Sequence[str]
    ) -> None:  # fmt: skip
        super().__init__()
        self.policy = policy
        self.images = [IMAGE_PREFIX + name for name in cameras]
        self.inner = list(inner)
        self._sessions = [open_network(raw) for raw in inner]

    def forward(self, actor: Tensor, *rest: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Images come first of the rest, then the state."""
        images = dict(zip(self.images, rest, strict=False))
        return self.policy({"actor": actor, **images}, *rest[len(images) :])

    def whole(self, actor: Tensor, *rest: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """With the inner networks, which torch cannot run."""
        return self(actor, *rest, *self.inner_actions(actor, *rest))

    def decided(self, actor: Tensor) -> Tensor:
        """Rows, (B,) bool, that another order of sums answers alike: all but for what chooses."""
        decided = getattr(self.policy, "decided", None)
        if decided is None:
            return torch.ones_like(actor[:, 0], dtype=torch.bool)
        return decided({"actor": actor})

    def inner_actions(self, actor: Tensor, *rest: Tensor) -> list[Tensor]:
        known = dict(zip(["actor", *self.images], [actor, *rest], strict=False))
        found: list[Tensor] = []
        for one in self._sessions:
            feed = {node.name: known[node.name].numpy() for node in one.get_inputs()}
            found.append(torch.from_numpy(one.run(["action"], feed)[0]))
        return found


def _recorded(
    network: _Network, spec: PolicySpec, drawn: Iterator[dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The first golden sequences, with what torch does in them, that every processor repeats."""
    for golden in drawn:
        found = golden | record(spec, network.whole, golden)
        used = found["observation"][planned(spec, golden)]
        if bool(network.decided(torch.from_numpy(used)).all()):
            return found
    raise BundleError(
        f"the policy chooses among proposals that are worth the same up to rounding in every one "
        f"of {_TRIES} golden sequences, so another processor would act differently; expected a "
        "critic that tells them apart: train it longer, or give it less to choose from, such as by "
        "learner.candidates=1"
    )


def _to_onnx(
    network: _Network,
    observation_size: int,
    state_size: int = 0,
    cameras: Mapping[str, CameraInput] | None = None,
) -> bytes:
    for package in EXPORT_PACKAGES:
        if find_spec(package) is None:
            raise MissingExtraError(package, "train", "exporting a policy")
    from policies.joined_graph import OPERATIONS, join

    worlds = torch.export.Dim("worlds")
    # Two rows: with one, the exporter would take the number of worlds for a constant.
    arrays = [torch.zeros(2, observation_size)]
    inputs, outputs = ["actor"], ["action"]
    for name, camera in (cameras or {}).items():
        arrays.append(torch.zeros(2, *camera.shape, dtype=torch.uint8))
        inputs.append(IMAGE_PREFIX + name)
    if state_size:
        arrays.append(torch.zeros(2, state_size))
        inputs.append("state")
        outputs.append("next_state")
    inner = network.inner_actions(*arrays)
    given = [f"inner_{i}" for i in range(len(inner))]
    arrays += inner
    inputs += given
    shapes: list[Any] = [{0: worlds}]
    if len(arrays) > 1:  # those of `*rest`, together
        shapes.append(tuple({0: worlds} for _ in arrays[1:]))
    with _quiet():
        try:
            program = torch.onnx.export(
                network,
                tuple(arrays),
                dynamo=True,
                input_names=inputs,
                output_names=outputs,
                dynamic_shapes=shapes,
                opset_version=OPERATIONS,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = str(error.__cause__ or error).partition("\n")[0]
            raise BundleError(
                f"torch cannot write this policy as ONNX: {reason}; use plain tensor operations "
                "that do not depend on values or on the number of worlds"
            ) from error
    assert program is not None  # as it is with dynamo=True
    model = program.model_proto
    for node in model.graph.node:  # drops stack traces: they name folders of this machine
        del node.metadata_props[:]
    if inner:
        return join(model.SerializeToString(), network.inner, given)
    return model.SerializeToString()


def _check_onnx(
    onnx: bytes, network: _Network, golden: Mapping[str, np.ndarray], spec: PolicySpec
) -> None:
    """Refuse a graph that acts differently from torch on golden observations and around them."""
    seen = golden["observation"].reshape(-1, spec.observation_size)
    rng = np.random.default_rng(len(seen))
    jitter = rng.standard_normal(seen.shape, np.float32) * (0.1 + seen.std(axis=0))
    actor = np.concatenate([seen, seen + jitter])
    feed = {"actor": actor}
    frames = FrameStacks(spec.cameras, golden["reset"].shape[1])
    stacks = [stacks_at(spec, golden, t, frames) for t in range(len(golden["reset"]))]
    for name, each in zip(frames.stacks, zip(*stacks, strict=True), strict=True):
        feed[name] = np.concatenate([*each, *each])  # as the rows of `actor`
    if spec.initial_state:
        feed["state"] = rng.standard_normal((len(actor), len(spec.initial_state)), np.float32)
    got = open_network(onnx).run(None, feed)
    expected = network.whole(*(torch.from_numpy(values) for values in feed.values()))
    expected = expected if isinstance(expected, tuple) else (expected,)
    allowed = PICTURE_TOLERANCE if spec.cameras else ONNX_TOLERANCE
    _check_close(got, expected, network.decided(torch.from_numpy(actor)).numpy(), allowed)


def _check_close(
    got: Sequence[Any], expected: Sequence[Tensor], rows: Any, allowed: float
) -> None:  # fmt: skip
    difference = max(
        float(np.abs(a - b.numpy())[rows].max(initial=0.0))
        for a, b in zip(got, expected, strict=True)
    )
    if not difference <= allowed:
        raise BundleError(
            f"the exported network differs from torch by {difference:.3g}, allowed "
            f"{allowed:g}; nothing was written: look for operations without a faithful "
            "ONNX form, or for inputs that are not normalised"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress, deprecation warnings and notes off the terminal."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _provenance_bytes(provenance: Mapping[str, Any]) -> bytes:
    versions = {"python": platform.python_version()}
    for package in ("robot_rl", "torch", "numpy", "onnxruntime", *EXPORT_PACKAGES):
        with contextlib.suppress(PackageNotFoundError):  # robot_rl in a tree never installed
            versions[package] = version(package)
    content = {"versions": versions, **provenance}
    return json.dumps(content, indent=2, default=str).encode()


def _publish(folder: Path, files: Mapping[str, bytes], check: Callable[[Path], object]) -> None:
    """Write beside the folder, verify from the disk, then change names.

    What a killed export leaves behind has a name that loading refuses.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}{DRAFT_SUFFIX}")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, raw in files.items():
            _write(draft / name, raw)
        check(draft)
        _take_place(draft, folder)
    except OSError as error:
        raise StorageError(
            f"the bundle {folder} cannot be written: {error.strerror}; free space or choose "
            "another path (an older bundle there is untouched)"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(path: Path, raw: bytes) -> None:
    with path.open("xb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _take_place(draft: Path, folder: Path) -> None:
    old = draft.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
    try:
        draft.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    with contextlib.suppress(OSError):  # what somebody put in meanwhile stays
        for name in BUNDLE_FILES:
            (old / name).unlink(missing_ok=True)
        old.rmdir()
    descriptor = os.open(folder.parent, os.O_RDONLY)
    os.fsync(descriptor)  # the new name outlives a power cut
    os.close(descriptor)
