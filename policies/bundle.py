"""The deployable policy: a folder that a robot computer checks, loads and runs without torch.

`policy.onnx` is the network with its normaliser, `spec.json` all that surrounds it (`BundleSpec`),
`golden.npz` recorded sequences that are replayed at loading, `provenance.json` where it came from.
`spec.json` holds a SHA-256 of every file and of itself, so damage is found wherever it is; that is
protection from accidents, not a signature. Nothing is ever unpickled.
"""

import hashlib
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import InferenceSession

from policies.runner import PolicyRunner, PolicySpec, open_network
from robot_rl.core.errors import BundleError, SpecMismatchError, unknown_name
from robot_rl.core.observation import TERMS, RobotState, is_term
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand

__all__ = ["PolicyRunner", "PolicySpec", "load_bundle"]

SCHEMA_VERSION = 1
"""Raised whenever a bundle written before can no longer be read as it was meant."""
SEALED_FILES = ("policy.onnx", "golden.npz", "provenance.json")
"""Files whose SHA-256 `spec.json` holds."""
DRAFT_SUFFIX = ".partial"
"""Ends the name of a folder that is still being written."""
REPLAY_TOLERANCE = 1e-4
"""Largest difference in the golden replay, per entry of magnitude up to 1. Processors round in
different orders (1e-6 seen); a wrong scale, order or term differs by more than 1e-2."""

_BLANK = "0" * 64


def load_bundle(
    path: Path | str,
    *,
    robot: RobotSpec | None = None,
    control_dt: float | None = None,
    num_robots: int = 1,
    verify: bool = True,
) -> PolicyRunner:
    """Check a bundle and make it ready to run.

    Args:
        robot: The robot at hand; a bundle made for another is refused. None compares nothing.
        control_dt: Period of the loop that will run the policy [s]. None compares nothing.
        num_robots: N, robots or simulated worlds that the runner serves at once.
        verify: Replay the golden sequences; damage is found without it too.

    Raises:
        BundleError: The folder is no bundle, is damaged, or was written by another version.
        SpecMismatchError: Robot, control period or observation terms differ.
    """
    folder = Path(path)
    if folder.suffix == DRAFT_SUFFIX:
        raise BundleError(f"{folder} was left by an export that did not finish; export again")
    spec, network = read_bundle(folder, verify=verify)
    if robot is not None:
        spec.robot.check_compatible(robot)
    if control_dt is not None and not math.isclose(control_dt, spec.control_dt, rel_tol=1e-6):
        raise SpecMismatchError(
            f"bundle {folder} was trained with a control period of {spec.control_dt:g} s, but the "
            f"loop at hand has {control_dt:g} s; run the loop at {1 / spec.control_dt:g} Hz or use "
            f"a bundle trained for {control_dt:g} s"
        )
    return PolicyRunner(spec, network, num_robots=num_robots)


def bundle_digest(path: Path | str) -> str:
    """Identity of a bundle: SHA-256 over all of its content.

    Raises:
        BundleError: The folder is no bundle, or is damaged.
    """
    return str(_read_sealed(Path(path))[0]["digest"])


def read_bundle(folder: Path, *, verify: bool) -> tuple[PolicySpec, InferenceSession]:
    """Check a folder, finished or being written, and open what a `PolicyRunner` needs."""
    content, files = _read_sealed(folder)
    _check_terms(folder, content["policy"])
    spec = PolicySpec.from_dict(content["policy"])
    network = open_network(files["policy.onnx"])
    if verify:
        golden = _read_golden(folder, files["golden.npz"])
        runner = PolicyRunner(spec, network, num_robots=golden["reset"].shape[1])
        _check_replay(folder, spec, replay(runner, golden), golden)
    return spec, network


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


