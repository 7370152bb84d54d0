"""PPO of rsl_rl in our worlds, evaluated and logged as our own learners are."""

import contextlib
import io
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs.schema import RunConfig, make_env
from robot_rl.core.env import Obs
from robot_rl.core.errors import MissingExtraError, NonFiniteError
from robot_rl.training.evaluation import evaluate
from robot_rl.training.reporting.console import Console
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.reporting.sinks import open_sinks
from robot_rl.training.run_folder import RunFolder, RunState
from robot_rl.training.storage.durable import replace_file, storage_errors
from robot_rl.training.trainer import VALIDATION_SEED

try:
    from sim.adapters.rsl_rl_worlds import RslRlWorlds, grouped, make_ppo
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("rsl_rl", "tensordict"):
        raise
    raise MissingExtraError("rsl-rl-lib", "bench", "PPO for comparison") from None


@dataclass
class _Ends:
    """Episodes that ended since this was last asked."""

    total: float = 0.0
    episodes: int = 0


class PPOTraining:
    """The worlds, rsl_rl's algorithm, and the loop around them."""

    def __init__(
        self,
        config: RunConfig,
        settings: Callable[[str], dict[str, Any]],
        *,
        device: torch.device,
    ) -> None:
        """Make the worlds and the networks.

        Args:
            config: The run; its learner is not used.
            settings: Gives rsl_rl's settings for the critic's observation group.
            device: Where all of it lives.
        """
        self.config = config
        self.steps, self.seconds = 0, 0.0
        env = make_env(
            config, num_envs=config.num_envs, device=device, seed=config.seed, evaluation=False
        )
        self._evaluation_env = make_env(
            config, num_envs=config.training.evaluation_episodes, device=device,
            seed=VALIDATION_SEED, evaluation=True,
        )  # fmt: skip
        torch.manual_seed(config.seed)
        self._worlds = RslRlWorlds(env, seed=config.seed)
        self._settings = settings("critic" if "critic" in env.spec.groups else "actor")
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
            self._ppo = make_ppo(self._worlds, self._settings)
        self._returns = torch.zeros(config.num_envs, device=device)
        self._ends = _Ends()

    def run(self, run: RunFolder) -> None:
        """Train to the end, with a line per evaluation."""
        config, total = self.config, self.config.training.total_steps
        sinks = open_sinks(
            config.logging, run.path, name=run.path.name, group="rsl_ppo",
            run_config=run.config(), resume_step=None,
        )  # fmt: skip
        console = Console(quiet=config.logging.quiet)
        with MetricLog(run.metrics_path, sinks) as metrics, console:
            console.start(total, 0, f"rsl_rl's PPO -> {run.path}")
            for record in self._records():
                metrics.write(record)
                console.interval(record)
                self.mark(run, RunState.RUNNING)
            self._save(run)

    def mark(self, run: RunFolder, state: RunState, reason: str = "") -> None:
        """Say in the run's folder how it stands."""
        run.mark(
            state, step=self.steps, total_steps=self.config.training.total_steps,
            seconds=self.seconds, reason=reason,
        )  # fmt: skip

    def _records(self) -> Iterator[dict[str, float]]:
        training, begun = self.config.training, 0
        while self.steps < training.total_steps:
            start = time.perf_counter()
            losses = self._iterate()
            self.seconds += time.perf_counter() - start
            interval = training.evaluation_interval
            if self.steps // interval > begun // interval or self.steps >= training.total_steps:
                yield {**self._record(losses), **self._evaluate()}
                begun = self.steps

    def _iterate(self) -> dict[str, float]:
        """One rollout and its update."""
        ppo, obs = self._ppo, self._worlds.get_observations()
        ppo.train_mode()
        with torch.inference_mode():
            for _ in range(self._settings["num_steps_per_env"]):
                obs, reward, ended, extras = self._worlds.step(ppo.act(obs))
                self._follow(reward, ended > 0)
                ppo.process_env_step(obs, reward, ended, extras)
            ppo.compute_returns(obs)
        losses = ppo.update()
        self.steps += self._worlds.num_envs * self._settings["num_steps_per_env"]
        bad = [name for name, value in losses.items() if value and not math.isfinite(value)]
        if bad:
            raise NonFiniteError(f"{', '.join(bad)} became NaN or infinite at step {self.steps}")
        return losses

    def _follow(self, reward: Tensor, ended: Tensor) -> None:
        self._returns += reward
        self._ends.total += float(self._returns[ended].sum())
        self._ends.episodes += int(ended.sum())
        self._returns[ended] = 0.0

    def _record(self, losses: dict[str, float]) -> dict[str, float]:
        ends, self._ends = self._ends, _Ends()
        return {
            "step": self.steps,
            "seconds": self.seconds,
            "rollout/return": ends.total / ends.episodes if ends.episodes else math.nan,
            "time/steps_per_second": self.steps / self.seconds,
            "train/learning_rate": float(self._ppo.learning_rate),
            **{f"train/{name}": float(value) for name, value in losses.items() if value},
        }

    def _evaluate(self) -> dict[str, float]:
        self._ppo.eval_mode()
        actor = self._ppo.get_policy()

        def act(obs: Obs) -> Tensor:
            return actor(grouped(obs))

        return evaluate(self._evaluation_env, act, seed=VALIDATION_SEED).summary()

    def _save(self, run: RunFolder) -> None:
        content = io.BytesIO()
        torch.save(self._ppo.get_policy().state_dict(), content)
        path = run.checkpoints / "actor.pt"
        with storage_errors("save the actor", path):
            replace_file(path, content.getvalue())
