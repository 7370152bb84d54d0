"""The deployable policy: a folder that a robot computer checks, loads and runs without torch.

`policy.onnx` is the network with its normaliser, `spec.json` all that surrounds it (`BundleSpec`),
`golden.npz` recorded sequences that are replayed at loading, `provenance.json` where it came from.
`spec.json` holds a SHA-256 of every file and of itself, so damage is found wherever it is; that is
protection from accidents, not a signature. Nothing is ever unpickled.
"""

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import InferenceSession

from policies.decoding import as_object, entry, read_json
from policies.network_check import check_content, check_run
from policies.runner import PolicyRunner, PolicySpec, check_widths, open_network
from policies.sealed_files import read_arrays, read_file
from policies.zoo.catalog import bundle_folder
from robot_rl.core.errors import (
    BundleError,
    ConfigError,
    NonFiniteError,
    ShapeError,
    SpecMismatchError,
)
from robot_rl.core.observation import IMAGE_PREFIX, TERMS, RobotState, is_term
from robot_rl.core.plugins import unknown_part
from robot_rl.core.pose_target import CommandMaker
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand

__all__ = ["PolicyRunner", "PolicySpec", "load_bundle"]

SCHEMA_VERSION = 1
"""Raised whenever a bundle written before can no longer be read as it was meant."""
SEALED_FILES = ("policy.onnx", "golden.npz", "provenance.json")
"""Files whose SHA-256 `spec.json` holds."""
ROS2_FILE = "ros2_control.yaml"
"""Parameters for a controller of ros2_control, or the reasons against it (`onnx_metadata.py`)."""
ROS2_NETWORK = "policy_ros2_control.onnx"
"""The network as such a controller feeds it; only where it can be run so."""
BUNDLE_FILES = ("spec.json", *SEALED_FILES, ROS2_FILE, ROS2_NETWORK)
"""Names of all files that an export writes."""
DRAFT_SUFFIX = ".partial"
"""Ends the name of a folder that is still being written."""
ENVIRONMENT = "environment"
"""Kind of a policy without a robot, which `policies.env_policy` reads."""
REPLAY_TOLERANCE = 1e-4
"""Largest difference in the golden replay, per entry of magnitude up to 1. Processors round in
different orders (1e-6 seen); a wrong scale, order or term differs by more than 1e-2."""
PICTURE_TOLERANCE = 1e-3
"""The same for a policy that sees cameras. Scores of keypoints reach a hundred, and their softmax
passes the rounding of long sums on: 3e-4 of the action range was seen between torch and ONNX."""

_BLANK = "0" * 64
_DIGEST = re.compile("[0-9a-f]{64}")
_MOST_STEPS, _MOST_WORLDS = 256, 64
"""Of the golden sequences; export writes 24 and 4."""
_REPLAY_SECONDS = 3.0
"""Processor time that the golden replay may take."""


def load_bundle(
    path: Path | str,
    *,
    robot: RobotSpec | None = None,
    control_dt: float | None = None,
    num_robots: int = 1,
    verify: bool = True,
    ramp: bool = True,
    pictures: bool = False,
) -> PolicyRunner:
    """Check a bundle and make it ready to run.

    Args:
        path: Its folder, or zoo:<name> for one that ships.
        robot: The robot at hand; a bundle made for another is refused. None compares nothing.
        control_dt: Period of the loop that will run the policy [s]. None compares nothing.
        num_robots: N, robots or simulated worlds that the runner serves at once.
        verify: Replay the golden sequences; damage is found without it too.
        ramp: Move joint targets no faster than in training, where the bundle states speeds; switch
            it off where a loop does so already.
        pictures: The caller hands pictures to `PolicyRunner.act`; else policies that see some are
            refused.

    Raises:
        BundleError: The folder is no bundle, is damaged, was written by another version, or says
            or holds what no bundle does.
        ConfigError: No policy of that name ships.
        SpecMismatchError: Robot, control period or observation terms differ, or it sees pictures.
    """
    folder = finished_folder(path)
    spec, network = read_bundle(folder, verify=verify)
    if spec.cameras and not pictures:
        raise SpecMismatchError(
            f"the policy in {folder} sees the cameras {', '.join(spec.cameras)}, and nothing here "
            "hands it pictures; run it from a program of your own with load_bundle(..., "
            "pictures=True) and PolicyRunner.act(..., pictures={...}), or deploy a policy of "
            "vectors, such as a student of it (learner=distill)"
        )
    if robot is not None:
        spec.robot.check_compatible(robot)
    if control_dt is not None and not math.isclose(control_dt, spec.control_dt, rel_tol=1e-6):
        raise SpecMismatchError(
            f"bundle {folder} was trained with a control period of {spec.control_dt:g} s, but the "
            f"loop at hand has {control_dt:g} s; run the loop at {1 / spec.control_dt:g} Hz or use "
            f"a bundle trained for {control_dt:g} s"
        )
    return PolicyRunner(spec, network, num_robots=num_robots, ramp=ramp)


