"""Learned reward of a run, wherever it plugs in: simulated envs, stored episodes, a robot."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from configs.schema import RunConfig
from hardware.learning.rewards import RewardInputs, StepJudgement
from robot_rl.cli.components import observation_augmenter
from robot_rl.core.env import BatchEnv, EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.episode import Episode
from robot_rl.rewards.artefact import LearnedReward, load_reward
from robot_rl.rewards.env import ClassifierJudge, LearnedRewardEnv, RewardMode, RewardRelabeler
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import storage_errors

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter

_KEPT = "reward"
"""Folder in a run: the reward that it learns by."""


def with_reward(config: RunConfig, env: BatchEnv) -> BatchEnv:
    """The worlds, with the reward that the run names.

    Raises:
        RewardError: There is none, or it is damaged.
        SpecMismatchError: It does not fit these worlds.
    """
    if not config.reward.model:
        return env
    judge = ClassifierJudge(_loaded(config, env.spec), env.spec.num_envs, env.spec.device)
    return LearnedRewardEnv(env, judge, mode=config.reward.mode, weight=config.reward.weight)


def episode_augmenter(config: RunConfig, spec: EnvSpec) -> "ObservationAugmenter | None":
    """Changes stored episodes as the run's worlds would have made them; None for nothing.

    Args:
        config: The run.
        spec: Of its bare worlds.
    """
    found = [observation_augmenter(config, spec)]
    if config.reward.model:
        reward = _loaded(config, spec)
        found.append(RewardRelabeler(reward, mode=config.reward.mode, weight=config.reward.weight))
    steps = [one for one in found if one is not None]
    return _Augmenters(steps) if steps else None


class _Augmenters:
    """Several of them, one after another."""

    def __init__(self, steps: Sequence["ObservationAugmenter"]) -> None:
        self._steps = steps
        self.widths: Mapping[str, int] = {k: v for one in steps for k, v in one.widths.items()}

    def __call__(self, episode: Episode) -> Episode:
        for one in self._steps:
            episode = one(episode)
        return episode


def keep_reward(run: RunFolder, config: RunConfig) -> None:
    """Copy the reward into the run's folder: where it came from may go."""
    if config.reward.model:
        with storage_errors("keep the reward in", run.path):
            shutil.copytree(config.reward.model, run.path / _KEPT)


def kept_reward(run: RunFolder, config: RunConfig) -> RunConfig:
    """The config with the reward that lies in the run's folder."""
    kept = run.path / _KEPT
    if not config.reward.model or not kept.is_dir():
        return config
    return replace(config, reward=replace(config.reward, model=str(kept)))


class LearnedRule:
    """The rule of a robot's episodes that a classifier judges: a `RewardRule`."""

    def __init__(self, config: RunConfig) -> None:
        """Read the reward; its groups are compared with the robot's by `check`.

        Raises:
            ConfigError: It is to be added to a reward that a robot does not have.
        """
        if config.reward.mode is RewardMode.add:
            raise ConfigError(
                "reward.mode=add adds to a task's own reward, which a robot does not tell; take "
                "reward.mode=replace"
            )
        self._where, self._weight = config.reward.model, config.reward.weight
        self._reward = load_reward(self._where)
        self._judge = ClassifierJudge(self._reward, 1, torch.device("cpu"))

    def check(self, spec: EnvSpec) -> None:
        """Refuse a robot's environment that it cannot judge; raises SpecMismatchError."""
        self._reward.check_env(spec, self._where)

    def begin(self, start: RewardInputs) -> None:
        """Nothing has been held yet."""
        self._judge.begin(torch.ones(1, dtype=torch.bool))

    def judge(self, step: RewardInputs) -> StepJudgement:
        """Reward and success of the newest frame; a person is asked where it is uncertain."""
        obs = {name: torch.from_numpy(group) for name, group in step.obs.items()}
        value = self._judge.judge(obs)
        return StepJudgement(
            reward=self._weight * float(value.stages), success=bool(value.success),
            uncertain=bool(value.uncertain),
        )  # fmt: skip


def _loaded(config: RunConfig, spec: EnvSpec) -> LearnedReward:
    reward = load_reward(Path(config.reward.model))
    reward.check_env(spec, config.reward.model)
    return reward
