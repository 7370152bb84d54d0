"""Fakes, not mocks: small worlds and networks of sixteen units.

`ToyEnv` owns what all environments share (seeds, ends, automatic resets, faults); its dynamics
(`toy_worlds.py`) say what a world is: `LinearWorld` takes any groups and sizes, `PointMass` can be
learned in seconds, `Chain` has values that are known in closed form.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.experts import ExpertsConfig
from policies.networks.gaussian_actor import GaussianActorConfig, LogStdBound
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import NonFiniteError
from robot_rl.core.transition import Batch
from robot_rl.learners.dsac_t import DSACT, DSACTConfig
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig
from robot_rl.learners.mentor import MENTOR, MENTORConfig
from robot_rl.learners.optimization import Reduce
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.td3 import TD3, TD3Config
from robot_rl.learners.values import ValueConfig
from tests.toy_worlds import Chain, Dynamics, LinearWorld, MovingDot, PointMass

__all__ = [
    "CPU", "Chain", "LinearWorld", "MovingDot", "PointMass", "ToyEnv", "copied", "random_batch",
    "random_obs", "small_dsac_t", "small_flash_sac", "small_mentor", "small_sac", "small_td3",
]  # fmt: skip

CPU = torch.device("cpu")


class ToyEnv:
    """A `BatchEnv` over any dynamics; deterministic but for its own generator."""

    def __init__(
        self,
        dynamics: Dynamics,
        num_envs: int = 3,
        *,
        limit: int = 10,
        truncation_rate: float = 0.0,
        reward_weights: Callable[[int], Sequence[float]] | None = None,
        invalid_at: Collection[tuple[int, int]] = (),
        nan_at: Mapping[str, tuple[int, int]] | None = None,
        device: torch.device = CPU,
        seed: int = 0,
    ) -> None:
        """Make the worlds.

        Args:
            dynamics: What a world is.
            num_envs: N.
            limit: Steps until an episode is truncated.
            truncation_rate: Chance per step of an earlier truncation.
            reward_weights: Of the named terms after so many steps; ones by default.
            invalid_at: (step since construction, world) whose row is invalid, all of it NaN.
            nan_at: "reward" or a group -> (step since construction, world) that is NaN unexcused.
            device: Where the worlds live.
            seed: Of starts and truncations.
        """
        self.dynamics = dynamics
        self.limit, self._truncation_rate = limit, truncation_rate
        self._weights_at = reward_weights or (lambda _: [1.0] * max(1, len(dynamics.reward_names)))
        self._invalid_at, self._nan_at = invalid_at, dict(nan_at or {})
        self.spec = EnvSpec(
            num_envs=num_envs, device=device, groups=dynamics.groups,
            action_size=dynamics.action_size, control_dt=0.1,
            reward_names=dynamics.reward_names, metric_names=("first",),
            reward_weights=tuple(self._weights_at(0)) if dynamics.reward_names else (),
            steps_beside=torch.device(device).type == "cpu",
        )  # fmt: skip
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._state = dynamics.start(num_envs, self._generator)
        self._episode_step = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.steps = 0
        """Steps since construction."""
        self.closed = False
        self._bad: list[tuple[str, int]] = []

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        self.spec.check_reset(mask, state)
        if seed is not None:
            self._generator.manual_seed(seed)
        if state is not None:
            self.load_state_dict(state)
            return self.dynamics.observe(self._state)
        if mask is None:
            mask = torch.ones_like(self._episode_step, dtype=torch.bool)
        self._begin(mask)
        return self.dynamics.observe(self._state)

    def step(self, action: Tensor) -> EnvStep:
        self.spec.check_action(action)
        for world in action.isfinite().all(-1).logical_not().nonzero()[:, 0].tolist():
            self._bad.append(("action", world))
        action = action.nan_to_num(0.0).clamp(-1, 1)
        self._state = self.dynamics.step(self._state, action)
        self._episode_step = self._episode_step + 1
        next_obs = self.dynamics.observe(self._state)
        terms = self.dynamics.reward_terms(self._state, action)
        valid = torch.ones_like(self._episode_step, dtype=torch.bool)
        for world in [w for step, w in self._invalid_at if step == self.steps]:
            valid[world] = False
            for poisoned in (terms, *next_obs.values()):
                poisoned[world] = float("nan")
        for name, (step, world) in self._nan_at.items():
            if step == self.steps:
                (terms if name == "reward" else next_obs[name])[world] = float("nan")
                self._bad.append((name, world))
        weights = torch.tensor(self._weights_at(self.steps), device=self.spec.device)
        terminated = self.dynamics.terminated(self._state) & valid
        chance = torch.rand(len(valid), generator=self._generator, device=self.spec.device)
        late = (self._episode_step >= self.limit) | (chance < self._truncation_rate)
        truncated = (late | ~valid) & ~terminated
        success = self.dynamics.success(self._state) & truncated & valid
        metrics = {"first": self._state[:, 0].clone()}
        self._begin(terminated | truncated)
        self.steps += 1
        ended = terminated | truncated
        fresh = self.dynamics.observe(self._state)
        obs = {k: torch.where(_like(ended, v), fresh[k], v) for k, v in next_obs.items()}
        named = bool(self.spec.reward_names)
        return EnvStep(
            obs=obs, next_obs=next_obs, reward=terms @ weights, terminated=terminated,
            truncated=truncated, success=success, valid=valid, action=action,
            intervened=torch.zeros_like(valid), metrics=metrics,
            reward_terms=terms if named else None, reward_weights=weights if named else None,
        )  # fmt: skip

    def check(self) -> None:
        bad, self._bad = self._bad, []
        if bad:
            names = " and ".join(f"{name} was NaN in world {world}" for name, world in bad)
            raise NonFiniteError(f"{names}; expected finite numbers: look at the fake's settings")

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self._state.clone(), "episode_step": self._episode_step.clone(),
            "steps": self.steps, "generator": self._generator.get_state(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = state["state"].to(self.spec.device, copy=True)
        self._episode_step = state["episode_step"].to(self.spec.device, copy=True)
        self.steps = int(state["steps"])
        self._generator.set_state(state["generator"])

    def close(self) -> None:
        self.closed = True

    def _begin(self, mask: Tensor) -> None:
        start = self.dynamics.start(self.spec.num_envs, self._generator)
        self._state = torch.where(mask[:, None], start, self._state)
        self._episode_step = self._episode_step * ~mask


def _like(mask: Tensor, values: Tensor) -> Tensor:
    return mask.reshape(-1, *[1] * (values.ndim - 1))


Made = TypeVar("Made")
Parts: TypeAlias = Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]]


def small_learner(
    learner: Callable[..., Made], config: Callable[..., Any], parts: Parts, **defaults: Any
) -> Callable[..., Made]:
    """A maker of learners: `make(spec, seed, gamma=0.9, actor={"hidden": [8]})`.

    Args:
        learner: Its class.
        config: Its config's class.
        parts: Class and settings of each config within that one.
        defaults: Other settings.
    """

    def make(
        spec: EnvSpec, seed: int = 0, *, stream_seed: int | None = None,
        reduce: Reduce | None = None, **settings: Any,
    ) -> Made:  # fmt: skip
        built = {
            name: part(**{**own, **(settings.pop(name, None) or {})})
            for name, (part, own) in parts.items()
        }
        streams = {"stream_seed": stream_seed, "reduce": reduce}
        given = {name: value for name, value in streams.items() if value is not None}
        made = config(**{"batch_size": 8, **defaults, **settings, **built})
        return learner(made, spec, seed=seed, **given)

    return make


HIDDEN: dict[str, Any] = {"hidden": [16]}
GAUSSIAN: Parts = {"actor": (GaussianActorConfig, HIDDEN), "critic": (QEnsembleConfig, HIDDEN)}
FLASH: dict[str, Any] = {
    "kind": NetworkKind.flash, "width": 16, "blocks": 1, "normalize": False,
}  # fmt: skip
BOUNDED: dict[str, Any] = {**FLASH, "log_std_min": -10.0, "log_std_bound": LogStdBound.tanh}
small_sac = small_learner(SAC, SACConfig, GAUSSIAN)
small_dsac_t = small_learner(DSACT, DSACTConfig, GAUSSIAN)
small_td3 = small_learner(
    TD3, TD3Config, {**GAUSSIAN, "actor": (DeterministicActorConfig, HIDDEN)},
    actor_lr=3e-4, critic_lr=3e-4,
)  # fmt: skip
EXPERTS: dict[str, Any] = {
    **HIDDEN, "kind": NetworkKind.moe,
    "experts": ExpertsConfig(count=4, width=8, top=2, gate_width=8),
}  # fmt: skip
small_mentor = small_learner(
    MENTOR, MENTORConfig,
    {
        **GAUSSIAN, "actor": (DeterministicActorConfig, EXPERTS),
        "value": (QEnsembleConfig, {**HIDDEN, "members": 1}),
    },
    actor_lr=3e-4, critic_lr=3e-4, value_lr=3e-4,
)  # fmt: skip
small_flash_sac = small_learner(
    FlashSAC, FlashSACConfig,
    {"actor": (GaussianActorConfig, BOUNDED), "critic": (QEnsembleConfig, FLASH)},
    batch_size=16, values=ValueConfig(atoms=21, low=-5.0, high=5.0),
)  # fmt: skip


def random_obs(spec: EnvSpec, count: int, generator: torch.Generator) -> Obs:
    """Standard normals for every float group, and any pixels for images, (count, ...)."""
    return {
        name: torch.randint(0, 256, (count, *group.shape), generator=generator)
        .to(torch.uint8)
        .to(spec.device)
        if group.dtype is torch.uint8
        else torch.randn(count, *group.shape, generator=generator).to(spec.device)
        for name, group in spec.groups.items()
    }


def random_batch(spec: EnvSpec, count: int, seed: int = 0) -> Batch:
    """Transitions of no world in particular; about one in four has no future."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(count, spec.action_size + 1, generator=generator).to(spec.device)
    return Batch(
        obs=random_obs(spec, count, generator),
        action=unit[:, 1:] * 2 - 1,
        reward=torch.randn(count, generator=generator).to(spec.device),
        discount=0.9 * (unit[:, 0] > 0.25),
        next_obs=random_obs(spec, count, generator),
        weight=torch.ones(count, device=spec.device),
    )


def copied(state: Any) -> Any:
    """A state that later updates cannot reach."""
    return copy.deepcopy(state)