def finished_folder(path: Path | str) -> Path:
    """Folder of a bundle by its path or as zoo:<name>, but none that is still being written.

    Raises:
        BundleError: An export did not finish it.
        ConfigError: No policy of that name ships.
    """
    folder = bundle_folder(path)
    if folder.suffix == DRAFT_SUFFIX:
        raise BundleError(f"{folder} was left by an export that did not finish; export again")
    return folder


def bundle_digest(path: Path | str) -> str:
    """Identity of a bundle: SHA-256 over all of its content.

    Raises:
        BundleError: The folder is no bundle, or is damaged.
    """
    return str(read_sealed(bundle_folder(path))[0]["digest"])


def read_provenance(path: Path | str) -> dict[str, Any]:
    """Origin of a bundle, as its export was told.

    Raises:
        BundleError: The folder is no bundle, or is damaged.
    """
    folder = bundle_folder(path)
    raw = read_sealed(folder)[1]["provenance.json"]
    try:
        return read_json(raw, "provenance.json")
    except ConfigError as error:
        raise BundleError(f"bundle {folder}: {error}; export the policy again") from error


def read_bundle(folder: Path, *, verify: bool) -> tuple[PolicySpec, InferenceSession]:
    """Check a folder, finished or being written, and open what a `PolicyRunner` needs."""
    content, files = read_sealed(folder)
    try:
        plain = as_object(content.get("policy"), "policy")
        if plain.get("kind") == ENVIRONMENT:
            raise BundleError(without_robot(folder))
        origin = read_json(files["provenance.json"], "provenance.json")
        spec = PolicySpec.from_dict(plain)
    except (ConfigError, ShapeError) as error:
        raise BundleError(
            f"bundle {folder}: {str(error)[:500]}; export the policy again or install the robot_rl "
            "that provenance.json names"
        ) from error
    _check_terms(folder, spec, origin)
    check_widths(spec)
    golden = read_arrays(folder, files["golden.npz"])
    _check_golden(folder, spec, golden)
    network = _open(folder, spec, files["policy.onnx"], golden["reset"].shape[1])
    try:
        runner = PolicyRunner(spec, network, num_robots=golden["reset"].shape[1])
        got = replay(runner, golden, seconds=_REPLAY_SECONDS) if verify else None
    except (BundleError, ConfigError, NonFiniteError, ShapeError) as error:
        raise BundleError(f"bundle {folder}: golden replay: {str(error)[:500]}") from error
    if got is not None:
        _check_replay(folder, spec, got, golden)
    return spec, network


def _open(folder: Path, spec: PolicySpec, raw: bytes, num_worlds: int) -> InferenceSession:
    """Network that was checked, and run once where it can do no harm."""
    widths = {"actor": spec.observation_size, "state": len(spec.initial_state)}
    feed: dict[str, np.ndarray] = {
        name: np.zeros((num_worlds, width), np.float32) for name, width in widths.items() if width
    }
    for name, camera in spec.cameras.items():
        feed[IMAGE_PREFIX + name] = np.zeros((num_worlds, *camera.shape), np.uint8)
    try:
        check_content(raw)
        check_run(raw, feed)
    except BundleError as error:
        raise BundleError(f"bundle {folder}: {error}; export the policy again") from error
    return open_network(raw)


def seal(policy: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Bytes of `spec.json` for the other files of a bundle.

    Its digest is the SHA-256 of these very bytes with the digest's own digits set to zero.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "digest": _BLANK,
        "sha256": {name: hashlib.sha256(files[name]).hexdigest() for name in SEALED_FILES},
        "policy": policy,
    }
    blank = json.dumps(content, indent=2, allow_nan=False).encode()
    return blank.replace(_BLANK.encode(), hashlib.sha256(blank).hexdigest().encode())


