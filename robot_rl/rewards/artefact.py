"""A learned reward in a folder: JSON and safetensors, checked by digests, never unpickled.

reward.json          stages, groups, decision, data with digests, quality, versions, SHA-256
weights.safetensors  every tensor of the classifier
examples.safetensors frames in which it was shown success, where some are kept
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from policies.networks.images import ImageConfig, ImageEncoderKind
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import RewardError, SpecMismatchError
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier
from robot_rl.training.runs.provenance import package_versions, plain
from robot_rl.training.storage.durable import (
    canonical_json,
    discard,
    sha256,
    storage_errors,
    sync_folder,
    write_synced,
)

FORMAT = 1
"""Version of the folder; a reader refuses a newer one."""
_MANIFEST, _WEIGHTS, _EXAMPLES = "reward.json", "weights.safetensors", "examples.safetensors"


@dataclass(frozen=True, kw_only=True)
class LearnedReward:
    """A success classifier, and what it is of."""

    classifier: SuccessClassifier
    labels: dict[str, Any]
    """Settings of the labels: rules of the stages and the rest of `LabelConfig`."""
    shapes: dict[str, tuple[int, ...]]
    """Groups that are read: (D,), or (1, H, W, C) of `image/<camera>`."""
    control_dt: float
    """Time between two frames [s]."""
    robot: Mapping[str, Any] | None
    """Robot, as of `RobotSpec.identity`; None where the data name none."""
    data: dict[str, Any]
    """Data sets that it was made of, with their digests, and the episodes of each part."""
    quality: dict[str, Any]
    """Measured on the episodes that were held out."""
    examples: Obs = field(default_factory=dict[str, Tensor])
    """Frames of success, groups as in `shapes`, for who learns on; empty where none are kept."""

    @property
    def stages(self) -> list[str]:
        """Label of every stage."""
        return list(self.labels["labels"])

    def check_env(self, spec: EnvSpec, where: str) -> None:
        """Refuse an environment that it cannot judge.

        Args:
            spec: Of the environment.
            where: Folder of the reward, for the message.

        Raises:
            SpecMismatchError: A group is missing or of another shape, or the robot or the control
                period differs.
        """
        fault = self._misfit(spec)
        if fault:
            raise SpecMismatchError(
                f"the reward {where} does not fit this environment: {fault}; train one on data of "
                "this task: robot-rl reward train data=... out=..."
            )

    def _misfit(self, spec: EnvSpec) -> str:
        for name, shape in self.shapes.items():
            if name not in spec.groups:
                return f"it reads '{name}', and the environment has {', '.join(spec.groups)}"
            given = spec.groups[name].shape
            same = given[-3:] == shape[-3:] if name.startswith(IMAGE_PREFIX) else given == shape
            if not same:
                return f"it reads '{name}' of shape {shape}, which has {given} here"
        if abs(spec.control_dt - self.control_dt) > 1e-6 * self.control_dt:
            return f"its frames are {self.control_dt:g} s apart, here {spec.control_dt:g} s"
        if self.robot is not None and spec.robot is not None:
            mine, theirs = dict(self.robot), spec.robot.identity()
            for key in ("name", "version", "joints"):
                if key in mine and mine[key] != theirs[key]:
                    return f"{key} of its robot is {mine[key]}, here {theirs[key]}"
        return ""


def save_reward(folder: Path, reward: LearnedReward) -> str:
    """Write a new folder; returns the digest of all that is in it.

    Raises:
        RewardError: There is something at its place.
        StorageError: The disk refused.
    """
    if folder.exists():
        raise RewardError(f"{folder} exists already; choose another folder for the reward")
    tensors = {name: value.contiguous() for name, value in reward.classifier.state_dict().items()}
    weights = save(tensors)
    manifest: dict[str, Any] = {
        "format": FORMAT, "labels": reward.labels, "control_dt": reward.control_dt,
        "shapes": {name: list(shape) for name, shape in reward.shapes.items()},
        "robot": None if reward.robot is None else dict(reward.robot),
        "classifier": plain(reward.classifier.config), "data": reward.data,
        "quality": reward.quality, "packages": package_versions(),
        "weights": {"sha256": sha256(weights), "bytes": len(weights)},
    }  # fmt: skip
    examples = save({name: one.contiguous() for name, one in reward.examples.items()})
    if reward.examples:
        manifest["examples"] = {"sha256": sha256(examples), "bytes": len(examples)}
    manifest["sha256"] = sha256(canonical_json(manifest))
    temporary = folder.with_name(f".tmp_{folder.name}")
    with storage_errors("write the reward", folder):
        discard(temporary)
        temporary.mkdir(parents=True)
        write_synced(temporary / _WEIGHTS, weights)
        if reward.examples:
            write_synced(temporary / _EXAMPLES, examples)
        write_synced(temporary / _MANIFEST, json.dumps(manifest, indent=1).encode())
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
    return manifest["sha256"]


def load_reward(folder: Path | str) -> LearnedReward:
    """Read a folder and check all of it.

    Raises:
        RewardError: There is none, it is damaged, or of a newer format.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    content = _read(folder / _WEIGHTS, manifest["weights"])
    examples: Obs = {}
    if "examples" in manifest:
        examples = load(_read(folder / _EXAMPLES, manifest["examples"]))
    given = dict(manifest["classifier"])
    images = dict(given.pop("images"))
    images["encoder"] = ImageEncoderKind[images["encoder"]]
    shapes = {name: tuple(shape) for name, shape in manifest["shapes"].items()}
    config = ClassifierConfig(**given, images=ImageConfig(**images))
    classifier = SuccessClassifier(config, shapes, len(manifest["labels"]["labels"]), seed=0)
    try:
        classifier.load_state_dict(load(content))
    except (SafetensorError, RuntimeError) as error:
        raise RewardError(
            f"the weights of the reward {folder} do not fit: {str(error).splitlines()[0]}"
        ) from None
    return LearnedReward(
        classifier=classifier.eval().requires_grad_(False), labels=manifest["labels"],
        shapes=shapes, control_dt=manifest["control_dt"], robot=manifest["robot"],
        data=manifest["data"], quality=manifest["quality"], examples=examples,
    )  # fmt: skip


def _read(path: Path, recorded: Mapping[str, Any]) -> bytes:
    """A file whose digest the manifest holds."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RewardError(
            f"the reward {path.parent} has no {path.name}: {error.strerror}"
        ) from None
    if sha256(content) != recorded["sha256"]:
        raise RewardError(
            f"the reward {path.parent} is damaged: {path.name} has {len(content)} bytes of "
            f"{recorded['bytes']} and not the recorded SHA-256"
        )
    return content


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        recorded, version = manifest["sha256"], int(manifest["format"])
    except OSError:
        raise RewardError(
            f"there is no reward in {folder}: expected a folder with {_MANIFEST}, as robot-rl "
            "reward train writes it"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise RewardError(f"the reward {folder} is damaged: {_MANIFEST} cannot be read") from None
    if version > FORMAT:
        raise RewardError(
            f"the reward {folder} has format {version}, this program reads up to {FORMAT}; use the "
            "version of robot_rl that wrote it"
        )
    told = {name: value for name, value in manifest.items() if name != "sha256"}
    if sha256(canonical_json(told)) != recorded:
        raise RewardError(f"the reward {folder} is damaged: {_MANIFEST} is not as written")
    return manifest
