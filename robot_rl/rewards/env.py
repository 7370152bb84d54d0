"""Envs whose reward is what a learned reward says; their success stays the task's own rule.

The reward of a step is the share of the stages that are held, by the k-of-m rule, in the frame that
the step led to: 0 or 1 for a binary classifier. It takes the place of the task's reward, or is
added to it. Episodes end as the task lets them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvStep, Obs
from robot_rl.core.env_wrapper import EnvWrapper
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.episode import Episode
from robot_rl.rewards.artefact import LearnedReward
from robot_rl.rewards.classifier import SuccessClassifier, episode_obs
from robot_rl.rewards.hold import HoldWindow, held_frames

METRICS = ("learned_reward", "uncertain", "task_reward")
"""Metrics of the steps, beside those of the envs."""


class RewardMode(Enum):
    """Place of a learned reward."""

    replace = "replace"
    """The reward is the learned one alone."""
    add = "add"
    """The learned one is added to the task's."""


@dataclass(kw_only=True)
class ViceConfig:
    """Learning on of a classifier by what the run's policy visits (robot_rl/rewards/vice.py)."""

    interval: int = 0
    """Env-steps between two lessons, at least one of all envs; 0 leaves the classifier as it is."""
    updates: int = 10
    """Updates of a lesson."""
    batch_size: int = 256
    """Frames of an update: half are successes that the reward was trained on, half were visited."""
    lr: float = 3e-4
    """Step size of AdamW."""
    keep: int = 20_000
    """Newest frames of the envs that are drawn from; each checkpoint holds them."""

    def __post_init__(self) -> None:
        for name, lowest in (("interval", 0), ("updates", 1), ("batch_size", 2), ("keep", 1)):
            if getattr(self, name) < lowest:
                raise ConfigError(
                    f"reward.vice.{name} must be at least {lowest}, got {getattr(self, name)}"
                )
        if self.batch_size % 2:
            raise ConfigError(f"reward.vice.batch_size must be even, got {self.batch_size}")
        if not 0 < self.lr < 1:
            raise ConfigError(f"reward.vice.lr must lie in (0, 1), got {self.lr}")


@dataclass(kw_only=True)
class RewardConfig:
    """Learned reward of a run (docs/rewards.md)."""

    model: str = ""
    """Folder that `robot-rl reward train` wrote; empty for the task's own reward."""
    function: str = ""
    """Python file that defines reward(obs), instead of a model; runs in a process of its own."""
    mode: RewardMode = RewardMode.replace
    """replace the task's reward, or add to it."""
    weight: float = 1.0
    """Reward of a step in which every stage is held, or factor of what the function says."""
    vice: ViceConfig = field(default_factory=ViceConfig)
    """Learning on of the model while the run goes on; its probability is the reward then."""

    def __post_init__(self) -> None:
        if self.vice.interval and (not self.model or self.mode is RewardMode.add):
            raise ConfigError(
                f"reward.vice.interval={self.vice.interval} goes on from reward.model=<learned "
                "reward> and replaces the task's reward (reward.mode=replace), got "
                f"reward.model={self.model or '(none)'}, reward.mode={self.mode.value}"
            )
        if self.model and self.function:
            raise ConfigError(
                f"reward.model={self.model} and reward.function={self.function} were asked for; "
                "give one of both"
            )
        if not 0 < self.weight < 1e6:
            raise ConfigError(f"reward.weight must lie in (0, 1e6), got {self.weight}")


@dataclass(frozen=True, kw_only=True)
class Value:
    """Value of a step of N envs."""

    reward: Tensor
    """(N,): of a classifier the share of the stages that are held, in [0, 1]."""
    success: Tensor
    """(N,) bool: all stages are held."""
    uncertain: Tensor
    """(N,) bool: the members disagree, by the same k-of-m rule; a person should say."""
    probability: Tensor | None = None
    """(N,): of success, of a classifier and the newest frame alone."""


