"""A quadruped in a loop at 500 Hz and a policy at 50 Hz that has learnt nothing, for its times."""

from pathlib import Path

import torch
from torch import Tensor, nn

from configs.compose import compose, to_plain
from policies.export import export_bundle
from robot_rl.cli.components import make_learner, make_sim_env
from robot_rl.core.env import Obs

LOOP_HZ, POLICY_HZ, WIDTH = 500, 50, 256
_SHARE = 0.02
"""Of its actions that an untrained actor may take without throwing the robot over."""


class Faint(nn.Module):
    """A policy whose actions are small: it costs what it costs, and the robot stands."""

    def __init__(self, policy: nn.Module) -> None:
        """Weaken a policy."""
        super().__init__()
        self.policy = policy

    def forward(self, obs: Obs) -> Tensor:
        """Actions, (N, A)."""
        return _SHARE * self.policy(obs)


def write_standing_bundle(folder: Path) -> Path:
    """Export an untrained actor with two hidden layers of 256 for the task velocity on a go2."""
    composed = compose([
        "task=velocity", "robot=go2", f"robot.physics_dt={1 / LOOP_HZ}",
        f"robot.decimation={LOOP_HZ // POLICY_HZ}", f"learner.actor.hidden=[{WIDTH},{WIDTH}]",
    ])  # fmt: skip
    config = composed.config
    torch.manual_seed(config.seed)
    env = make_sim_env(
        config, num_envs=1, device=torch.device("cpu"), seed=config.seed, evaluation=True
    )
    return export_bundle(
        folder, policy=Faint(make_learner(config, env.spec).policy()),
        terms=config.task.actor, robot=config.robot.spec, action_map=env.action_map,
        control_dt=env.spec.control_dt,
        sensed_widths={name: value.shape[-1] for name, value in env.sensed.items()},
        goal_widths={name: goal.shape[-1] for name, goal in env.task.goal.items()},
        clocks=dict(env.task.clocks),
        initial_action=[env.initial_action] * env.spec.action_size,
        provenance={"config": to_plain(config)},
    )  # fmt: skip