def replay(
    runner: PolicyRunner, golden: Mapping[str, np.ndarray], *, seconds: float = math.inf
) -> dict[str, np.ndarray]:
    """Run recorded inputs through a policy, step by step.

    Args:
        runner: Serves as many robots as the recording has worlds; without a ramp.
        golden: `reset (T, N)` bool, `state/*`, `goal/*`, `sensed/*`, each (T, N, width), and
            `image/*`, (T, N, height * width * channels) uint8: frames as they are seen.
        seconds: Processor time that it may take.

    Returns:
        `observation (T, N, D)`, `action (T, N, A)`, and `command/*` by field of the command.

    Raises:
        BundleError: It takes longer.
    """
    steps: list[dict[str, np.ndarray]] = []
    start = time.process_time()
    for t, starting in enumerate(golden["reset"]):
        if time.process_time() - start > seconds:
            raise BundleError(
                f"the replay of golden.npz was at step {t} of {len(golden['reset'])} after "
                f"{seconds:g} s of processor time; expected a network that a robot can run"
            )
        runner.reset(starting)
        inputs = {
            group: {
                name.removeprefix(f"{group}/"): values[t]
                for name, values in golden.items()
                if name.startswith(f"{group}/")
            }
            for group in ("state", "goal", "sensed")
        }
        pictures = {
            name: golden[IMAGE_PREFIX + name][t].reshape(len(starting), *camera.frame)
            for name, camera in runner.spec.cameras.items()
        }
        with np.errstate(all="ignore"):  # what overflows is found to differ
            command = runner.act(
                RobotState(inputs["state"]), inputs["goal"], inputs["sensed"], pictures
            )
        outputs = {"observation": runner.last_observation, "action": runner.last_action}
        steps.append(outputs | command_arrays(command))
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def command_arrays(command: RobotCommand) -> dict[str, Any]:
    """Fields of a command as `command/<field>`, those that it leaves out excepted."""
    return {f"command/{k}": v for k, v in vars(command).items() if v is not None}


def without_robot(folder: Path | str) -> str:
    """Sentence about the policy of a Gymnasium environment where a robot's is wanted."""
    return (
        f"{folder} holds the policy of a Gymnasium environment, not of a robot; in Python "
        "robot_rl.load_policy reads it"
    )


