"""A learned reward that finds everything equally good, for tests of who is judged by it."""

from pathlib import Path

import torch

from policies.networks.mlp import EnsembleLinear
from robot_rl.rewards.artefact import LearnedReward, save_reward
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier


def reward_of(folder: Path, width: int, *biases: float, control_dt: float = 0.04) -> Path:
    """A reward whose members answer everything by the same logit each."""
    config = ClassifierConfig(members=len(biases), hidden=[4], hold=2, hold_window=3)
    classifier = SuccessClassifier(config, {"actor": (width,)}, 1, seed=0)
    last = [one for one in classifier.network if isinstance(one, EnsembleLinear)][-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor(biases).reshape(-1, 1, 1))
    save_reward(folder, LearnedReward(
        classifier=classifier, labels={"labels": ["end"]}, shapes={"actor": (width,)},
        control_dt=control_dt, robot=None, data={}, quality={},
    ))  # fmt: skip
    return folder
