"""A go2 that stands: a policy without training, as a bundle with everything around it."""

from pathlib import Path

import torch
from torch import Tensor, nn

from configs.compose import to_plain
from configs.twin_builder import build_twin
from policies.export import export_bundle
from tests.compositions import composed


class Still(nn.Module):
    """Keeps every joint at its default position."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(1, actions))

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        return self.zero * obs["actor"][:, :1]


def write_standing_policy(folder: Path, **provenance: str) -> Path:
    config = composed(["task=velocity", "robot=go2"]).config
    twin = build_twin(config, seed=0)
    twin.connect()
    action_map = config.robot.action_map(config.task)
    return export_bundle(
        folder, policy=Still(action_map.size),
        terms=config.task.actor, robot=twin.spec, action_map=action_map,
        control_dt=twin.control_dt,
        goal_widths={name: value.shape[1] for name, value in twin.goal.items()},
        clocks=dict(twin.task.clocks),
        sensed_widths={}, initial_action=[0.0] * action_map.size,
        provenance={"config": to_plain(config), **provenance},
    )  # fmt: skip
