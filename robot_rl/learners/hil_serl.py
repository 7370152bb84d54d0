"""HIL-SERL (Luo et al. 2024, arXiv:2410.21845): SAC on stored and own steps, and a grasp critic.

The last entry of an action is the gripper's: close, stay or open. A deep Q-network of its own
values these commands (double DQN, van Hasselt et al. 2015), and is paid less for commands that move
the fingers; actor and critics know the other entries only. Half of every minibatch are
demonstrations and interventions (`training.prior`), as in RLPD. Source: rail-berkeley/hil-serl
5d02aed, agents/continuous/sac_hybrid_single.py. Deviations:

- `configs/learner/hil_serl.yaml` has the commands close and open alone, as our action maps take the
  opening itself: to repeat a command is to stay. Close, stay and open are `[-1, 0, 1]`.
- A stored entry counts as the nearest command. There the entry is cut off to an integer, which
  makes -0.95, as its SpaceMouse stores it, a command to stay.
- Losses of one update are stepped down one after another, the critics first, as in all our SAC.
- Images are seen by an encoder that SAC's critics train from nothing (`images.py`), and the grasp
  critic reads its features; the source's is a ResNet-10 that was trained before.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.gripper import GripperConfig, GripperNetwork, GrippingPolicy, without_gripper
from policies.networks.images import ImagePolicy
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import seed_weights
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.sac import SAC, SACConfig

OPENING = "gripper_opening"
"""Term of the group `actor` that says how far the gripper is open."""


@dataclass(kw_only=True)
class HILSERLConfig(SACConfig):
    """SAC of all entries of an action but the gripper's."""

    gripper: GripperConfig = field(default_factory=GripperConfig)
    """Commands of the gripper, and the critic that values them."""
    gripper_lr: float = 3e-4
    """Step size of that critic."""
    grasp_penalty: float = 0.0
    """Taken from the reward of that critic where a command moves the fingers: it closes an open
    gripper, or opens one that is not open. Needs the term `gripper_opening` in the group `actor`;
    the authors take 0.02 to 0.05."""
    open_above: float = 0.9
    """Observed opening above which the gripper is open."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "gripper_lr": (0, 1), "grasp_penalty": (0, 1e6), "open_above": (-1e6, 1e6),
        })  # fmt: skip


class HILSERL(SAC):
    """SAC of the arm, double DQN of the gripper; without commands of a gripper it is plain SAC."""

    def __init__(
        self, config: HILSERLConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make SAC, and the grasp critic with its target; arguments as of `SAC`.

        Raises:
            ConfigError: Actions have no entry beside the gripper's, or its opening is not observed.
        """
        self._gripper: GripperNetwork | None = None
        streams: dict[str, Any] = {"seed": seed, "stream_seed": stream_seed, "reduce": reduce}
        if not config.gripper.commands:
            super().__init__(config, spec, **streams)
            return
        arm = without_gripper(spec, config.gripper)
        # As coded: the target entropy counts the gripper's entry, too.
        per_action = config.target_entropy_per_action * spec.action_size / arm.action_size
        super().__init__(replace(config, target_entropy_per_action=per_action), arm, **streams)
        self.config: HILSERLConfig
        self._opening = _opening_column(spec) if config.grasp_penalty > 0 else None
        seed_weights(derive_seed(seed, "gripper"))
        gripper = GripperNetwork(
            config.gripper, spec.groups["actor"].shape[0] if "actor" in spec.groups else 0,
            None if self.images is None else self.images.trunk(),
        ).to(spec.device)  # fmt: skip
        self._gripper, self._target_gripper = gripper, moving_copy(gripper)
        self._gripper_optimizer = Optimizer(
            gripper.parameters(), config.gripper_lr, config, after_step=gripper.constrain,
            reduce=reduce,
        )  # fmt: skip
        assert isinstance(self.actor, nn.Module)
        whole = GrippingPolicy(self.actor, self.actor_groups, gripper)
        self.actor_groups = whole.groups
        self._whole_policy: nn.Module = whole
        if self.images is not None:
            self._whole_policy = ImagePolicy(self.images.encoder, whole, whole.groups)
            self.cuda_graphs.allowed = False  # each of its graphs would keep other features
        self._features: Batch | None = None
        """The batch of this update with features of its images, none of them with a graph."""
        self.update_method += "; grasp critic: PyTorch operations"

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]; of the gripper always the best command, as coded."""
        action = super().act(obs, explore)
        if self._gripper is None:
            return action
        return torch.cat([action, self._gripper.command(self.encoded(obs))], dim=-1)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One update of SAC without the gripper's entry, and one step of the grasp critic.

        Returns:
            Detached metrics, the actor's those of its last step, and the error of SAC's critics of
            every row, (B,).
        """
        if self._gripper is None:
            return super().update(batch)
        metrics, error = super().update(_of_arm(batch))
        features = self._features  # of images, which SAC has encoded by now
        seen = batch if features is None else replace(features, action=batch.action)
        return {**metrics, **self._update_gripper(self._gripper, seen)}, error

    def encode(self, batch: Batch) -> Batch:
        """As of `SAC`; the grasp critic reads the same features."""
        found = super().encode(batch)
        if self._gripper is not None and self.images is not None:
            detached = {name: group.detach() for name, group in found.obs.items()}
            self._features = replace(found, obs=detached)
        return found

    def _update_gripper(self, gripper: GripperNetwork, batch: Batch) -> dict[str, Tensor]:
        command = gripper.nearest(batch.action[:, -1])  # (B,)
        with torch.no_grad(), self.autocast():
            best = gripper(batch.next_obs).argmax(-1, keepdim=True)  # of the online network
            next_value = self._target_gripper(batch.next_obs).gather(1, best)[:, 0]
            reward = self.reward_scale.scale(batch.reward - self._penalty(batch.obs, command))
            target = reward + batch.discount * next_value
        with self.autocast():
            value = gripper(batch.obs).gather(1, command[:, None])[:, 0]  # (B,)
        error = value - target
        loss = (batch.weight * error * error).mean()
        self._gripper_optimizer.step(loss)
        soft_update(
            list(self._target_gripper.parameters()), list(gripper.parameters()), self.config.tau
        )
        return {"grasp_critic_loss": loss.detach(), "grasp_q_mean": value.detach().mean()}

    def _penalty(self, obs: Obs, command: Tensor) -> Tensor:
        """Price of commands (B,) that move the fingers, (B,)."""
        if self._opening is None:
            return torch.zeros_like(command, dtype=torch.float32)
        is_open = obs["actor"][:, self._opening] > self.config.open_above
        closes, opens = command == 0, command == len(self.config.gripper.commands) - 1
        return self.config.grasp_penalty * ((closes & is_open) | (opens & ~is_open)).float()

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        super().observe_stored(obs)
        if self._gripper is not None:
            self._gripper.update_statistics(obs)

    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """As of `SAC`, of the entries that are not the gripper's."""
        return super().inspect(batch if self._gripper is None else _of_arm(batch))

    def policy(self) -> nn.Module:
        """Actor and gripper, whose forward is the deterministic policy."""
        return super().policy() if self._gripper is None else self._whole_policy

    def _parts(self) -> dict[str, Any]:
        if self._gripper is None:
            return super()._parts()
        return super()._parts() | {
            "gripper": self._gripper, "target_gripper": self._target_gripper,
            "gripper_optimizer": self._gripper_optimizer,
        }  # fmt: skip


def _of_arm(batch: Batch) -> Batch:
    return replace(batch, action=batch.action[:, :-1].contiguous())


def _opening_column(spec: EnvSpec) -> int:
    """Column of the newest opening in the group `actor`."""
    terms = spec.groups["actor"].terms if "actor" in spec.groups else ()
    start, names = 0, [term.name for term in terms]
    for term in terms:
        start += term.size
        if term.name.rpartition("/")[2] == OPENING:
            return start - 1
    raise ConfigError(
        "learner.grasp_penalty above 0 must know how far the gripper is open: "
        + unknown_name("term of the group 'actor'", OPENING, names)
        + "; add it to the task's observation, or set learner.grasp_penalty=0; where no action "
        "moves a gripper, learner.gripper.commands=[]"
    )
