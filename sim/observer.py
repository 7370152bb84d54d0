"""What actors and critics see of simulated worlds, written into the same tensors in every step."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import GroupSpec, Obs, TermSpec
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import ObservationInputs, ObservationMap, TermConfig
from sim.simulation import Simulation
from sim.task import Task


class Observer:
    """Observes N worlds: their true successors, and what is to be acted on next."""

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
            simulation: The worlds; actors see what it measures, critics its true state.
            task: Sets the goals.
            last_action: (N, A); only shape and device matter.
            actor_terms: What the policy sees.
            critic_terms: What the critic sees; empty for none.
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
        """Observe true successors: histories move by one frame.

        Args:
            last_action: Accepted in this step, (N, A).
        """
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
        """Fill the histories of the picked worlds with the frame that their episodes begin with."""
        for name, one in self._maps.items():
            one.begin(rows, self._inputs(name, last_action))

    def state_dict(self) -> dict[str, Any]:
        """Histories by group."""
        return {name: one.state_dict() for name, one in self._maps.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; what is beside it in `state` is left alone."""
        for name, one in self._maps.items():
            one.load_state_dict(state[name])

    def _inputs(self, group: str, last_action: Tensor) -> ObservationInputs:
        worlds, goal = self._simulation, self._task.goal
        if group == "actor":
            state, sensed = worlds.measured, worlds.sensed
        else:
            state, sensed = worlds.true_state, worlds.privileged
        return ObservationInputs(state=state, goal=goal, last_action=last_action, sensed=sensed)

    def _allocate(self) -> tuple[Tensor, Obs]:
        """All numbers of all groups in one piece of memory, and the groups in it."""
        count, device = self._simulation.num_worlds, self._simulation.device
        widths = [one.size for one in self._maps.values()]
        memory = torch.zeros(count * sum(widths), device=device)
        parts = memory.split([count * width for width in widths])
        views = [part.reshape(count, -1) for part in parts]
        return memory, dict(zip(self._maps, views, strict=True))
