"""Provenance of a result: code, packages, machine, command, seed and configuration."""

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

PACKAGES = (
    "robot_rl",
    "torch",
    "numpy",
    "safetensors",
    "mujoco",
    "mujoco-warp",
    "warp-lang",
    "gymnasium",
    "hydra-core",
    "onnx",
    "onnxruntime",
)
"""Packages whose version can change a result; those not installed are left out."""


def collect_provenance(config: Mapping[str, Any], *, seed: int, device: str) -> dict[str, Any]:
    """Record of where a run comes from, ready for JSON."""
    import torch  # here, so that tools which only read runs start fast

    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "seed": seed,
        "config_sha256": config_hash(config),
        "git": git_state(Path(__file__).parent),
        "python": platform.python_version(),
        "packages": package_versions(),
        "system": platform.platform(),
        "device": describe_device(device),
        "cpu_count": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
    }


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration, 64 hexadecimal digits; the order of keys does not matter."""
    text = json.dumps(plain(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: Any) -> Any:
    """Copy of a configuration that JSON and YAML can hold.

    Dataclasses become dicts, enums their names, tuples lists, paths strings.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, int, float)):  # subclasses, such as numpy's float64
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, (str, Path)):
        return str(value)
    raise TypeError(f"a configuration holds a {type(value).__qualname__}, which YAML cannot say")


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether the work tree differs from it; None where `folder` is not versioned.

    An installed package inside an ignored environment of some other repository is not versioned.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "check-ignore", "-q", ".") is not None:
        return None
    return {"commit": commit, "dirty": _git(folder, "status", "--porcelain") != ""}


def short_commit(git: Mapping[str, Any] | None) -> str:
    """A `git_state` in a word: twelve digits, and a plus where the work tree differed."""
    return git["commit"][:12] + "+" * git["dirty"] if git else "unknown"


def package_versions() -> dict[str, str]:
    """Installed versions of `PACKAGES`."""
    versions = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def describe_device(device: str) -> str:
    """Name of the accelerator or the processor that `device` stands for."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return _cpu_model() or platform.processor() or platform.machine()


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command; None where it fails, git is missing or it takes too long."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
