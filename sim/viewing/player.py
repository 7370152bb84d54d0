"""Plays an environment for somebody who looks at one of its worlds.

The player knows neither browser nor film: it steps, remembers what the chosen world was paid, and
does what a person asks between two steps.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv
from sim.viewing.held_goals import HeldGoals
from sim.viewing.worlds import ShownWorlds, shown_worlds

TRACE_SECONDS = 10.0
"""Simulated time that is remembered of the chosen world [s]."""
_LATE = 0.25
"""Largest wall time that is caught up at once [s]: after a pause of the machine, none of it."""


class Agent(Protocol):
    """Chooses the actions of all worlds."""

    def act(self, obs: Obs) -> Tensor:
        """Actions for the present observations, (N, A)."""
        ...

    def begin(self, mask: Tensor) -> None:
        """New episodes begin in the masked worlds, (N,) bool."""
        ...


@dataclass
class Trace:
    """What the chosen world was paid, step by step."""

    length: int
    """Most steps that are kept."""
    time: deque[float] = field(init=False)
    """Simulated time since the player began [s]."""
    terms: deque[NDArray[np.float32]] = field(init=False)
    """Reward terms times their weights, each (K,)."""
    returns: deque[float] = field(init=False)
    """Sum of the rewards of the episode so far."""

    def __post_init__(self) -> None:
        """Begin empty."""
        self.time, self.terms, self.returns = (deque(maxlen=self.length) for _ in range(3))


@dataclass(frozen=True)
class Ended:
    """How an episode ended."""

    how: str
    """success, time limit, terminated, or invalid: given up by the engine."""
    seconds: float
    """How long it lasted."""
    total: float
    """Its return."""


class Player:
    """N worlds, one of which is looked at. Not to be used from several threads."""

    def __init__(self, env: SimEnv, agent: Agent, *, seed: int) -> None:
        """Begin the first episodes.

        Args:
            env: Worlds; their task becomes one whose goals can be held.
            agent: Who acts.
            seed: Of starts and goals.
        """
        self.env = env
        self.shown: ShownWorlds = shown_worlds(env.simulation)
        self.paused = False
        self.speed = 1.0
        """Simulated time per wall time."""
        self.time = 0.0
        """Simulated since the player began [s]."""
        self._goals = HeldGoals(env.task)
        env.task = self._goals
        self._agent = agent
        self._world = 0
        self._owed = 0.0  # simulated time that wall time asks for [s]
        count = env.spec.num_envs
        self._steps = np.zeros(count, np.int64)
        self._returns = np.zeros(count)
        self.last: list[Ended | None] = [None] * count
        """How the episode before the present one ended, by world."""
        self.trace = self._new_trace()
        self._obs = env.reset(seed=seed)
        self._agent.begin(torch.ones(count, dtype=torch.bool))

    @property
    def world(self) -> int:
        """The world that is looked at."""
        return self._world

    @property
    def control_dt(self) -> float:
        """Time of one step [s]."""
        return self.env.spec.control_dt

    def seconds(self, world: int) -> float:
        """Age of a world's episode [s]."""
        return float(self._steps[world] * self.control_dt)

    def total(self, world: int) -> float:
        """Return of a world's episode so far."""
        return float(self._returns[world])

    def goal(self, world: int) -> dict[str, NDArray[np.float32]]:
        """Goals of a world, each (width,)."""
        return {
            name: values[world].cpu().numpy().copy() for name, values in self.env.task.goal.items()
        }

    def choose(self, world: int) -> None:
        """Look at another world.

        Raises:
            ConfigError: There is none of this number.
        """
        if not 0 <= world < self.env.spec.num_envs:
            raise ConfigError(
                f"world {world} was asked for; the worlds are 0 to {self.env.spec.num_envs - 1}"
            )
        if world != self._world:
            self._world = world
            self.trace = self._new_trace()

    def advance(self, wall_seconds: float) -> int:
        """Step as often as this much wall time asks for; returns how often.

        A machine that cannot keep up falls behind instead of hurrying after.
        """
        if self.paused:
            self._owed = 0.0
            return 0
        self._owed += self.speed * min(wall_seconds, _LATE)
        count = int(self._owed / self.control_dt + 1e-9)
        self._owed -= count * self.control_dt
        for _ in range(count):
            self.step()
        return count

    def step(self) -> EnvStep:
        """One control period in all worlds, paused or not."""
        with torch.no_grad():
            step = self.env.step(self._agent.act(self._obs))
        self._obs = step.obs
        self.time += self.control_dt
        reward = step.reward.cpu().numpy()
        self._steps += 1
        self._returns += reward
        self._remember(step, float(reward[self._world]))
        ended = step.ended
        if bool(ended.any()):
            self._note_ends(step)
            self._agent.begin(ended.cpu())
        return step

    def reset(self) -> None:
        """Begin a new episode in the chosen world."""
        mask = torch.zeros(self.env.spec.num_envs, dtype=torch.bool, device=self.env.spec.device)
        mask[self._world] = True
        self._obs = self.env.reset(mask=mask)
        self._agent.begin(mask.cpu())
        self._steps[self._world], self._returns[self._world] = 0, 0.0
        self.last[self._world] = None

    def push(self, axis: str, speed: float) -> None:
        """Kick the robot of the chosen world; see `ShownWorlds.push`."""
        self.shown.push(self._world, axis, speed)

    def hold_goal(self, name: str, values: Sequence[float]) -> None:
        """Change a goal of the chosen world until its next reset."""
        self._goals.hold(self._world, name, torch.tensor(values))

    def _new_trace(self) -> Trace:
        return Trace(max(2, round(TRACE_SECONDS / self.control_dt)))

    def _remember(self, step: EnvStep, reward: float) -> None:
        world, trace = self._world, self.trace
        trace.time.append(self.time)
        if step.reward_terms is not None and step.reward_weights is not None:
            trace.terms.append((step.reward_terms[world] * step.reward_weights).cpu().numpy())
        else:
            trace.terms.append(np.array([reward], np.float32))
        trace.returns.append(self.total(world))

    def _note_ends(self, step: EnvStep) -> None:
        valid, success, terminated = (
            values.cpu().numpy() for values in (step.valid, step.success, step.terminated)
        )
        for world in np.flatnonzero(step.ended.cpu().numpy()).tolist():
            how = "terminated" if terminated[world] else "time limit"
            how = "success" if success[world] else how
            how = how if valid[world] else "invalid"
            self.last[world] = Ended(how, self.seconds(world), self.total(world))
            self._steps[world], self._returns[world] = 0, 0.0
