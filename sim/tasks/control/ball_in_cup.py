"""Ball in cup: swing a ball on a string into the cup that it hangs from, and keep it there.

States, rewards and limits are those of the suite of Tassa et al., "DeepMind Control Suite"
(arXiv:1801.00690), task `ball_in_cup catch`. Deviations: the reward is that of the end of a control
period instead of the sum over its repeats; a start inside the cup is moved below it instead of
drawn again; and there is a success rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.robots.joint_robot import JointActionConfig
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext
from sim.tasks.joint_task import JointTaskConfig

_PLACE = "ball_from_cup"
_INSIDE = 0.05 - 0.025
"""Distance along x and z of the ball's centre from the middle of the cup, within which the whole
ball is inside [m]: half the cup's width less the ball's radius."""
_BESIDE, _BELOW = 0.09, 0.45
"""A ball that is nearer to the cup's axis begins below the cup: distance and height [m]."""


@dataclass(kw_only=True)
class BallInCupConfig(JointTaskConfig):
    """The task: success is a ball that is in the cup over the end of the episode."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="a cup that slides along two joints", robots=("cup",), joints=2
    )
    train_steps: int = 200_000
    """World-steps of training that a run takes; not shown to suffice."""
    episode_length: float = 20.0
    """Time limit [s]."""
    success_window: float = 0.5
    """Time at the episode's end over which success is judged [s]."""
    start_low: list[float] = field(default_factory=lambda: [-0.2, 0.4])
    """Lowest x and z that the ball begins at [m]."""
    start_high: list[float] = field(default_factory=lambda: [0.2, 0.7])
    """Highest x and z that the ball begins at [m]."""
    action: JointActionConfig = field(default_factory=JointActionConfig)
    """Targets of the cup."""

    def __post_init__(self) -> None:
        checks.positive(self, "episode_length", "success_window")
        checks.window(self.success_window, self.episode_length)
        checks.box(self, "start_low", "start_high", 2)


class BallInCupTask(Task):
    """Catch the ball."""

    begins_anywhere = True

    def __init__(self, config: BallInCupConfig, context: TaskContext) -> None:
        """Prepare N envs.

        Raises:
            SpecMismatchError: The robot is no cup, or the scene has no ball.
        """
        super().__init__(config, context)
        if _PLACE not in context.sensors:  # it names the cup's site
            raise config.robot_kind.refusal("ball_in_cup", context.robot)
        self._place = context.sensors[_PLACE]
        window = context.steps("success_window", config.success_window)
        self._record = EndRecord(context.num_envs, context.device, self.episode_steps - window)
        self._never = torch.zeros(context.num_envs, dtype=torch.bool, device=context.device)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Let the ball go somewhere within its string's reach; the cup stands in the middle."""
        self._record.clear(rows)
        config = self.config
        place = draws.box(rows.count, config.start_low, config.start_high, generator)
        x, z = place.split(1, dim=-1)
        z = torch.where(x.abs() < _BESIDE, z.clamp_max(_BELOW), z)
        still = torch.zeros_like(place)
        robot = RobotState({"joint_position": still, "joint_velocity": still})
        return InitialState(robot=robot, scene={"ball_x": x, "ball_z": z})

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward a ball that is inside."""
        away = self._place[:, [0, 2]].abs().amax(-1)
        caught = (away < _INSIDE).float()
        self._record.add(1 - caught, away, episode_step)
        return StepOutcome(
            reward_terms={"caught": caught},
            terminated=self._never,
            success=self._record.mean_distance == 0,
            metrics={"caught": caught, "ball_distance": away},
        )

    def parts(self) -> Mapping[str, Any]:
        """Running sums."""
        return {"record": self._record.state}
