"""Parts that learner and actor share: the frames of a run, and the policy's proof."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from configs.schema import RunConfig
from robot_rl.buffers.frames import is_image
from robot_rl.cli.components import make_learner
from robot_rl.core.env import EnvSpec
from robot_rl.core.episodic import first_action
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.learner import Learner
from robot_rl.link.records import MOST_PICTURE_BYTES, FrameSpec
from robot_rl.link.weights import Weights
from robot_rl.training.online import CHECK, POLICY

_TOLERANCE = 1e-5
"""Between processors: products are summed in other orders."""


def frame_spec(
    spec: EnvSpec, learner: Learner, meaning: Mapping[str, Any] | None = None
) -> FrameSpec:
    """Frames of a run: the groups that its learner reads.

    Args:
        meaning: Of actions and observations, as `robot_meaning` tells it.

    Raises:
        ConfigError: Pictures are larger than a record may hold.
    """
    groups = dict.fromkeys((*learner.actor_groups, *learner.critic_groups))
    cameras = [name for name in groups if is_image(spec.groups[name])]
    size = sum(math.prod(spec.groups[name].shape[1:]) for name in cameras)
    if size > MOST_PICTURE_BYTES:
        raise ConfigError(
            f"the pictures of {', '.join(cameras)} have {size:,} bytes together, and a record "
            f"holds {MOST_PICTURE_BYTES:,}; make them smaller: robot.cameras.<name>.width, height"
        )
    return FrameSpec(
        groups={name: spec.groups[name].shape for name in groups},
        action_size=spec.action_size, control_dt=spec.control_dt,
        robot=None if spec.robot is None else spec.robot.identity(), meaning=meaning or {},
    )  # fmt: skip


def make_acting_learner(config: RunConfig, spec: EnvSpec, seed: int) -> Learner:
    """A learner that only acts, with random streams of its own; its weights come by the link."""
    return make_learner(replace(config, seed=seed), spec)


def take_weights(learner: Learner, weights: Weights) -> None:
    """Act with other weights from now on, if they give the action that came with them.

    Raises:
        SpecMismatchError: They are of another network, or act otherwise than at the learner; the
            learner keeps those that it had.
    """
    policy = learner.policy()
    before = {name: one.clone() for name, one in policy.state_dict().items()}
    found = {name: torch.from_numpy(array.copy()) for name, array in weights.arrays.items()}
    try:
        policy.load_state_dict(_below(found, POLICY))
        obs, expected = _below(found, f"{CHECK}obs/"), found[CHECK + "action"]
        with torch.no_grad():
            robot = torch.ones(1, dtype=torch.bool)
            got = first_action(policy, lambda: learner.act(obs, explore=False), robot).cpu()
        error = float((got - expected).abs().max())
    except (RuntimeError, KeyError) as error:
        policy.load_state_dict(before)
        raise SpecMismatchError(
            f"weights of version {weights.version} do not fit this policy: "
            f"{str(error).splitlines()[0]}; start both sides with the same learner"
        ) from None
    if not error <= _TOLERANCE:
        policy.load_state_dict(before)
        raise SpecMismatchError(
            f"with weights of version {weights.version} this policy acts by {error:.2g} otherwise "
            "than at the learner; the robot does not move with them: start both sides with the "
            "same version of robot_rl and the same settings"
        )


def _below(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
