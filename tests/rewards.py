"""A learned reward whose answers are known: two members that draw the line at different places."""

import torch
from torch import nn

from robot_rl.core.env import EnvSpec
from robot_rl.rewards.artefact import LearnedReward
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier
from robot_rl.rewards.env import ClassifierJudge, LearnedRewardEnv, RewardMode
from tests.fakes import ToyEnv


def near_middle(spec: EnvSpec | None = None) -> LearnedReward:
    """Success is a first entry of `actor` within 0.4; between 0.4 and 0.6 the members disagree."""
    width = 2 if spec is None else spec.groups["actor"].shape[0]
    config = ClassifierConfig(members=2, hidden=[4], hold=2, hold_window=3, max_disagreement=0.2)
    classifier = SuccessClassifier(config, {"actor": (width,)}, 1, seed=0)
    classifier.network = nn.Sequential(_Borders((0.4, 0.6)))
    return LearnedReward(
        classifier=classifier, labels={"labels": ["end"]}, shapes={"actor": (width,)},
        control_dt=0.1 if spec is None else spec.control_dt, robot=None, data={}, quality={},
    )  # fmt: skip


def learned_env(
    env: ToyEnv, *, mode: RewardMode = RewardMode.replace, weight: float = 1.0
) -> LearnedRewardEnv:
    """The env with that reward."""
    judge = ClassifierJudge(near_middle(env.spec), env.spec.num_envs, env.spec.device)
    return LearnedRewardEnv(env, judge, mode=mode, weight=weight)


class _Borders(nn.Module):
    """Logit of each member, large within its border."""

    def __init__(self, borders: tuple[float, ...]) -> None:
        super().__init__()
        self._borders = torch.tensor(borders)[:, None, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(E, B, D) -> (E, B, 1)."""
        return 50.0 * (self._borders.to(x.device) - x[..., :1].abs())
