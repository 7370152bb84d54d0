"""Cart-pole swing-up: bring a hanging pole up with a force on its cart, and hold it there.

States, rewards and limits are those of the suite of Tassa et al., "DeepMind Control Suite"
(arXiv:1801.00690), task `cartpole swingup`. Deviations: the reward is that of the end of a control
period instead of the sum over its repeats, the pole begins at rest, and there is a success rule.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind, RobotSpec
from robot_rl.core.robot_command import CommandKind
from sim import checks, draws
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext
from sim.tasks.joint_task import JointTaskConfig

_AXIS, _RATE, _HINGE = "pole_axis", "pole_rate", "hinge"
"""Sensors of the pole's direction and of its speed, and its joint."""
_SCALE = math.sqrt(-2 * math.log(0.1))
"""Brings a Gaussian to 0.1 at the margin, as the suite's rewards."""


@dataclass(kw_only=True)
class ForceActionConfig:
    """Forces on the joints, in shares of their effort limits."""

    def action_map(self, robot: RobotSpec, scale: float | Sequence[float]) -> ActionMap:
        """Targets so far away that the motors' soft springs pull with the force that is asked for.

        Raises:
            SpecMismatchError: A joint has no effort limit, or no spring.
        """
        if any(not joint.stiffness > 0 or joint.effort_limit == math.inf for joint in robot.joints):
            raise SpecMismatchError(
                f"the task pushes the joints of robot '{robot.name}' with forces: each needs an "
                "effort_limit and a stiffness above 0; choose robot=cartpole"
            )
        far = [joint.effort_limit / joint.stiffness for joint in robot.joints]
        return ActionMap(
            kind=CommandKind.joint, low=[-end for end in far], high=far,
            stiffness=[joint.stiffness for joint in robot.joints],
            damping=[joint.damping for joint in robot.joints],
        )  # fmt: skip


@dataclass(kw_only=True)
class CartpoleConfig(JointTaskConfig):
    """The swing-up task: success is a pole that stands over the end of the episode."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="a cart with a pole, and one joint", robots=("cartpole",), joints=1
    )
    train_steps: int = 100_000
    """World-steps of training that a run takes; not shown to suffice."""
    episode_length: float = 10.0
    """Time limit [s]."""
    success_window: float = 2.0
    """Time at the episode's end over which success is judged [s]."""
    success_angle: float = 0.2
    """Largest mean angle of the pole from upright within the window [rad]."""
    action: ForceActionConfig = field(default_factory=ForceActionConfig)
    """Force on the cart."""

    def __post_init__(self) -> None:
        checks.positive(self, "episode_length", "success_window")
        checks.angle(self, "success_angle")
        checks.window(self.success_window, self.episode_length)


class CartpoleTask(Task):
    """Swing the pole up from below."""

    begins_anywhere = True

    def __init__(self, config: CartpoleConfig, context: TaskContext) -> None:
        """Prepare N envs.

        Raises:
            SpecMismatchError: The robot is no cart with a pole.
        """
        super().__init__(config, context)
        if not {_AXIS, _RATE} <= set(context.sensors):
            raise config.robot_kind.refusal("cartpole_swingup", context.robot)
        self._axis, self._rate = context.sensors[_AXIS], context.sensors[_RATE]
        window = context.steps("success_window", config.success_window)
        self._record = EndRecord(context.num_envs, context.device, self.episode_steps - window)
        self._never = torch.zeros(context.num_envs, dtype=torch.bool, device=context.device)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Hang the pole down, about a centimetre and a hundredth of a radian off."""
        self._record.clear(rows)
        drawn = draws.normal((rows.count, 3), 0.01, generator)
        cart, pole, speed = drawn.split(1, dim=-1)
        robot = RobotState({"joint_position": cart, "joint_velocity": speed})
        return InitialState(robot=robot, scene={_HINGE: math.pi + pole})

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward an upright pole over the rail's middle, little force and a slow pole."""
        cart, rate = true_state.joint_position[:, 0], self._rate[:, 0]
        upright = self._axis[:, 2].clone()  # the sensor itself is of the next episode after a reset
        angle = torch.atan2(self._axis[:, 0], upright)
        product = (
            (1 + upright) / 2
            * (1 + _closeness(cart, 2.0)) / 2
            * (4 + (1 - action[:, 0] ** 2).clamp_min(0)) / 5
            * (1 + _closeness(rate, 5.0)) / 2
        )  # fmt: skip
        self._record.add(angle.abs(), rate.abs(), episode_step)
        return StepOutcome(
            reward_terms={"balance": product},
            terminated=self._never,
            success=self._record.mean_distance < self.config.success_angle,
            metrics={"balance": product, "upright": upright, "cart": cart.abs()},
        )

    def parts(self) -> Mapping[str, Any]:
        """Running sums."""
        return {"record": self._record.state}


def _closeness(value: Tensor, margin: float) -> Tensor:
    """1 at 0, 0.1 at the margin, a Gaussian between."""
    return torch.exp(-0.5 * (_SCALE * value / margin) ** 2)
