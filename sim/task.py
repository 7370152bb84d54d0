"""A task: starts, goals, rewards, ends and success over any `Simulation`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import ClockSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import RobotState
from robot_rl.core.playback import PlaybackSpec
from robot_rl.core.plugins import unknown_part
from robot_rl.core.robot import RobotSpec
from sim.randomization import FollowsSuccess
from sim.reward_terms import REWARD_TERMS, RewardedStep, valued

if TYPE_CHECKING:
    from sim.motions.reference import Reference


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """The simulated envs that a task is built for, and what their robot gives it."""

    num_envs: int
    """N."""
    control_dt: float
    """Control period [s]."""
    device: torch.device
    """Device of the envs."""
    evaluation: bool
    """True for evaluation's starts, limits and final weights instead of training's."""
    robot: RobotSpec
    """The robot."""
    sensors: Mapping[str, Tensor] = field(default_factory=dict)
    """True sensors of the model, name -> (N, width), live."""
    hover_action: Sequence[float] = ()
    """Action that carries the nominal weight of a multirotor, (A,); empty for other robots."""
    reference: "Reference | None" = None
    """Motion of a config that follows one (`FollowsMotion`)."""
    fallen: Tensor | None = None
    """Poses of fallen robots for a config that begins in them (`BeginsFallen`), (M, 7 + J)."""
    poses: Mapping[str, Tensor] = field(default_factory=dict)
    """Poses of a config that begins in several kinds of them (`BeginsMixed`): kind -> (M, 7 + J),
    on level ground at height 0."""

    def steps(self, name: str, seconds: float) -> int:
        """Control steps of a time.

        Args:
            name: Field of the task that asks for it.
            seconds: Its value [s].

        Raises:
            ConfigError: It is no step, or for ever.
        """
        steps = round(seconds / self.control_dt) if math.isfinite(seconds) else 0
        if steps < 1:
            raise ConfigError(
                f"task.{name} must be at least one control period, {self.control_dt:g} s, and "
                f"finite, got {seconds:g} s"
            )
        return steps


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """Beginning of episodes."""

    robot: RobotState
    """True state of the robot, fields (count, width)."""
    scene: Mapping[str, Tensor] = field(default_factory=dict)
    """Positions of the scene's joints and fixtures by name: (count, 7) for a free body or a fixture
    (position and quaternion wxyz, world) and (count, 1) for others; what is left out begins where
    the model has it."""


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """Value of a step, as the task sees it."""

    reward_terms: Mapping[str, Tensor]
    """Unweighted terms by name, (N,) each: always the same names in the same order."""
    terminated: Tensor
    """(N,) bool: the episode is over for good."""
    success: Tensor
    """(N,) bool: the episode would count as a success if it ended by its time limit."""
    metrics: Mapping[str, Tensor]
    """For logs, (N,) each: always the same names."""
    achieved: Tensor | None = None
    """(N,) bool: terminated because the task is done, which is a success. None for a task that goes
    on until its time limit."""

    def succeeded(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        """(N,) bool: the episode ends in this step, and is a success.

        Args:
            terminated: (N,) bool, ended by the task.
            truncated: (N,) bool, ended by the time limit and not by the task.
        """
        success = self.success & truncated
        return success if self.achieved is None else success | (self.achieved & terminated)


class Task(ABC):
    """Base of all tasks: reads the true state and values it; never steps the envs."""

    begins_anywhere: bool = False
    """True if episodes may begin in the middle of others: goals stay where they are, and `start`
    sets all else that the task remembers."""
    takes_places: bool = False
    """True if a person may move the goal of an env to a place on the ground (`move_goal`)."""
    curriculum: FollowsSuccess | None = None
    """Levels of the task, which follow its successes and are saved with it."""
    goal: Mapping[str, Tensor]
    """Goals of the moment by name, (N, width) each, read by observation terms."""

    def __init__(self, config: Any, context: TaskContext) -> None:
        """Take what every task needs; `config` has `episode_length` [s] and `reward`."""
        self.config = config
        self.episode_steps = context.steps("episode_length", config.episode_length)
        """Control steps until an episode is truncated."""
        self.goal = {}

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Weight of each reward term after so many steps of all envs together."""
        return self.config.reward

    @property
    def clocks(self) -> Mapping[str, ClockSpec]:
        """Goals, (N, 2), that are clocks: a robot's own side moves them on."""
        return {}

    @property
    def playback(self) -> PlaybackSpec | None:
        """Goals of a clip, which a robot's own side plays; None where a task has no clip."""
        return None

    def goal_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirror images of goals, by name; others have none."""
        return {}

    @abstractmethod
    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw new goals for the picked envs and the states to begin from."""

    def advance(self, episode_step: Tensor) -> None:  # noqa: B027 - goals may stay where they are
        """Move the goals on to the step that was just simulated.

        Args:
            episode_step: (N,) int64, control steps since each episode's start.
        """

    def goals_changed(self) -> None:  # noqa: B027 - most goals stand alone
        """Bring what follows from a goal in line with it: somebody else has changed goals."""

    def move_goal(self, env: int, place: Tensor, true_state: RobotState) -> Mapping[str, Tensor]:
        """Move the goal of an env to a place on the ground; its episode counts anew from there.

        Whoever calls it puts the fixtures there and begins the env's time limit again.

        Args:
            place: (3,), [m], world.
            true_state: Of all envs, as it is now.

        Returns:
            Fixtures of the scene that stand elsewhere from now on: name -> pose, (7,).

        Raises:
            ConfigError: The task takes no places, or no goal can be at this one.
        """
        raise ConfigError(
            f"a goal was asked for at a place on the ground, and {type(self).__name__} takes none"
        )

    @abstractmethod
    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Value the step that was just simulated.

        Args:
            action: Accepted action of the step, (N, A).
            last_action: Accepted action of the step before, (N, A).
            episode_step: (N,) int64, steps since each episode's start, this one included.
        """

    def parts(self) -> Mapping[str, Any]:
        """Parts that decide the future, by their name in a saved state.

        Each is a tensor, a dict of tensors, or something with a `state_dict` of its own.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Goals and running sums of all envs, copied."""
        return {name: _state_of(part) for name, part in self.parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, part in self.parts().items():
            _restore(part, state[name])


def _state_of(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.clone()
    if isinstance(part, Mapping):
        return {name: value.clone() for name, value in part.items()}
    return part.state_dict()


def _restore(part: Any, state: Any) -> None:
    if isinstance(part, Tensor):
        part.copy_(state)
    elif isinstance(part, Mapping):
        for name, value in part.items():
            value.copy_(state[name])
    else:
        part.load_state_dict(state)


class RewardTerms:
    """Names and order of a task's reward terms; terms meet their weights here, by name."""

    def __init__(self, task: Task, true_state: RobotState, action: Tensor) -> None:
        """Evaluate the task once, without a trace, to learn its names.

        Raises:
            ConfigError: A term has no weight, or a weight no term.
        """
        saved = task.state_dict()
        step = torch.ones(len(action), dtype=torch.int64, device=action.device)
        outcome = task.evaluate(true_state, action, action, step)
        task.load_state_dict(saved)
        weights, own = task.reward_weights(0), tuple(outcome.reward_terms)
        for name in own:
            if name in REWARD_TERMS and weights.get(name):
                raise ConfigError(
                    f"task.reward: '{name}' is a reward term of {type(task).__name__} itself and "
                    "of a program or a plug-in; give yours another name"
                )
        self._added = [name for name in weights if name not in own and REWARD_TERMS.knows(name)]
        inputs = RewardedStep(
            true_state=true_state, action=action, last_action=action, goal=task.goal,
            episode_step=step,
        )  # fmt: skip
        for name in self._added:
            valued(name, inputs)  # a term that gives no number is refused before a run begins
        self.names = (*own, *self._added)
        """Names of the K terms."""
        self.metric_names = tuple(outcome.metrics)
        """Names of the task's metrics."""
        for name in weights:
            if name not in self.names:
                known = (*own, *REWARD_TERMS)
                raise ConfigError(f"task.reward: {unknown_part('reward term', name, known)}")
        for name in self.names:
            if name not in weights:
                raise ConfigError(
                    f"task.reward has no weight for the reward term '{name}' of "
                    f"{type(task).__name__}; give it one, 0 if it shall only be recorded"
                )

    def stack(self, outcome: StepOutcome, step: Callable[[], RewardedStep]) -> Tensor:
        """Terms of a step in their order, (N, K).

        Args:
            step: Makes what added terms read; not called where there are none.
        """
        terms = outcome.reward_terms
        if self._added:
            inputs = step()
            terms = {**terms, **{name: valued(name, inputs) for name in self._added}}
        return torch.stack([terms[name] for name in self.names], dim=-1)

    def ordered(self, weights: Mapping[str, float]) -> list[float]:
        """Weights in the order of the K terms."""
        return [weights[name] for name in self.names]