def read_sealed(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Content of `spec.json` and bytes of `SEALED_FILES` by name; none of them is damaged.

    Raises:
        BundleError: The folder is no bundle, is damaged, or was written by another version.
    """
    try:
        found, is_folder = (folder / "spec.json").is_file(), folder.is_dir()
    except OSError as error:
        raise BundleError(f"{folder} cannot be read: {error.strerror}") from error
    if not found:
        what = "has no spec.json" if is_folder else "is not a folder"
        inner = folder / "bundle"  # of a run
        near = inner if (inner / "spec.json").is_file() else "the folder that export wrote"
        raise BundleError(f"{folder} is not a policy bundle: it {what}; give {near}")
    content = _unseal(folder, read_file(folder, "spec.json"))
    if content.get("schema_version") != SCHEMA_VERSION:
        raise BundleError(
            f"bundle {folder} has schema version {content.get('schema_version')!r:.20}, this "
            f"robot_rl reads version {SCHEMA_VERSION}; export the policy again or install the "
            "robot_rl that its provenance.json names"
        )
    try:
        expected: dict[str, str] = entry(content, "sha256", dict[str, str], "spec.json")
    except ConfigError as error:
        raise BundleError(f"bundle {folder}: {error}; export the policy again") from error
    files = {name: read_file(folder, name) for name in SEALED_FILES}
    for name, raw in files.items():
        if hashlib.sha256(raw).hexdigest() != expected.get(name):
            raise _damaged(folder, name)
    return content, files


def _unseal(folder: Path, raw: bytes) -> dict[str, Any]:
    try:
        content = read_json(raw, "spec.json")
    except ConfigError as error:
        raise _damaged(folder, "spec.json") from error
    digest = content.get("digest")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _damaged(folder, "spec.json")
    blank = raw.replace(digest.encode(), _BLANK.encode())
    if hashlib.sha256(blank).hexdigest() != digest:
        raise _damaged(folder, "spec.json")
    return content


def _damaged(folder: Path, name: str) -> BundleError:
    return BundleError(
        f"bundle {folder} is damaged: {name} is not what was exported (SHA-256 differs); copy the "
        "folder again or export it anew"
    )


def _check_golden(folder: Path, spec: PolicySpec, golden: Mapping[str, np.ndarray]) -> None:
    """Refuse sequences of other names, types or shapes than the spec says."""
    reset = golden.get("reset", np.zeros(0))
    if reset.dtype != bool or reset.ndim != 2 or not reset.size:
        raise BundleError(f"bundle {folder}: golden.npz needs `reset` (T, N) of bool; export again")
    steps, worlds = reset.shape
    if steps > _MOST_STEPS or worlds > _MOST_WORLDS:
        raise BundleError(
            f"bundle {folder}: golden.npz has {steps} steps of {worlds} worlds, expected at most "
            f"{_MOST_STEPS} and {_MOST_WORLDS}; export again"
        )
    given = {"state": spec.robot.state_widths, "goal": spec.goal_widths,
             "sensed": spec.sensed_widths}  # fmt: skip
    widths = {f"{group}/{n}": width for group, of in given.items() for n, width in of.items()}
    widths |= {"observation": spec.observation_size, "action": spec.action_map.size}
    with np.errstate(all="ignore"):
        action = np.zeros((worlds, spec.action_map.size), np.float32)
        state = RobotState(
            {n: np.zeros((worlds, width)) for n, width in spec.robot.state_widths.items()}
        )
        command = CommandMaker(spec.action_map).preview(action, state)
    widths |= {name: value.shape[1] for name, value in command_arrays(command).items()}
    widths |= {IMAGE_PREFIX + n: math.prod(one.frame) for n, one in spec.cameras.items()}
    expected = {name: (steps, worlds, width) for name, width in widths.items()}
    got = {
        name: one.shape
        for name, one in golden.items()
        if name != "reset" and one.dtype.kind == ("u" if name.startswith(IMAGE_PREFIX) else "f")
    }
    if got != expected:
        wrong = (expected.keys() | golden.keys()) - {"reset"}
        name = min(n for n in wrong if n not in got or got[n] != expected.get(n))
        raise BundleError(
            f"bundle {folder}: golden.npz has '{name[:80]}' of shape {got.get(name)}, the spec "
            f"says {expected.get(name)}; export the policy again"
        )


def _check_terms(folder: Path, spec: PolicySpec, origin: Mapping[str, Any]) -> None:
    """Refuse terms that neither we nor a plug-in has; names those that the run was made with."""
    for one in spec.terms:
        if not is_term(one.term):
            raise BundleError(
                f"bundle {folder}: {unknown_part('observation term', one.term, TERMS)}; "
                f"{_remedy(origin)}"
            )


def _remedy(origin: Mapping[str, Any]) -> str:
    """Packages to install, as far as a provenance says."""
    config = origin.get("config")
    used = config.get("plugins") if isinstance(config, dict) else None
    kept = [one for one in used.values() if isinstance(one, dict)] if isinstance(used, dict) else []
    packages = sorted({f"{one.get('distribution')} {one.get('version')}"[:100] for one in kept})
    if not packages:
        return (
            "import the module that defines it or install the robot_rl that provenance.json names"
        )
    return f"install what the run was made with: {', '.join(packages)}"


def _check_replay(
    folder: Path,
    spec: PolicySpec,
    got: Mapping[str, np.ndarray],
    golden: Mapping[str, np.ndarray],
) -> None:
    allowed = PICTURE_TOLERANCE if spec.cameras else REPLAY_TOLERANCE
    start = 0
    for term, width in zip(spec.terms, spec.widths, strict=True):
        stop = start + width * term.history
        what = f"observation term '{term.term}' ({width} entries, {term.history} frames)"
        seen, recorded = (x["observation"][..., start:stop] for x in (got, golden))
        _compare(folder, what, seen, recorded, allowed)
        start = stop
    for name in sorted(got.keys() - {"observation"}):
        # A command is an action times its range, which is kilometres where forces are far targets.
        unit = _half_range(spec) if name.startswith("command/") else 1.0
        _compare(folder, name, got[name], golden[name], allowed, unit)


def _half_range(spec: PolicySpec) -> float:
    """Half of the widest range of an action entry, or 1."""
    ends = zip(spec.action_map.low, spec.action_map.high, strict=True)
    return max(1.0, *(0.5 * (high - low) for low, high in ends))


def _compare(
    folder: Path, what: str, got: np.ndarray, expected: np.ndarray, tolerance: float,
    unit: float = 1.0,
) -> None:  # fmt: skip
    difference = np.abs(got - expected)
    allowed = tolerance * np.maximum(unit, np.abs(expected))
    if not (difference <= allowed).all():
        step, world = np.argwhere(~(difference <= allowed))[0][:2]
        raise BundleError(
            f"bundle {folder}: golden replay differs: {what} is off by up to "
            f"{difference.max():.3g} (allowed {tolerance * unit:g}), first at step {step} of "
            f"sequence {world}; the code here computes something else than where the policy was "
            "exported: install the robot_rl that provenance.json names or export again"
        )
