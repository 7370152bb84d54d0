"""Speed of collecting and learning with the default learner on hover, and who takes how much."""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from configs.compose import compose
from configs.schema import RunConfig
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.cli.components import make_learner, make_sim_env
from robot_rl.core.learner import Learner
from robot_rl.training.collector import Collector
from scripts.bench.timing import Section, interleave
from sim.env import SimEnv

MEMORY_BAR = 2.0
"""GiB that training may take."""


class LearningBench:
    """The parts of a training run, the replay filled."""

    def __init__(self, overrides: Sequence[str] = ()) -> None:
        """Build them from `configs/`.

        Args:
            overrides: Changes to the default run.
        """
        self.config: RunConfig = compose(["task=hover", *overrides]).config
        self.env: SimEnv = make_sim_env(
            self.config,
            num_envs=self.config.num_envs,
            device=torch.device("cpu"),
            seed=0,
            evaluation=False,
        )
        self.learner: Learner = make_learner(self.config, self.env.spec)
        groups = (*self.learner.actor_groups, *self.learner.critic_groups)
        self.replay = ReplayBuffer(
            self.env.spec, groups, capacity=self.config.training.replay_capacity,
            gamma=self.learner.gamma, n_step=self.learner.n_step, seed=0,
            compile=self.learner.compile,
        )  # fmt: skip
        self.collector = Collector(self.env, self.learner, self.replay, random_steps=0, seed=0)
        self.collector.start()
        while self.collector.env_steps < self.config.training.replay_capacity:
            self.collector.collect()

    def measure(
        self, batch_sizes: Sequence[int], *, rounds: int, repeats: int
    ) -> tuple[list[Section], list[str]]:
        """Measure everything.

        Args:
            batch_sizes: Transitions per update; the configured one is added.
            rounds: Turns of each contender.
            repeats: Steps or updates in one turn.

        Returns:
            Tables, and lines about the share of learning and the memory.
        """
        collecting = self._collecting(rounds, repeats)
        sizes = sorted({*batch_sizes, self.learner.samples_per_update})
        learning = self._learning(sizes, rounds, repeats)
        return [collecting, learning], [self._share(collecting, learning), _memory()]

    def _collecting(self, rounds: int, repeats: int) -> Section:
        env, learner = self.env, self.learner
        obs = {name: group.clone() for name, group in env.reset(seed=1).items()}
        action = learner.act(obs, explore=True)
        step = env.step(action)
        parts: dict[str, Callable[[], object]] = {
            "collect, all of it": self.collector.collect,
            "act": lambda: learner.act(obs, explore=True),
            "step the worlds": lambda: env.step(action),
            "store": lambda: self.replay.add(obs, step),
            "update the normalisers": lambda: learner.observe(step),
        }
        return interleave(
            f"collecting, {env.spec.num_envs} worlds, untrained policy",
            "ms per step",
            {name: milliseconds(part, repeats) for name, part in parts.items()},
            rounds=rounds,
        )

    def _learning(self, sizes: Sequence[int], rounds: int, repeats: int) -> Section:
        contenders: dict[str, Callable[[], float]] = {}
        for size in sizes:
            config = replace(self.config, learner=replace(self.config.learner, batch_size=size))
            learner = make_learner(config, self.env.spec)
            batch = self.replay.sample(size)
            # Even: the actor is updated in every other update only.
            update, even = lambda one=learner, b=batch: one.update(b), repeats + repeats % 2
            contenders[f"update, batch {size}"] = milliseconds(update, even)
            # As in training: one gather for all updates of a step.
            count = max(1, config.training.updates_per_step)
            sample = milliseconds(lambda n=count * size: self.replay.sample(n), repeats)
            contenders[f"sample, batch {size}"] = lambda s=sample, n=count: s() / n
        return interleave("learning (SAC)", "ms per update", contenders, rounds=rounds)

    def _share(self, collecting: Section, learning: Section) -> str:
        updates, size = self.config.training.updates_per_step, self.learner.samples_per_update
        collect = collecting.median("collect, all of it")
        each = learning.median(f"update, batch {size}") + learning.median(f"sample, batch {size}")
        learn = updates * each
        rate = self.env.spec.num_envs / (collect + learn) * 1e3
        return (
            f"{updates} updates of {size} after each step of {self.env.spec.num_envs} worlds: "
            f"{collect / (collect + learn):.0%} collecting, {learn / (collect + learn):.0%} "
            f"learning, {rate:,.0f} world-steps/s"
        )


def milliseconds(part: Callable[[], object], repeats: int) -> Callable[[], float]:
    """A contender that runs a part so many times and returns the mean time of one [ms]."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            part()
        return (time.perf_counter() - start) / repeats * 1e3

    return measure


def _memory() -> str:
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
    verdict = "kept" if gigabytes < MEMORY_BAR else "missed"
    return f"peak memory of this process {gigabytes:.2f} GiB (bar {MEMORY_BAR:g} GiB: {verdict})"