def replay(runner: PolicyRunner, golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run recorded inputs through a policy, step by step.

    Args:
        runner: Serves as many robots as the recording has worlds.
        golden: `reset (T, N)` bool, and `state/*`, `goal/*`, `sensed/*`, each (T, N, width).

    Returns:
        `observation (T, N, D)`, `action (T, N, A)`, and `command/*` by field of the command.
    """
    steps: list[dict[str, np.ndarray]] = []
    for t, starting in enumerate(golden["reset"]):
        runner.reset(starting)
        inputs = {
            group: {
                name.removeprefix(f"{group}/"): values[t]
                for name, values in golden.items()
                if name.startswith(f"{group}/")
            }
            for group in ("state", "goal", "sensed")
        }
        command = runner.act(RobotState(inputs["state"]), inputs["goal"], inputs["sensed"])
        outputs = {"observation": runner.last_observation, "action": runner.last_action}
        steps.append(outputs | command_arrays(command))
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def command_arrays(command: RobotCommand) -> dict[str, Any]:
    """Fields of a command as `command/<field>`, those that it leaves out excepted."""
    return {f"command/{k}": v for k, v in vars(command).items() if v is not None}


def _read_sealed(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Content of `spec.json` and bytes of `SEALED_FILES` by name; none of them is damaged."""
    if not (folder / "spec.json").is_file():
        what = "has no spec.json" if folder.is_dir() else "is not a folder"
        raise BundleError(
            f"{folder} is not a policy bundle: it {what}; give the folder that export wrote"
        )
    content = _unseal(folder, _read(folder, "spec.json"))
    if content.get("schema_version") != SCHEMA_VERSION:
        raise BundleError(
            f"bundle {folder} has schema version {content.get('schema_version')}, this robot_rl "
            f"reads version {SCHEMA_VERSION}; export the policy again or install the robot_rl that "
            "its provenance.json names"
        )
    files = {name: _read(folder, name) for name in SEALED_FILES}
    for name, raw in files.items():
        if hashlib.sha256(raw).hexdigest() != content["sha256"][name]:
            raise _damaged(folder, name)
    return content, files


def _unseal(folder: Path, raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw)
        digest = content["digest"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(folder, "spec.json") from None
    blank = raw.replace(digest, _BLANK.encode())
    if hashlib.sha256(blank).hexdigest().encode() != digest:
        raise _damaged(folder, "spec.json")
    return content


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise BundleError(
            f"bundle {folder} lacks a readable {name} ({error.strerror}); copy the whole folder "
            "again or export it anew"
        ) from error


def _damaged(folder: Path, name: str) -> BundleError:
    return BundleError(
        f"bundle {folder} is damaged: {name} is not what was exported (SHA-256 differs); copy the "
        "folder again or export it anew"
    )


def _read_golden(folder: Path, raw: bytes) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            return dict(archive)
    except ValueError as error:
        raise BundleError(f"bundle {folder}: golden.npz cannot be read: {error}") from error


def _check_terms(folder: Path, policy: Mapping[str, Any]) -> None:
    for values in policy["groups"]["actor"]:
        if not is_term(values["term"]):
            sentence = unknown_name("observation term", values["term"], TERMS)
            raise BundleError(
                f"bundle {folder}: {sentence}; import the module that defines it or install the "
                "robot_rl that provenance.json names"
            )


def _check_replay(
    folder: Path,
    spec: PolicySpec,
    got: Mapping[str, np.ndarray],
    golden: Mapping[str, np.ndarray],
) -> None:
    start = 0
    for term, width in zip(spec.terms, spec.widths, strict=True):
        stop = start + width * term.history
        what = f"observation term '{term.term}' ({width} entries, {term.history} frames)"
        seen, recorded = (x["observation"][..., start:stop] for x in (got, golden))
        _compare(folder, what, seen, recorded)
        start = stop
    for name in sorted(got.keys() - {"observation"}):
        _compare(folder, name, got[name], golden[name])


def _compare(folder: Path, what: str, got: np.ndarray, expected: np.ndarray) -> None:
    difference = np.abs(got - expected)
    allowed = REPLAY_TOLERANCE * np.maximum(1.0, np.abs(expected))
    if not (difference <= allowed).all():
        step, world = np.argwhere(~(difference <= allowed))[0][:2]
        raise BundleError(
            f"bundle {folder}: golden replay differs: {what} is off by up to "
            f"{difference.max():.3g} (allowed {REPLAY_TOLERANCE:g}), first at step {step} of "
            f"sequence {world}; the code here computes something else than where the policy was "
            "exported: install the robot_rl that provenance.json names or export again"
        )
