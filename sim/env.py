"""The simulated environment: envs, a task, observation and action maps joined into a `BatchEnv`.

`step` tells the whole story of a control period. No line of it waits for the device.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.core.action import ActionMap, describe_meaning
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs, ResetStateSource, TermSpec
from robot_rl.core.env_selection import EnvSelection, counting_is_free
from robot_rl.core.errors import ConfigError, NonFiniteError, unknown_name
from robot_rl.core.mirror import EnvMirror, RobotMirror, SignedPermutation
from robot_rl.core.observation import (
    FIELD_KINDS,
    GAP_PREFIX,
    GOAL_PREFIX,
    OFFSET_PREFIX,
    SENSED_PREFIX,
    STATE_PREFIX,
    TERM_KINDS,
    Mirrored,
    ObservationInputs,
    ObservationMap,
    TermConfig,
)
from robot_rl.core.robot import RobotSpec
from robot_rl.core.seeding import derive_seed
from sim.randomization import LEVEL, FollowsSuccess
from sim.reward_terms import RewardedStep
from sim.simulation import Simulation, WorldStates
from sim.task import RewardTerms, Task

if TYPE_CHECKING:
    from sim.cameras.cameras import SimulatedCameras

_logger = logging.getLogger(__name__)
_WORSE = 10
"""Times as many envs that diverge as at the last warning are worth another one."""
_GROUPS = 5
"""Envs whose episodes last as long as they may begin in so many groups: a beginning costs nearly
the same for one env as for twenty, and in most steps none begins."""


class SimEnv:
    """N simulated envs with one task."""

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
        cameras: "SimulatedCameras | None" = None,
    ) -> None:
        """Join the parts; `reset` starts the first episodes.

        Args:
            initial_action: Every entry of the "last action" at an episode's start.
            stagger: End the very first episodes at different times, so that the envs do not
                reset all at once, but in groups.
            cameras: Further groups, `image/<camera>`; they draw the simulation.
        """
        action_map.check_robot(simulation.robot)
        self.simulation = simulation
        self.task = task
        self.sensed = simulation.sensed
        """Inputs of actors beside the robot's own state and the goal: name -> (N, width), live."""
        self.action_map = action_map
        self.initial_action = initial_action
        self._cameras = cameras
        self._stagger = stagger
        device, count = simulation.device, simulation.num_worlds
        self._generator = torch.Generator(device=device).manual_seed(derive_seed(seed, "episodes"))
        self._last_action = torch.full((count, action_map.size), initial_action, device=device)
        self._episode_step = torch.zeros(count, dtype=torch.int64, device=device)
        self._episode_limit = torch.full_like(self._episode_step, task.episode_steps)
        self._env_steps = 0
        self._all = torch.ones(count, dtype=torch.bool, device=device)
        self._none = ~self._all
        widening = simulation.curriculum
        self._curricula: list[FollowsSuccess] = [] if widening is None else [widening]
        if task.curriculum is not None:
            self._curricula.append(task.curriculum)
        self._states = WorldStates(simulation, task, has_curriculum=bool(self._curricula))
        self._source: ResetStateSource | None = None
        self._extra_metrics = {} if widening is None else {LEVEL: widening.level.expand(count)}
        self._reward = RewardTerms(task, simulation.true_state, self._last_action)
        self._weight_values = dict(task.reward_weights(0))
        self._weights = torch.tensor(self._reward.ordered(self._weight_values), device=device)
        self._observer = Observer(
            simulation, task, self._last_action,
            actor_terms=actor_terms, critic_terms=critic_terms,
        )  # fmt: skip
        self._flags = FaultFlags(count, device)
        self._given_up = torch.zeros((), dtype=torch.int64, device=device)
        self._warned_of = 0  # so many envs
        self.spec = EnvSpec(
            num_envs=count,
            device=device,
            groups=self._observer.specs | (cameras.specs if cameras is not None else {}),
            action_size=action_map.size,
            control_dt=simulation.control_dt,
            reward_names=self._reward.names,
            reward_weights=tuple(self._reward.ordered(self._weight_values)),
            metric_names=(*self._reward.metric_names, *self._extra_metrics),
            robot=simulation.robot,
            meaning=describe_meaning(action_map, {"actor": actor_terms, "critic": critic_terms}),
            steps_beside=device.type == "cpu",
        )

    def reset(
        self,
        seed: int | None = None,
        mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:
        """Start new episodes in all or in the masked envs, or go on from a saved state."""
        self.spec.check_reset(mask, state)
        if seed is not None:
            self._generator.manual_seed(derive_seed(seed, "episodes"))
            self.simulation.reseed(seed)
            if self._cameras is not None:
                self._cameras.reseed(seed)
        if state is not None:
            self.load_state_dict(state)
            return self._obs(self._observer.look(self._last_action))
        self._begin(EnvSelection(self._all if mask is None else mask))
        if self._stagger and mask is None:
            self._stagger_ends()
        return self._obs(self._observer.look(self._last_action))

    def restart_time(self, env: int) -> None:
        """Begin the time limit of one env again; its robot goes on where it is."""
        self._episode_step[env] = 0
        self._episode_limit[env] = self.task.episode_steps

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions for one control period and reset the envs whose episode ended."""
        self.spec.check_action(action)
        asked = action
        action = torch.nan_to_num(asked, nan=0.0).clamp_(-1.0, 1.0)  # `check` tells of a NaN
        self.simulation.step(self.action_map.to_command(action))
        self._episode_step += 1
        self._env_steps += self.spec.num_envs
        self.task.advance(self._episode_step)
        outcome = self.task.evaluate(
            self.simulation.true_state, action, self._last_action, self._episode_step
        )
        self._reweigh()
        terms = self._reward.stack(outcome, lambda: RewardedStep(
            true_state=self.simulation.true_state, action=action, last_action=self._last_action,
            goal=self.task.goal, episode_step=self._episode_step,
        ))  # (N, K)  # fmt: skip
        self._last_action = action
        next_obs = self._observer.update(action)

        reward = terms @ self._weights
        terminated = outcome.terminated
        truncated = (self._episode_step >= self._episode_limit) > terminated  # and not
        success = outcome.succeeded(terminated, truncated)
        valid = self._flags.watch(
            {**next_obs, "reward": terms, "action": asked}, self.simulation.fault,
            joined=(self._observer.next_memory, terms, asked),
        )  # fmt: skip
        if valid is not self._flags.everyone:
            self._given_up += self.simulation.fault.sum()
            terminated, truncated = terminated & valid, truncated | ~valid
            success = success & valid
        for each in self._curricula:
            each.follow((terminated | truncated) & valid, success)

        cameras, stale = self._cameras, None
        if cameras is not None:
            cameras.step()
            next_obs = {**next_obs, **cameras.next_obs}
            stale = cameras.stale()
            if stale is not None:
                stale, valid = stale & valid, valid & ~stale
        beginning = EnvSelection(terminated | truncated)
        self._begin(beginning)
        observer = self._observer
        return EnvStep(
            obs=self._obs(
                observer.look(self._last_action) if beginning.count else observer.repeat()
            ),
            next_obs=next_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=success,
            valid=valid,
            action=action,
            intervened=self._none,
            metrics={**outcome.metrics, **self._extra_metrics},
            reward_terms=terms,
            reward_weights=self._weights,
            stale=stale,
        )

    @property
    def state_widths(self) -> Mapping[str, int]:
        """Parts of an env's state: name -> width; refused where none can begin an episode."""
        return self._states.widths

    def world_states(self) -> dict[str, Tensor]:
        """States of all envs as they are now, (N, W) float32 each, copied."""
        return self._states.take()

    def set_reset_states(self, source: ResetStateSource) -> None:
        """Begin episodes in the states of a source from the next reset on."""
        self._source = source

    def set_global_step(self, env_steps: int) -> None:
        """Weigh rewards as after so many steps of the envs of all processes of a run."""
        self._env_steps = env_steps

    def check(self) -> None:
        """Raise NonFiniteError for observations or rewards that were not numbers.

        The log names the number of envs that diverged since the last check: they were reset, and
        their steps are invalid. That is a warning the first time and where many more did, as an
        untrained policy may well spin a small drone faster than its physics can follow. LimitError
        tells of contacts that the engine had no room for.
        """
        self.simulation.check()
        given_up = int(self._given_up)
        if given_up:
            self._given_up.zero_()
            worse = given_up >= _WORSE * self._warned_of
            if worse:
                self._warned_of = given_up
            _logger.log(
                logging.WARNING if worse else logging.INFO,
                "%d env(s) diverged (not finite, or too fast): reset, transitions discarded; an "
                "untrained policy may do that",
                given_up,
            )
        columns = self._observer.columns
        columns["reward"] = list(self._reward.names)
        columns["action"] = [f"entry {i}" for i in range(self.action_map.size)]
        self._flags.check(columns)

    def mirror(self) -> EnvMirror:
        """Observations and actions with left and right exchanged."""
        return mirror_envs(
            self.simulation.robot, self.simulation, self.task, self.action_map,
            self._observer.layouts,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future."""
        return {
            "simulation": self.simulation.state_dict(),
            "task": self.task.state_dict(),
            **self._observer.state_dict(),
            "last_action": self._last_action.clone(),
            "episode_step": self._episode_step.clone(),
            "episode_limit": self._episode_limit.clone(),
            "world_steps": self._env_steps,
            "generator": self._generator.get_state(),
            **({} if self._cameras is None else {"cameras": self._cameras.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.simulation.load_state_dict(state["simulation"])
        self.task.load_state_dict(state["task"])
        self._observer.load_state_dict(state)
        self._last_action = state["last_action"].to(self.spec.device, copy=True)
        self._episode_step.copy_(state["episode_step"])
        self._episode_limit.copy_(state["episode_limit"])
        self._env_steps = int(state["world_steps"])
        self._generator.set_state(state["generator"])
        if self._cameras is not None:
            self._cameras.load_state_dict(state["cameras"])

    def close(self) -> None:
        """Release what cameras hold."""
        if self._cameras is not None:
            self._cameras.close()

    def _obs(self, groups: Obs) -> Obs:
        """Observation to act on next: these groups and the images."""
        return groups if self._cameras is None else {**groups, **self._cameras.obs}

    def _stagger_ends(self) -> None:
        """Let every env's first episode end with that of a group, drawn at random."""
        longest = self.task.episode_steps
        if (source := self._reset_source()) is not None:
            longest = min(longest, source.episode_steps)
        stride = math.ceil(longest / _GROUPS)
        groups = math.ceil(longest / stride)
        share = torch.rand(self._all.shape, generator=self._generator, device=self.spec.device)
        ends = (1 + (share * groups).long()) * stride
        torch.minimum(self._episode_limit, ends, out=self._episode_limit)

    def _reset_source(self) -> ResetStateSource | None:
        """Source of the states that episodes begin in; None while the task draws them."""
        source = self._source
        return source if source is not None and self._env_steps < source.until else None

    def _begin(self, rows: EnvSelection) -> None:
        """Start episodes in the picked envs."""
        if rows.count == 0:
            return
        start, limit = self.task.start(rows, self._generator), self.task.episode_steps
        if (source := self._reset_source()) is not None:
            limit = min(limit, source.episode_steps)
            self._states.put(rows, source.draw(rows.count, self._generator), self._generator)
        else:
            self.simulation.reset(rows, start, self._generator)
        rows.put(self._episode_step, 0)
        rows.put(self._episode_limit, limit)
        # Written into a copy: the step's action is on its way to the collector.
        self._last_action = self._last_action.clone()
        rows.put(self._last_action, self.initial_action)
        self._observer.begin(rows, self._last_action)
        if self._cameras is not None:
            self._cameras.begin(rows)

    def _reweigh(self) -> None:
        """Follow the curriculum; the device hears of it only when a weight moves."""
        values = self.task.reward_weights(self._env_steps)
        if values != self._weight_values:
            self._weight_values = dict(values)
            self._weights = torch.tensor(self._reward.ordered(values)).to(
                self.spec.device, non_blocking=True
            )


class Observer:
    """Observes N envs: their true successors, and what is to be acted on next."""

    def __init__(
        self,
        simulation: Simulation,
        task: Task,
        last_action: Tensor,
        *,
        actor_terms: Sequence[TermConfig],
        critic_terms: Sequence[TermConfig],
    ) -> None:
        """Check the terms and allocate observations.

        Args:
            simulation: The envs; actors see what it measures, critics its true state.
            last_action: (N, A); only shape and device matter.
        """
        self._simulation, self._task = simulation, task
        terms = {"actor": actor_terms, "critic": critic_terms}
        self._maps = {
            name: ObservationMap(listed, self._inputs(name, last_action))
            for name, listed in terms.items()
            if listed or name == "actor"
        }
        # Written anew in every step: allocating megabytes would cost more than filling them.
        self._memory, self._obs = self._allocate()
        self.next_memory, self._next_obs = self._allocate()
        """All numbers of the newest successors in a row; overwritten in place."""

    @property
    def specs(self) -> dict[str, GroupSpec]:
        """Shapes of the groups."""
        return {
            name: GroupSpec(
                shape=(one.size,),
                terms=tuple(
                    TermSpec(name=e["term"], width=e["width"], history=e["history"])
                    for e in one.layout()
                ),
            )
            for name, one in self._maps.items()
        }

    @property
    def layouts(self) -> dict[str, list[dict[str, Any]]]:
        """Terms of every group, as of `ObservationMap.layout`."""
        return {name: one.layout() for name, one in self._maps.items()}

    @property
    def columns(self) -> dict[str, list[str]]:
        """Name of the term of every column, by group."""
        return {
            name: [e["term"] for e in layout for _ in range(e["width"] * e["history"])]
            for name, layout in self.layouts.items()
        }

    def update(self, last_action: Tensor) -> Obs:
        """Observe true successors after accepted actions, (N, A): histories move by one frame."""
        for name, one in self._maps.items():
            one.update(self._inputs(name, last_action), out=self._next_obs[name])
        return self._next_obs

    def look(self, last_action: Tensor) -> Obs:
        """Observe what is to be acted on next; no history moves."""
        for name, one in self._maps.items():
            one.look(self._inputs(name, last_action), out=self._obs[name])
        return self._obs

    def repeat(self) -> Obs:
        """Hand on the successors as what is to be acted on next: nobody begins anew."""
        self._memory.copy_(self.next_memory)
        return self._obs

    def begin(self, rows: EnvSelection, last_action: Tensor) -> None:
        """Fill the histories of the picked envs with the frame that their episodes begin with."""
        for name, one in self._maps.items():
            if one.remembers:
                one.begin(rows, self._inputs(name, last_action))

    def state_dict(self) -> dict[str, Any]:
        """Histories by group."""
        return {name: one.state_dict() for name, one in self._maps.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; what is beside it in `state` is left alone."""
        for name, one in self._maps.items():
            one.load_state_dict(state[name])

    def _inputs(self, group: str, last_action: Tensor) -> ObservationInputs:
        envs, goal = self._simulation, self._task.goal
        if group == "actor":
            state, sensed = envs.measured, envs.sensed
        else:
            state, sensed = envs.true_state, envs.privileged
        return ObservationInputs(state=state, goal=goal, last_action=last_action, sensed=sensed)

    def _allocate(self) -> tuple[Tensor, Obs]:
        """All numbers of all groups in one piece of memory, and the groups in it."""
        count, device = self._simulation.num_worlds, self._simulation.device
        widths = [one.size for one in self._maps.values()]
        memory = torch.zeros(count * sum(widths), device=device)
        parts = memory.split([count * width for width in widths])
        views = [part.reshape(count, -1) for part in parts]
        return memory, dict(zip(self._maps, views, strict=True))


def mirror_envs(
    robot: RobotSpec,
    simulation: Simulation,
    task: Task,
    action_map: ActionMap,
    layouts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> EnvMirror:
    """Mirror image of observations and actions.

    Args:
        layouts: `ObservationMap.layout` of each group.

    Raises:
        ConfigError: The robot, a term, or the envs have no mirror; the message names it.
    """
    found = RobotMirror(robot)
    action = found.action(action_map)
    goals = task.goal_mirrors(found)
    sensed = simulation.sensor_mirrors(found)
    prefixed = (
        (GOAL_PREFIX, goals), (SENSED_PREFIX, sensed), (OFFSET_PREFIX, sensed), (GAP_PREFIX, sensed)
    )  # fmt: skip

    def of_term(name: str, width: int) -> SignedPermutation:
        for prefix, known in prefixed:
            if name.startswith(prefix):
                return _known(known, name[len(prefix) :])
        kinds = FIELD_KINDS if name.startswith(STATE_PREFIX) else TERM_KINDS
        kind = _known(kinds, name.removeprefix(STATE_PREFIX))
        return action if kind is Mirrored.action else found.kind(kind, width)

    groups: dict[str, SignedPermutation] = {}
    for group, layout in layouts.items():
        parts: list[SignedPermutation] = []
        for entry in layout:
            try:
                part = of_term(entry["term"], entry["width"])
                if part.width != entry["width"]:
                    raise ConfigError(f"its mirror has {part.width} columns of {entry['width']}")
            except ConfigError as error:
                raise ConfigError(
                    f"observation group '{group}' cannot be mirrored, as its term "
                    f"'{entry['term']}' has no mirror: {error}; declare one beside the term, leave "
                    "it out, or choose training.symmetry=none"
                ) from error
            parts.append(part.times(entry["history"]))
        groups[group] = SignedPermutation.joined(parts)
    return EnvMirror(groups=groups, action=action)


def _known(mirrors: Mapping[str, Any], name: str) -> Any:
    if name not in mirrors:
        raise ConfigError(unknown_name("mirror of", name, mirrors))
    return mirrors[name]


class FaultFlags:
    """Device flags of envs and columns that were not finite: set without waiting, read later."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._envs = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.everyone = ~self._envs
        """(N,) all true: what `watch` returns, this very tensor, where it found nothing at once."""
        self._columns: dict[str, Tensor] = {}

    def watch(
        self, values: Mapping[str, Tensor], excused: Tensor, joined: Sequence[Tensor] = ()
    ) -> Tensor:
        """Look at one step of all envs.

        Args:
            values: What must be finite, by name, each (N, width).
            excused: (N,) bool, envs whose fault the engine has already reported.
            joined: The same numbers in fewer tensors, of any shape, where they lie in one memory.

        Returns:
            (N,) bool: true where everything is finite and nothing was reported.
        """
        # A sum is finite if and only if its parts are, short of overflow.
        asking_is_free = counting_is_free(self._envs)
        parts = joined or values.values()
        if asking_is_free and all(math.isfinite(part.sum()) for part in parts):
            return ~excused if excused.any() else self.everyone  # most steps end here
        finite = torch.stack([part.sum(dim=-1) for part in values.values()]).isfinite().all(dim=0)
        self._envs |= ~(finite | excused)
        for name, part in values.items():
            counted = torch.where(excused[:, None], 0.0, part)
            if name not in self._columns:
                self._columns[name] = torch.zeros_like(part[0], dtype=torch.bool)
            self._columns[name] |= ~counted.isfinite().all(dim=0)
        return finite & ~excused

    def check(self, names: Mapping[str, Sequence[str]]) -> None:
        """Read the flags; waits for the device.

        Raises:
            NonFiniteError: Names envs and columns; the flags are cleared.
        """
        if not bool(self._envs.any()):
            return
        envs = _places(self._envs)
        bad = [
            f"{name} term '{names[name][i]}'"
            for name, flags in self._columns.items()
            for i in _places(flags)
        ]
        self._envs.zero_()
        for flags in self._columns.values():
            flags.zero_()
        shown = ", ".join(map(str, envs[:5])) + (", ..." if len(envs) > 5 else "")
        raise NonFiniteError(
            f"{' and '.join(dict.fromkeys(bad)) or 'a value'} was NaN or infinite in "
            f"{len(envs)} env(s) ({shown}); expected finite numbers: look at the term's "
            "formula for this robot's states"
        )


def _places(flags: Tensor) -> list[int]:
    """Places where flags are set, (K,) bool; waits for the device."""
    found: Any = flags.nonzero()[:, 0]  # torch does not annotate the items of a list
    return found.tolist()
