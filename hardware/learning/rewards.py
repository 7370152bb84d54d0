"""Reward and success of an episode on a robot: rules that a learning environment is given."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hardware.control.world import WorldOutcome
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.observation import GOAL_PREFIX, SENSED_PREFIX, ObservationInputs


@dataclass(frozen=True, kw_only=True)
class RewardInputs:
    """Everything that a rule may judge a control step by."""

    inputs: ObservationInputs
    """True successor of the step: state, goals, further inputs (1, width), float32; its
    `last_action` is the executed action of the step, (1, A)."""
    obs: Mapping[str, np.ndarray]
    """Observation groups of the same moment, as the policy sees them, (1, D) each."""
    outcome: WorldOutcome | None
    """Judgement of a simulated world at the step's end; None on a real robot."""
    step: int
    """Control steps since the episode began, this one included; 0 at its start."""
    stamp: float
    """Measurement time of the successor, clock of the loop [s]."""
    intervened: bool = False
    """A person chose the action."""


@dataclass(frozen=True, kw_only=True)
class StepJudgement:
    """Value of a control step."""

    reward: float = 0.0
    """Reward of the step."""
    success: bool = False
    """The task is done now; whether that ends the episode, the environment decides."""
    terminated: bool = False
    """The episode is over for good, whatever the environment thinks of success."""
    uncertain: bool = False
    """The rule does not know: a person should say how the episode ends."""
    probability: float | None = None
    """Of success in this frame alone, where the rule knows one."""


class RewardRule(Protocol):
    """Judge of the control steps of one task; called once a period, so it must not wait."""

    def begin(self, start: RewardInputs) -> None:
        """Begin an episode: forget the one before."""
        ...

    def judge(self, step: RewardInputs) -> StepJudgement:
        """Value of a step."""
        ...


class WorldReward:
    """The simulated task's own rewards, termination and success.

    A step's reward is the sum of what the task paid meanwhile. In real time the periods of the
    environment and of the task may slip by a tick against each other: what a step of the task paid
    then counts one period later, never twice, and after the episode's end not at all.
    """

    def __init__(self) -> None:
        self._return = 0.0

    def begin(self, start: RewardInputs) -> None:
        """Count from what the episode's return is now."""
        self._return = _outcome(start).total_return

    def judge(self, step: RewardInputs) -> StepJudgement:
        """Payment of the task since the step before."""
        outcome = _outcome(step)
        before, self._return = self._return, outcome.total_return
        return StepJudgement(
            reward=outcome.total_return - before, success=outcome.success,
            terminated=outcome.terminated,
        )  # fmt: skip


class SparseWorldReward:
    """1 in the step in which the simulated task's own reward reaches a threshold, 0 before.

    A task whose reward is sparse itself (`task.kind=sparse`) pays nothing below it.
    """

    def __init__(self, at_least: float) -> None:
        """Success is a step of the task with this reward or more."""
        self._at_least = at_least

    def begin(self, start: RewardInputs) -> None:
        """There is nothing to forget."""

    def judge(self, step: RewardInputs) -> StepJudgement:
        """1 and success, or 0."""
        outcome = _outcome(step)
        success = outcome.steps > 0 and outcome.reward >= self._at_least
        return StepJudgement(
            reward=float(success), success=success, terminated=outcome.terminated and not success
        )


class PersonReward:
    """0 in every step: what a person says later corrects the stored steps."""

    def begin(self, start: RewardInputs) -> None:
        """There is nothing to forget."""

    def judge(self, step: RewardInputs) -> StepJudgement:
        """Nothing."""
        return StepJudgement()


@dataclass(kw_only=True)
class PlaceConfig:
    """Place where the end effector has to come to; base axes of the robot."""

    input: str = ""
    """Goal or further input that is the place, `goal/<name>` or `sensed/<name>`; empty for `at`."""
    at: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """The place, or what is added to the input [m]."""
    radius: float = 0.0
    """Distance of the end effector from it that counts as there [m]; 0 judges nothing."""
    seconds: float = 0.0
    """Time for which it has to stay there [s]."""

    def __post_init__(self) -> None:
        if len(self.at) != 3 or not all(map(math.isfinite, self.at)):
            raise ConfigError(f"place.at must be 3 numbers, got {self.at}")
        for name in ("radius", "seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"place.{name} must be >= 0, got {getattr(self, name)}")

    def check(self, widths: Mapping[str, int]) -> None:
        """Refuse an input that nobody tells, or that is no place.

        Args:
            widths: Width of each `goal/<name>` and `sensed/<name>` of the robot.

        Raises:
            ConfigError: Says which there are.
        """
        if not self.input:
            return
        if self.input not in widths:
            raise ConfigError(unknown_name("place.input", self.input, widths))
        if widths[self.input] != 3:
            raise ConfigError(
                f"place.input={self.input} has {widths[self.input]} numbers; a place has 3"
            )


class PlaceReward:
    """1 in the step in which the end effector has been at a place for long enough, 0 before.

    Needs nothing but what a real robot measures and is told: a label of a person still judges the
    episode otherwise.
    """

    def __init__(self, config: PlaceConfig) -> None:
        """Success is to be there."""
        self._config = config
        self._since: float | None = None

    def begin(self, start: RewardInputs) -> None:
        """Nobody has been there yet."""
        self._since = None

    def judge(self, step: RewardInputs) -> StepJudgement:
        """1 and success, or 0."""
        hand = np.asarray(step.inputs.state.end_effector_position_b, dtype=np.float64)[0]
        if not np.linalg.norm(hand - self._place(step.inputs)) <= self._config.radius:  # nor a NaN
            self._since = None
            return StepJudgement()
        self._since = step.stamp if self._since is None else self._since
        success = step.stamp - self._since >= self._config.seconds
        return StepJudgement(reward=float(success), success=success)

    def _place(self, inputs: ObservationInputs) -> np.ndarray:
        name, place = self._config.input, np.array(self._config.at)
        if name.startswith(GOAL_PREFIX):
            return place + np.asarray(inputs.goal[name.removeprefix(GOAL_PREFIX)])[0]
        if name.startswith(SENSED_PREFIX):
            return place + np.asarray(inputs.sensed[name.removeprefix(SENSED_PREFIX)])[0]
        return place


def _outcome(step: RewardInputs) -> WorldOutcome:
    if step.outcome is None:
        raise SpecMismatchError(
            "the reward of a simulated task was asked for, but the robot process tells no outcome; "
            "its channel 'world' needs the field 'outcome', which only driver=twin fills"
        )
    return step.outcome
