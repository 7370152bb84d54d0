"""The simulated environment: worlds, a task, observation and action maps joined into a `BatchEnv`.

`step` tells the whole story of a control period. No line of it waits for the device.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.mirror import EnvMirror
from robot_rl.core.observation import ObservationInputs, ObservationMap, TermConfig
from robot_rl.core.robot_state import RobotState
from robot_rl.core.rows import Rows
from robot_rl.core.seeding import derive_seed
from sim.curriculum import LEVEL, FollowsSuccess, HasCurriculum
from sim.fault_flags import FaultFlags
from sim.mirror import mirror_worlds
from sim.simulation import Simulation
from sim.task import Task

_logger = logging.getLogger(__name__)


class SimEnv:
    """N simulated worlds with one task."""

    def __init__(
        self,
        simulation: Simulation,
        task: Task,
        *,
        actor_terms: Sequence[TermConfig],
        critic_terms: Sequence[TermConfig],
        action_map: ActionMap,
        initial_action: float,
        seed: int,
        stagger: bool,
    ) -> None:
        """Join the parts; `reset` starts the first episodes.

        Args:
            simulation: The worlds.
            task: What is asked of the robot.
            actor_terms: What the policy sees.
            critic_terms: What the critic sees; empty for none.
            action_map: From actions to commands.
            initial_action: Every entry of the "last action" at an episode's start.
            seed: Seed of starts, goals and drawn parameters.
            stagger: End the very first episodes at random times, so that the worlds do not reset
                all at once.
        """
        action_map.check_robot(simulation.robot)
        self.simulation = simulation
        self.task = task
        self.action_map = action_map
        self.initial_action = initial_action
        self._stagger = stagger
        device, count = simulation.device, simulation.num_worlds
        self._generator = torch.Generator(device=device).manual_seed(derive_seed(seed, "episodes"))
        self._last_action = torch.full((count, action_map.size), initial_action, device=device)
        self._episode_step = torch.zeros(count, dtype=torch.int64, device=device)
        self._episode_limit = torch.full_like(self._episode_step, task.episode_steps)
        self._world_steps = 0
        self._all = torch.ones(count, dtype=torch.bool, device=device)
        self._none = ~self._all
        widening = simulation.curriculum
        self._curricula: list[FollowsSuccess] = [] if widening is None else [widening]
        if isinstance(task, HasCurriculum):
            self._curricula.append(task.curriculum)
        self._extra_metrics = {} if widening is None else {LEVEL: widening.level.expand(count)}
        self._weight_values = task.reward_weights(0)
        self._weights = torch.tensor(self._weight_values, device=device)
        self._actor = ObservationMap(actor_terms, self._inputs(simulation.measured, self.sensed))
        groups = {"actor": GroupSpec(shape=(self._actor.size,))}
        self._critic: ObservationMap | None = None
        if critic_terms:
            inputs = self._inputs(simulation.truth, simulation.privileged)
            self._critic = ObservationMap(critic_terms, inputs)
            groups["critic"] = GroupSpec(shape=(self._critic.size,))
        # Written anew in every step: allocating megabytes would cost more than filling them.
        self._obs: Obs = {
            name: torch.zeros(count, *group.shape, device=device) for name, group in groups.items()
        }
        self._next_obs: Obs = {name: torch.zeros_like(group) for name, group in self._obs.items()}
        self._flags = FaultFlags(count, device)
        self._given_up = torch.zeros((), dtype=torch.int64, device=device)
        self._spec = EnvSpec(
            num_envs=count,
            device=device,
            groups=groups,
            action_size=action_map.size,
            control_dt=simulation.control_dt,
            reward_names=task.reward_names,
            metric_names=(*task.metric_names, *self._extra_metrics),
            robot=simulation.robot,
        )

    @property
    def spec(self) -> EnvSpec:
        """Shapes, device, names."""
        return self._spec

    @property
    def sensed(self) -> Mapping[str, Tensor]:
        """What actors see beside the robot's own state and the goal: name -> (N, width), live."""
        return self.simulation.sensed

    def reset(
        self,
        seed: int | None = None,
        mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:
        """Start new episodes in all or in the masked worlds, or go on from a saved state."""
        self._spec.check_reset(mask, state)
        if seed is not None:
            self._generator.manual_seed(derive_seed(seed, "episodes"))
            self.simulation.reseed(seed)
        if state is not None:
            self.load_state_dict(state)
            return self._observe_again()
        self._begin(Rows(self._all if mask is None else mask))
        if self._stagger and mask is None:
            share = torch.rand(self._all.shape, generator=self._generator, device=self.spec.device)
            self._episode_limit.copy_(1 + share * (self.task.episode_steps - 1))
        return self._observe_again()

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period and reset the worlds whose episode ended."""
        self._spec.check_action(action)
        asked = action
        action = torch.nan_to_num(asked, nan=0.0).clamp(-1.0, 1.0)  # `check` tells of a NaN
        self.simulation.step(self.action_map.to_command(action))
        self._episode_step += 1
        self._world_steps += self.spec.num_envs
        self.task.advance(self._episode_step)
        judged = self.task.judge(
            self.simulation.truth, action, self._last_action, self._episode_step
        )
        self._last_action = action
        next_obs = self._observe()

        self._reweigh()
        reward = judged.reward_terms @ self._weights
        terminated = judged.terminated
        truncated = (self._episode_step >= self._episode_limit) & ~terminated
        success = judged.success & truncated
        valid = self._flags.watch(
            {**next_obs, "reward": judged.reward_terms, "action": asked}, self.simulation.fault
        )
        if valid is not self._flags.everyone:
            self._given_up += self.simulation.fault.sum()
            terminated, truncated = terminated & valid, truncated | ~valid
            success = success & valid
        for each in self._curricula:
            each.follow((terminated | truncated) & valid, success)

        beginning = Rows(terminated | truncated)
        self._begin(beginning)
        return EnvStep(
            obs=self._observe_again() if beginning.count else self._copied(next_obs),
            next_obs=next_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=success,
            valid=valid,
            action=action,
            intervened=self._none,
            metrics={**judged.metrics, **self._extra_metrics},
            reward_terms=judged.reward_terms,
            reward_weights=self._weights,
        )

    def check(self) -> None:
        """Raise NonFiniteError for observations or rewards that were not numbers.

        Worlds that the engine gave up since the last check are told in the log: they were reset
        and their steps are invalid, and the others do not feel them.
        """
        given_up = int(self._given_up)
        if given_up:
            self._given_up.zero_()
            _logger.warning(
                "the engine gave up %d world(s) that it could not simulate (not finite, or too "
                "fast): they were reset, their steps dropped", given_up,
            )  # fmt: skip
        names = {"actor": self._actor, "critic": self._critic}
        columns = {
            group: _column_names(observation)
            for group, observation in names.items()
            if observation is not None
        }
        columns["reward"] = list(self.task.reward_names)
        columns["action"] = [f"entry {i}" for i in range(self.action_map.size)]
        self._flags.check(columns)

    def mirror(self) -> EnvMirror:
        """How observations and actions look with left and right exchanged."""
        maps = {"actor": self._actor, "critic": self._critic}
        layouts = {name: one.layout() for name, one in maps.items() if one is not None}
        return mirror_worlds(
            self.simulation.robot, self.simulation, self.task, self.action_map, layouts
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future."""
        return {
            "simulation": self.simulation.state_dict(),
            "task": self.task.state_dict(),
            "actor": self._actor.state_dict(),
            "critic": {} if self._critic is None else self._critic.state_dict(),
            "last_action": self._last_action.clone(),
            "episode_step": self._episode_step.clone(),
            "episode_limit": self._episode_limit.clone(),
            "world_steps": self._world_steps,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.simulation.load_state_dict(state["simulation"])
        self.task.load_state_dict(state["task"])
        self._actor.load_state_dict(state["actor"])
        if self._critic is not None:
            self._critic.load_state_dict(state["critic"])
        self._last_action = state["last_action"].to(self.spec.device, copy=True)
        self._episode_step.copy_(state["episode_step"])
        self._episode_limit.copy_(state["episode_limit"])
        self._world_steps = int(state["world_steps"])
        self._generator.set_state(state["generator"])

    def close(self) -> None:
        """Nothing is held beyond memory."""

    def _begin(self, rows: Rows) -> None:
        """Start episodes in the picked worlds."""
        if rows.count == 0:
            return
        start = self.task.start(rows, self._generator)
        self.simulation.reset(rows, start, self._generator)
        rows.put(self._episode_step, 0)
        rows.put(self._episode_limit, self.task.episode_steps)
        # Written into a copy: the step's action is on its way to the collector.
        self._last_action = self._last_action.clone()
        rows.put(self._last_action, self.initial_action)
        self._actor.begin(rows, self._inputs(self.simulation.measured, self.sensed))
        if self._critic is not None:
            inputs = self._inputs(self.simulation.truth, self.simulation.privileged)
            self._critic.begin(rows, inputs)

    def _reweigh(self) -> None:
        """Follow the curriculum; the device hears of it only when a weight moves."""
        values = self.task.reward_weights(self._world_steps)
        if values != self._weight_values:
            self._weight_values = values
            self._weights = torch.tensor(values).to(self.spec.device, non_blocking=True)

    def _observe(self) -> Obs:
        """True successors of all worlds."""
        obs = self._next_obs
        self._actor.update(self._inputs(self.simulation.measured, self.sensed), out=obs["actor"])
        if self._critic is not None:
            inputs = self._inputs(self.simulation.truth, self.simulation.privileged)
            self._critic.update(inputs, out=obs["critic"])
        return obs

    def _observe_again(self) -> Obs:
        """Present observations without a step: no history moves."""
        self._actor.look(
            self._inputs(self.simulation.measured, self.sensed), out=self._obs["actor"]
        )
        if self._critic is not None:
            inputs = self._inputs(self.simulation.truth, self.simulation.privileged)
            self._critic.look(inputs, out=self._obs["critic"])
        return self._obs

    def _copied(self, obs: Obs) -> Obs:
        for name, group in self._obs.items():
            group.copy_(obs[name])
        return self._obs

    def _inputs(self, state: RobotState, sensed: Mapping[str, Tensor]) -> ObservationInputs:
        return ObservationInputs(
            state=state, goal=self.task.goal, last_action=self._last_action, sensed=sensed
        )


def _column_names(observation: ObservationMap) -> list[str]:
    names: list[str] = []
    for entry in observation.layout():
        names += [entry["term"]] * (entry["width"] * entry["history"])
    return names