def closeness(distance: Tensor, half: float) -> Tensor:
    """1 at distance 0, one half at `half`, towards 0 far away; as of the distance's shape."""
    return 1 / (1 + (distance / half) ** 2)


def square_sum(value: Tensor) -> Tensor:
    """Sum of the squares along the last axis, (..., width) -> (...)."""
    return (value * value).sum(-1)


class EndRecord:
    """Means of a distance and of a second quantity over the last seconds of every env's episode."""

    def __init__(self, num_envs: int, device: torch.device, first_step: int) -> None:
        """Start empty; steps of an episode before `first_step` are not counted."""
        self._first_step = first_step
        self._ones = torch.ones(num_envs, device=device)
        self._sums = torch.zeros(4, num_envs, device=device)
        self._error, self._square, self._second, self._count = self._sums  # views
        self.state = {"sums": self._sums.T}
        """Running sums, live."""

    def add(self, distance: Tensor, second: Tensor, episode_step: Tensor) -> None:
        """Count one step of all envs, (N,) each."""
        entries = torch.stack([distance, distance * distance, second, self._ones])
        self._sums.addcmul_(entries, episode_step > self._first_step)

    def clear(self, rows: EnvSelection) -> None:
        """Forget the picked envs."""
        rows.put(self._sums.T, 0.0)

    @property
    def mean_distance(self) -> Tensor:
        """(N,), [m]; NaN before the first counted step."""
        return self._error / self._count

    @property
    def rms_distance(self) -> Tensor:
        """(N,), [m]; NaN before the first counted step."""
        return (self._square / self._count).sqrt()

    @property
    def mean_second(self) -> Tensor:
        """(N,), in the unit of what was added; NaN before the first counted step."""
        return self._second / self._count


class TouchCount:
    """Number of times that every env's robot began to touch something in this episode."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.count = torch.zeros(num_envs, device=device)
        """(N,); overwritten in place."""
        self._touching = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.state = {"count": self.count, "touching": self._touching}
        """Counts, and who touches now, live."""

    def add(self, touching: Tensor) -> None:
        """Count one step of all envs, (N,) bool."""
        self.count += touching & ~self._touching
        self._touching.copy_(touching)

    def clear(self, rows: EnvSelection) -> None:
        """Forget the picked envs."""
        rows.put(self.count, 0.0)
        rows.put(self._touching, False)
