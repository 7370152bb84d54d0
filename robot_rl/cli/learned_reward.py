"""Learned reward of a run, wherever it plugs in: simulated envs, stored episodes, a robot."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from configs.schema import RunConfig
from hardware.learning.rewards import RewardInputs, StepJudgement
from robot_rl.cli.components import observation_augmenter
from robot_rl.core.env import BatchEnv, EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.episode import Episode
from robot_rl.rewards.artefact import LearnedReward, load_reward
from robot_rl.rewards.classifier import episode_obs
from robot_rl.rewards.env import (
    ClassifierJudge,
    LearnedRewardEnv,
    RewardMode,
    RewardRelabeler,
    StepJudge,
    held_stages,
)
from robot_rl.rewards.function import FunctionJudge
from robot_rl.rewards.sandbox import SandboxedFunction
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import storage_errors

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter

_KEPT, _KEPT_FUNCTION = "reward", "reward.py"
"""Folder, or file, in a run: the reward that it learns by."""


def with_reward(config: RunConfig, env: BatchEnv) -> BatchEnv:
    """The worlds, with the reward that the run names.

    Raises:
        RewardError: There is none, or it is damaged.
        SpecMismatchError: It does not fit these worlds.
    """
    if config.reward.function:
        judge: StepJudge = FunctionJudge(SandboxedFunction(config.reward.function), env.spec)
        judge.judge(_example(env.spec))  # what cannot judge is refused before a run begins
    elif config.reward.model:
        judge = ClassifierJudge(_loaded(config, env.spec), env.spec.num_envs, env.spec.device)
    else:
        return env
    return LearnedRewardEnv(env, judge, mode=config.reward.mode, weight=config.reward.weight)


def episode_augmenter(config: RunConfig, spec: EnvSpec) -> "ObservationAugmenter | None":
    """Changes stored episodes as the run's worlds would have made them; None for nothing.

    Args:
        config: The run.
        spec: Of its bare worlds.
    """
    found = [observation_augmenter(config, spec)]
    judge = _episode_judge(config, spec)
    if judge is not None:
        found.append(RewardRelabeler(judge, mode=config.reward.mode, weight=config.reward.weight))
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
    with storage_errors("keep the reward in", run.path):
        if config.reward.model:
            shutil.copytree(config.reward.model, run.path / _KEPT)
        elif config.reward.function:
            shutil.copyfile(config.reward.function, run.path / _KEPT_FUNCTION)


def kept_reward(run: RunFolder, config: RunConfig) -> RunConfig:
    """The config with the reward that lies in the run's folder."""
    changed = config.reward
    if changed.model and (run.path / _KEPT).is_dir():
        changed = replace(changed, model=str(run.path / _KEPT))
    elif changed.function and (run.path / _KEPT_FUNCTION).is_file():
        changed = replace(changed, function=str(run.path / _KEPT_FUNCTION))
    return replace(config, reward=changed)


class LearnedRule:
    """The rule of a robot's episodes that a classifier judges: a `RewardRule`."""

    def __init__(self, config: RunConfig) -> None:
        """Read the reward; its groups are compared with the robot's by `check`.

        Raises:
            ConfigError: It is to be added to a reward that a robot does not have.
        """
        if config.reward.function:
            raise ConfigError(
                f"reward.function={config.reward.function} is for simulated envs: a robot's rule "
                "says when an episode succeeded; take reward.model=<learned reward>"
            )
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
            reward=self._weight * float(value.reward), success=bool(value.success),
            uncertain=bool(value.uncertain),
        )  # fmt: skip


def _episode_judge(config: RunConfig, spec: EnvSpec) -> Callable[[Episode], Tensor] | None:
    """Rewards of the steps of a stored episode, as the run's reward gives them."""
    if config.reward.function:
        judge = FunctionJudge(SandboxedFunction(config.reward.function), spec)

        def rewards(episode: Episode) -> Tensor:
            known = [name for name in episode.obs if name in spec.groups]
            return judge.judge(episode_obs(episode, known, ())).reward

        return rewards
    if not config.reward.model:
        return None
    classifier = _loaded(config, spec).classifier
    return lambda episode: held_stages(classifier, episode)


def _example(spec: EnvSpec) -> Obs:
    """Frames of zeros."""
    return {
        name: torch.zeros(spec.num_envs, *group.shape, dtype=group.dtype)
        for name, group in spec.groups.items()
    }


def _loaded(config: RunConfig, spec: EnvSpec) -> LearnedReward:
    reward = load_reward(Path(config.reward.model))
    reward.check_env(spec, config.reward.model)
    return reward
