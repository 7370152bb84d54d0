"""Several learning environments of one robot each as one batch, for laws about batches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import NonFiniteError


class SideBySide:
    """A `BatchEnv` of N environments of one env each."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self._envs = list(envs)
        self.spec = replace(envs[0].spec, num_envs=len(envs))

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        self.spec.check_reset(mask, state)
        rows = [
            env.reset(
                seed=None if seed is None else 1000 * seed + i,
                mask=None if mask is None else mask[i : i + 1],
            )
            for i, env in enumerate(self._envs)
        ]
        return joined(rows)

    def step(self, action: Tensor) -> EnvStep:
        self.spec.check_action(action)
        rows = [env.step(action[i : i + 1]) for i, env in enumerate(self._envs)]
        names = ("reward", "terminated", "truncated", "success", "valid", "action", "intervened")
        return EnvStep(
            obs=joined([row.obs for row in rows]), next_obs=joined([row.next_obs for row in rows]),
            metrics=joined([row.metrics for row in rows]),
            **{name: torch.cat([getattr(row, name) for row in rows]) for name in names},
        )  # fmt: skip

    def check(self) -> None:
        for i, env in enumerate(self._envs):
            try:
                env.check()
            except NonFiniteError as error:
                raise NonFiniteError(str(error).replace("env 0", f"env {i}")) from None

    def state_dict(self) -> dict[str, Any]:
        return {str(i): env.state_dict() for i, env in enumerate(self._envs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for i, env in enumerate(self._envs):
            env.load_state_dict(state[str(i)])

    def close(self) -> None:
        for env in self._envs:
            env.close()


def joined(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
