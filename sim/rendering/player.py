"""Player of envs for a person who looks at one of them and may change its goals.

The player knows neither browser nor video: it steps, remembers the reward of the chosen env, and
does what a person asks between two steps.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.env import SimEnv
from sim.rendering.shown import ShownEnvs, shown_envs
from sim.task import InitialState, StepOutcome, Task


class HeldGoals(Task):
    """A task, with goals that a person holds in some envs.

    The task goes on moving its goals; a held entry is put back after each move, and what follows
    from it, such as the clock of a gait, so that both the observation and the reward know it.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.episode_steps = task.episode_steps
        self._held: dict[tuple[int, str], Tensor] = {}
        self._own: dict[tuple[int, str], Tensor] = {}  # what the task had put there

    def hold(self, env: int, name: str, values: Tensor) -> None:
        """Change an entry of an env's goal, (width,), at once and until its next reset."""
        self._own.setdefault((env, name), self.goal[name][env].clone())
        self._held[env, name] = values.to(self.goal[name])
        self._put_back()

    @property
    def goal(self) -> Mapping[str, Tensor]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the task, held entries included."""
        return self._task.goal

    @property
    def takes_places(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As of the task."""
        return self._task.takes_places

    def move_goal(self, env: int, place: Tensor, true_state: RobotState) -> Mapping[str, Tensor]:
        """Of the task, which keeps it until it begins the next episode."""
        return self._task.move_goal(env, place, true_state)

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Of the task."""
        return self._task.reward_weights(env_steps)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Begin episodes; nothing is held in them."""
        for env, name in [key for key in self._held if rows.mask[key[0]]]:
            del self._held[env, name]
            # A task may count on a goal that it never sets again.
            self._task.goal[name][env] = self._own.pop((env, name))
        start = self._task.start(rows, generator)
        self._put_back()
        return start

    def advance(self, episode_step: Tensor) -> None:
        """Move the goals that nobody holds."""
        self._task.advance(episode_step)
        self._put_back()

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Value the step by the goals as they are."""
        return self._task.evaluate(true_state, action, last_action, episode_step)

    def state_dict(self) -> dict[str, Any]:
        """Of the task: a person's hand is not saved."""
        return self._task.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; nothing is held."""
        self._held.clear()
        self._own.clear()
        self._task.load_state_dict(state)

    def _put_back(self) -> None:
        for (env, name), values in self._held.items():
            self._task.goal[name][env] = values
        if self._held:
            self._task.goals_changed()


TRACE_SECONDS = 10.0
"""Simulated time that is remembered of the chosen env [s]."""
_LONGEST_CATCH_UP = 0.25
"""Largest wall time that is caught up at once [s]: after a pause of the machine, none of it."""


class Agent(Protocol):
    """Chooses the actions of all envs."""

    def act(self, obs: Obs) -> Tensor:
        """Actions for the present observations, (N, A)."""
        ...

    def begin(self, mask: Tensor) -> None:
        """New episodes begin in the masked envs, (N,) bool."""
        ...


class Judge(Protocol):
    """Says something about every step, such as a learned reward, beside the task's own reward."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its J values."""
        ...

    def judge(self, step: EnvStep) -> Tensor:
        """Values of a step, (N, J)."""
        ...

    def begin(self, mask: Tensor) -> None:
        """New episodes begin in the masked envs, (N,) bool."""
        ...


class Trace:
    """Rewards of the chosen env in the last steps."""

    def __init__(self, length: int) -> None:
        """Begin empty; `length` steps are kept."""
        self.time: deque[float] = deque(maxlen=length)
        """Simulated time since the player began [s]."""
        self.terms: deque[NDArray[np.float32]] = deque(maxlen=length)
        """Reward terms times their weights, each (K,)."""
        self.returns: deque[float] = deque(maxlen=length)
        """Sum of the rewards of the episode so far."""
        self.judged: deque[NDArray[np.float32]] = deque(maxlen=length)
        """Values of the judge, each (J,); nothing without one."""


@dataclass(frozen=True)
class Ended:
    """End of an episode."""

    how: str
    """success, time limit, terminated, or invalid: given up by the engine."""
    seconds: float
    """Its length."""
    total: float
    """Its return."""


