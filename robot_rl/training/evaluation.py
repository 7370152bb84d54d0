"""Plays one episode per env with the deterministic policy and keeps every env's outcome.

Under several conditions the worst one counts: a policy that is good at home and falls under a late
command is as good as it is there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvStep, Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.statistics import mean_interval, wilson_interval
from robot_rl.training.storage.checkpoint import Score

AS_TRAINED = "as trained"
"""Condition without any change, by its name in `configs/robustness`."""
_POLL_STEPS = 32
"""Steps between two looks at whether all episodes have ended; each look waits for the device."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Outcome of one episode in each of N envs."""

    success: Tensor
    """(N,) bool."""
    terminated: Tensor
    """(N,) bool: ended by the task, not by time."""
    returns: Tensor
    """(N,): undiscounted sum of rewards."""
    seconds: Tensor
    """(N,): length of the episode [s]."""
    metrics: Mapping[str, Tensor]
    """The environment's metrics in each env's last step, (N,)."""
    gave_up: Tensor
    """(N,) bool: the simulation gave the env up, as its numbers diverged."""
    judged: bool = True
    """True if the environment judges success; else none is in the summary."""

    @property
    def success_rate(self) -> float:
        """Share of successful episodes."""
        return float(self.success.float().mean())

    @property
    def score(self) -> Score:
        """Numbers that the best checkpoint is chosen by: success, and the mean return.

        A few hundred episodes hardly tell 99 from 99.5 % of success: among policies within a
        standard error of the best (the rule of Breiman et al. 1984) the return decides.
        """
        mean_return, count = float(self.returns.mean()), self.success.numel()
        if not self.judged:
            return Score(value=mean_return, floor=mean_return, second=mean_return, episodes=count)
        low, _ = wilson_interval(int(self.success.sum()), count, deviations=1.0)
        return Score(value=self.success_rate, floor=low, second=mean_return, episodes=count)

    @property
    def success_interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the success rate."""
        return wilson_interval(int(self.success.sum()), self.success.numel())

    @property
    def return_interval(self) -> tuple[float, float]:
        """95 % interval of the mean return, by its standard error."""
        return mean_interval(self.returns.cpu().numpy())

    @property
    def lost(self) -> Tensor:
        """(N,) bool: the task ended the episode, and not because it was done, or it diverged."""
        return (self.terminated & ~self.success) | self.gave_up

    @property
    def complete(self) -> Tensor:
        """(N,) bool: the episode lasted to its time limit, or until the task was done."""
        return ~self.lost

    def summary(self) -> dict[str, float]:
        """Means by metric name, for logs. Metrics are means over complete episodes."""
        low, high = self.success_interval
        complete = self.complete
        means = {
            f"eval/{name}": float(values[complete].mean()) if bool(complete.any()) else float("nan")
            for name, values in self.metrics.items()
        }
        success = {
            "eval/success": self.success_rate,
            "eval/success_low": low,
            "eval/success_high": high,
        }
        return {
            **(success if self.judged else {}),
            "eval/return": float(self.returns.mean()),
            "eval/terminated": float(self.terminated.float().mean()),
            **({"eval/gave_up": float(self.gave_up.float().mean())} if self.gave_up.any() else {}),
            **means,
        }


@torch.no_grad()
def evaluate(
    env: BatchEnv,
    act: Callable[[Obs], Tensor],
    *,
    seed: int,
    on_step: Callable[[EnvStep], None] | None = None,
) -> Evaluation:
    """Play the first episode of every env to its end.

    Args:
        env: N envs; all are reset with `seed`, so equal seeds give equal starts.
        act: Policy, groups (N, ...) -> (N, A); is told where episodes start if it is one that
            remembers.
        seed: Chooses starts, goals, physical parameters and noise.

    Raises:
        NonFiniteError: An observation, a reward or an action was not a number.
    """
    obs = env.reset(seed=seed)
    count, device = env.spec.num_envs, env.spec.device
    running = torch.ones(count, dtype=torch.bool, device=device)
    begin_episodes(act, running)
    success, terminated, gave_up = ~running, ~running, ~running
    returns = torch.zeros(count, device=device)
    length = torch.zeros(count, device=device)
    metrics = {name: torch.zeros(count, device=device) for name in env.spec.metric_names}
    steps = 0
    while steps % _POLL_STEPS or bool(running.any()):
        step = env.step(act(obs))
        begin_episodes(act, step.ended)
        if on_step is not None:
            on_step(step)
        # A NaN of an env that is done, or of an invalid row, must not spoil a sum.
        counted = running & step.counts
        returns += torch.where(counted, step.reward, 0.0)
        length += counted
        ending = step.ended & running
        success = success | (step.success & ending)
        terminated = terminated | (step.terminated & ending)
        gave_up = gave_up | (ending & ~step.counts)
        for name, kept in metrics.items():
            kept.copy_(torch.where(ending, step.metrics[name], kept))
        running = running & ~ending
        obs = step.obs
        steps += 1
    env.check()
    return Evaluation(
        success=success,
        terminated=terminated,
        returns=returns,
        seconds=length * env.spec.control_dt,
        metrics=metrics,
        gave_up=gave_up,
        judged=env.spec.judges_success,
    )


class Evaluator:
    """Envs that policies are compared in: as trained and, where that was asked for, changed."""

    def __init__(
        self, env: BatchEnv, changed: Mapping[str, BatchEnv] | None = None, *, seed: int
    ) -> None:
        """Take the envs.

        Args:
            env: Of the condition whose numbers have no other name.
            changed: Those of further conditions by their names.
            seed: Chooses the starts of every evaluation.

        Raises:
            ConfigError: Two conditions would have the same name among the metrics.
        """
        self.envs = {AS_TRAINED: env, **(changed or {})}
        """By condition."""
        self._seed = seed
        names = [metric_part(name) for name in self.envs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"conditions {', '.join(map(repr, self.envs))} have the same name among the "
                f"metrics: {', '.join(twice)}; name them with other letters or digits"
            )

    def evaluate(self, policy: Callable[[Obs], Tensor]) -> tuple[dict[str, float], Score]:
        """Play all envs; returns metrics, and the score that the best is chosen by.

        Raises:
            NonFiniteError: As `evaluate`.
        """
        found = {name: evaluate(env, policy, seed=self._seed) for name, env in self.envs.items()}
        home = found[AS_TRAINED]
        if len(found) == 1:
            return home.summary(), home.score
        score, what = worst_score(found), "success" if home.judged else "return"
        values = {name: one.success_rate if one.judged else float(one.returns.mean())
                  for name, one in found.items() if name != AS_TRAINED}  # fmt: skip
        return {
            **home.summary(),
            f"eval/worst_{what}": score.value,
            **{f"eval/{metric_part(name)}/{what}": value for name, value in values.items()},
        }, score


def worst_score(found: Mapping[str, Evaluation]) -> Score:
    """Score of the worst condition; among policies within a standard error, the mean over all.

    What decides there is the mean of all conditions' returns, each counting alike.
    """
    worst = min(found, key=lambda name: found[name].score.value)
    score = replace(found[worst].score, condition=worst)
    if not found[worst].judged:
        return score
    returns = [float(one.returns.mean()) for one in found.values()]
    return replace(score, second=sum(returns) / len(returns))


def metric_part(condition: str) -> str:
    """A condition's name among the metrics: "delay 20 ms" is delay_20_ms."""
    return re.sub(r"\W+", "_", condition).strip("_")