class StepJudge(Protocol):
    """Judge of the frames of N envs, step after step."""

    def judge(self, obs: Obs) -> Value:
        """Value of the frames that the steps led to, groups (N, ...)."""
        ...

    def begin(self, mask: Tensor) -> None:
        """New episodes begin in the masked envs, (N,) bool."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that is remembered of the episodes under way."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


class ClassifierJudge:
    """Success classifier with the k-of-m rule."""

    def __init__(self, reward: LearnedReward, num_envs: int, device: torch.device) -> None:
        """Judge N envs; none has begun."""
        self._classifier: SuccessClassifier = reward.classifier.to(device)
        config = self._classifier.config
        # Columns: stages, and whether the members disagree.
        self._window = HoldWindow(
            config.hold, config.hold_window, num_envs, self._classifier.stages + 1, device
        )

    def judge(self, obs: Obs) -> Value:
        """Value of the newest frames."""
        found = self._classifier.judge(obs)
        seen = torch.cat([found.reached, found.uncertain[:, None]], dim=-1)
        held = self._window.add(seen)
        stages = held[:, :-1].cummin(-1).values
        return Value(
            reward=stages.float().mean(-1), success=stages[:, -1], uncertain=held[:, -1],
            probability=found.probability.amin(-1),
        )  # fmt: skip

    def begin(self, mask: Tensor) -> None:
        """Forget what was seen in these envs."""
        self._window.begin(mask)

    def state_dict(self) -> dict[str, Any]:
        """Decisions about the last m frames."""
        return dict(self._window.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._window.load_state_dict(dict(state))


class LearnedRewardEnv(EnvWrapper):
    """A `BatchEnv` around another one, with a learned reward."""

    def __init__(self, env: BatchEnv, judge: StepJudge, *, mode: RewardMode, weight: float) -> None:
        """Wrap envs; whoever made the judge has checked that it fits.

        Args:
            env: The envs.
            judge: Of as many envs.
            mode: What becomes of the task's reward.
            weight: Reward of a step in which every stage is held.
        """
        # Products of other threads may change the setting that decides the last digits of these:
        # not beside a learner, or two equal runs would not be equal.
        super().__init__(env, replace(
            env.spec, reward_names=(), reward_weights=(), steps_beside=False,
            metric_names=(*env.spec.metric_names, *METRICS),
        ))  # fmt: skip
        self.judge = judge
        """Judge of the steps."""
        self.weight = weight
        """Reward of a step in which every stage is held."""
        self._adds = mode is RewardMode.add

    def step(self, action: Tensor) -> EnvStep:
        """Step the envs and judge what came of it."""
        step = self.env.step(action)
        value = self.judge.judge(step.next_obs)
        self.judge.begin(step.ended)
        learned = self.weight * value.reward
        told = {METRICS[0]: learned, METRICS[1]: value.uncertain.float(), METRICS[2]: step.reward}
        return replace(
            step, reward=step.reward + learned if self._adds else learned, reward_terms=None,
            reward_weights=None, metrics={**step.metrics, **told},
        )  # fmt: skip

    def _begin(self, mask: Tensor, obs: Obs) -> None:
        self.judge.begin(mask)  # nothing is held yet

    def _remembered(self) -> dict[str, Any]:
        return {"judge": self.judge.state_dict()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self.judge.load_state_dict(state["judge"])


class RewardRelabeler:
    """Gives stored episodes the rewards that steps would have had; adds no group."""

    widths: Mapping[str, int] = {}
    """Nothing is added to the observations."""
    changes_rewards = True
    """Rewards are another's than those that are stored."""

    def __init__(
        self, judge: Callable[[Episode], Tensor], *, mode: RewardMode, weight: float
    ) -> None:
        """Relabel as `LearnedRewardEnv` rewards.

        Args:
            judge: Rewards of the steps of an episode, (T,), before the weight.
            mode: What becomes of the stored rewards.
            weight: Factor.
        """
        self._judge, self._adds, self._weight = judge, mode is RewardMode.add, weight

    def __call__(self, episode: Episode) -> Episode:
        """The episode with other rewards; the sum of its terms is its old one."""
        learned = self._weight * self._judge(episode).cpu().numpy()
        return replace(episode, reward=episode.reward + learned if self._adds else learned)


def held_stages(classifier: SuccessClassifier, episode: Episode) -> Tensor:
    """Share of the stages that are held after each step of an episode, (T,), in [0, 1]."""
    config = classifier.config
    found = classifier.judge(episode_obs(episode, config.groups, config.cameras))
    numbers = torch.zeros(len(found.reached), dtype=torch.int64)
    held = held_frames(found.reached, numbers, config.hold, config.hold_window)
    return held.cummin(-1).values.float().mean(-1)