class Player:
    """N envs, one of which is looked at. Not to be used from several threads."""

    def __init__(
        self, env: SimEnv, agent: Agent, *, seed: int, judge: Judge | None = None
    ) -> None:  # fmt: skip
        """Begin the first episodes; the task becomes one whose goals can be held."""
        self.env = env
        self.shown: ShownEnvs = shown_envs(env.simulation)
        self.paused = False
        self.speed = 1.0
        """Simulated time per wall time."""
        self.time = 0.0
        """Simulated since the player began [s]."""
        self._goals = HeldGoals(env.task)
        env.task = self._goals
        self._agent = agent
        self.judge = judge
        """Judge of the steps, if there is one."""
        self.chosen = 0
        """The env that is looked at; `choose` changes it."""
        self.control_dt = env.spec.control_dt
        """Time of one step [s]."""
        self._owed = 0.0  # simulated time that wall time asks for [s]
        count = env.spec.num_envs
        self._steps = np.zeros(count, np.int64)
        self._returns = np.zeros(count)
        self.last: list[Ended | None] = [None] * count
        """End of the episode before the present one, by env."""
        self.places: list[NDArray[np.float64] | None] = [None] * count
        """Place that a person moved the goal to, (3,), [m], by env; None since an episode began."""
        self.trace = self._new_trace()
        self._obs = env.reset(seed=seed)
        self._begin(torch.ones(count, dtype=torch.bool, device=env.spec.device))

    def seconds(self, env: int) -> float:
        """Age of an env's episode [s]."""
        return float(self._steps[env] * self.control_dt)

    def total(self, env: int) -> float:
        """Return of an env's episode so far."""
        return float(self._returns[env])

    def goal(self, env: int) -> dict[str, NDArray[np.float32]]:
        """Goals of an env, each (width,)."""
        return {
            name: values[env].cpu().numpy().copy() for name, values in self.env.task.goal.items()
        }

    def choose(self, env: int) -> None:
        """Look at another env."""
        if env != self.chosen:
            self.chosen = env
            self.trace = self._new_trace()

    def advance(self, wall_seconds: float) -> int:
        """Step as often as this much wall time asks for; returns how often.

        A machine that cannot keep up falls behind instead of hurrying after.
        """
        if self.paused:
            self._owed = 0.0
            return 0
        self._owed += self.speed * min(wall_seconds, _LONGEST_CATCH_UP)
        count = int(self._owed / self.control_dt + 1e-9)
        self._owed -= count * self.control_dt
        for _ in range(count):
            self.step()
        return count

    def step(self) -> EnvStep:
        """One control period in all envs, paused or not."""
        with torch.no_grad():
            step = self.env.step(self._agent.act(self._obs))
        self._obs = step.obs
        self.time += self.control_dt
        reward = step.reward.cpu().numpy()
        self._steps += 1
        self._returns += reward
        self._remember(step, float(reward[self.chosen]))
        ended = step.ended
        if bool(ended.any()):
            self._note_ends(step)
            self._begin(ended)
        return step

    def reset(self) -> None:
        """Begin a new episode in the chosen env."""
        mask = torch.zeros(self.env.spec.num_envs, dtype=torch.bool, device=self.env.spec.device)
        mask[self.chosen] = True
        self._obs = self.env.reset(mask=mask)
        self._begin(mask)
        self._steps[self.chosen], self._returns[self.chosen] = 0, 0.0
        self.last[self.chosen] = None

    def push(self, axis: str, speed: float) -> None:
        """Kick the robot of the chosen env; see `ShownEnvs.push`."""
        self.shown.push(self.chosen, axis, speed)

    def hold_goal(self, name: str, values: Sequence[float]) -> None:
        """Change a goal of the chosen env until its next reset."""
        self._goals.hold(self.chosen, name, torch.tensor(values))

    def place_goal(self, place: NDArray[np.float64]) -> None:
        """Move the goal of the chosen env to a place on the ground, (3,), [m].

        Its time limit and its return begin anew. The observation that was made before stays: the
        robot sees the new goal after the next step.

        Raises:
            ConfigError: The task takes no places, or no goal can be at this one.
        """
        env, chosen = self.env, self.chosen
        moved = torch.from_numpy(place).float().to(env.spec.device)
        poses = env.task.move_goal(chosen, moved, env.simulation.true_state)
        self.shown.move_fixtures(chosen, poses)
        env.restart_time(chosen)
        self._steps[chosen], self._returns[chosen] = 0, 0.0
        self.places[chosen] = place

    def _begin(self, mask: Tensor) -> None:
        for env in np.flatnonzero(mask.cpu().numpy()).tolist():
            self.places[env] = None
        self._agent.begin(mask.cpu())
        if self.judge is not None:
            self.judge.begin(mask)

    def _new_trace(self) -> Trace:
        return Trace(max(2, round(TRACE_SECONDS / self.control_dt)))

    def _remember(self, step: EnvStep, reward: float) -> None:
        env, trace = self.chosen, self.trace
        trace.time.append(self.time)
        if step.reward_terms is not None and step.reward_weights is not None:
            trace.terms.append((step.reward_terms[env] * step.reward_weights).cpu().numpy())
        else:
            trace.terms.append(np.array([reward], np.float32))
        trace.returns.append(self.total(env))
        if self.judge is not None:
            with torch.no_grad():
                trace.judged.append(self.judge.judge(step)[env].cpu().numpy())

    def _note_ends(self, step: EnvStep) -> None:
        counts, success, terminated = (
            values.cpu().numpy() for values in (step.counts, step.success, step.terminated)
        )
        for env in np.flatnonzero(step.ended.cpu().numpy()).tolist():
            how = "terminated" if terminated[env] else "time limit"
            how = "success" if success[env] else how
            how = how if counts[env] else "invalid"
            self.last[env] = Ended(how, self.seconds(env), self.total(env))
            self._steps[env], self._returns[env] = 0, 0.0
