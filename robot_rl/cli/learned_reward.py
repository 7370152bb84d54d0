"""Learned reward of a run, wherever it plugs in: simulated envs, stored episodes, a robot."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from configs.schema import RunConfig
from hardware.learning.rewards import RewardInputs, StepJudgement
from robot_rl.cli.components import observation_augmenter
from robot_rl.core.env import BatchEnv, EnvSpec, Obs
from robot_rl.core.env_wrapper import EnvWrapper
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.core.transition import Batch
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
from robot_rl.rewards.vice import ViceJudge, rows_kept
from robot_rl.training.ranks import check_memory
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import storage_errors

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter

PayBatch = Callable[[Batch], Batch]
"""A batch with other rewards."""
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
    elif config.reward.vice.interval:
        reward, vice, spec = _loaded(config, env.spec), config.reward.vice, env.spec
        rows = rows_kept(vice, spec.num_envs)
        frame = sum(one[0].numel() * one.element_size() for one in reward.examples.values())
        check_memory(
            rows * frame, spec.device, copies=1, what=f"{rows:,} frames for reward.vice",
            remedy=f"lower reward.vice.keep ({vice.keep})",
        )  # fmt: skip
        judge = ViceJudge(reward, vice, spec.num_envs, spec.device, seed=config.seed)
    elif config.reward.model:
        judge = ClassifierJudge(_loaded(config, env.spec), env.spec.num_envs, env.spec.device)
    else:
        return env
    return LearnedRewardEnv(env, judge, mode=config.reward.mode, weight=config.reward.weight)


def minibatch_rewards(config: RunConfig, env: BatchEnv, learner: Learner) -> PayBatch | None:
    """Pays minibatches anew by a classifier that learns on; None where stored rewards stay.

    Args:
        config: The run.
        env: Its worlds.
        learner: Whose batches.

    Raises:
        ConfigError: The learner does not read single steps, or what the classifier reads.
    """
    while isinstance(env, EnvWrapper) and not isinstance(env, LearnedRewardEnv):
        env = env.env
    if not isinstance(env, LearnedRewardEnv) or not isinstance(env.judge, ViceJudge):
        return None
    asked = f"reward.vice.interval={config.reward.vice.interval} pays single steps anew"
    if config.training.offline.updates:
        raise ConfigError(
            f"{asked}, and learns from what the policy visits: offline it visits nothing; set "
            "training.offline.updates=0"
        )
    if learner.n_step != 1 or learner.chunk_length or learner.monte_carlo_returns is not None:
        raise ConfigError(
            f"{asked}, and this learner sums several: set learner.n_step=1, or take another learner"
        )
    seen = (*learner.actor_groups, *learner.critic_groups)
    if missing := [name for name in env.judge.groups if name not in seen]:
        raise ConfigError(
            f"{asked}, and the learner's batches lack {', '.join(missing)}, which the reward "
            f"reads; they have {', '.join(seen)}"
        )
    return partial(env.judge.paid, weight=env.weight)


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
        self.changes_rewards = any(one.changes_rewards for one in steps)
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


def check_one_process(config: RunConfig, without: str) -> None:
    """Refuse a classifier that learns on where several processes would each have one.

    Raises:
        ConfigError: It was asked for.
    """
    if config.reward.vice.interval:
        raise ConfigError(
            f"reward.vice.interval={config.reward.vice.interval} learns on in the one process of a "
            f"training; it is not for {without}: leave one of the two out"
        )


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
        check_one_process(config, "robot-rl learn")
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
            probability=None if value.probability is None else float(value.probability),
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
