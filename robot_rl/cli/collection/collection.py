"""One collection: from a command line to a data set that holds so many episodes.

Everything that decides the episodes of one command (envs, experts, disturbance, seed, number of
envs) has a digest. It is part of every episode's source, `<expert> <digest>/<number>`, so that the
same command goes on where it was, and lies in `meta/collected_<digest>.json` with what it is the
digest of.
"""

import logging
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs.builders import run_device
from configs.catalog import GROUPS
from configs.compose import changed_keys, compose, from_plain, to_plain
from configs.schema import RunConfig, component_of, make_env
from robot_rl.cli.collection.experts import (
    Casting,
    CollectOptions,
    Expert,
    Share,
    config_of,
    make_expert,
    read_shares,
)
from robot_rl.cli.collection.rounds import Attempt, Rounds, state_widths, states_of
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files.manifest import is_dataset
from robot_rl.datasets.recorder import left_out, spec_of
from robot_rl.datasets.repair import COLLECTED
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter, check_free
from robot_rl.training.reporting.console import format_number, format_percent
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.runs.provenance import config_hash, git_state, package_versions
from robot_rl.training.storage.durable import replace_json, storage_errors

_DEFAULTS = ("num_envs=16", "device=cpu")
_RUN_FIELDS = ("seed", "num_envs", "device", "threads")
"""Fields of a run that a collection follows, beside its task, robot and environment."""
_PROGRESS_INTERVAL = 5.0
"""Between two lines of progress [s]."""
_DIGEST_LETTERS = 8
_DECIDING_OPTIONS = ("noise", "bursts", "burst_steps", "noise_seconds", "starts", "words")
"""Options that change what an episode is."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Episodes of one command, numbered from 0."""

    content: dict[str, Any]
    """Settings that decide them."""

    @property
    def name(self) -> str:
        """Digest of the content."""
        return config_hash(self.content)[:_DIGEST_LETTERS]

    def source(self, expert: str, number: int) -> str:
        """Source that is stored with an episode."""
        return f"{expert} {self.name}/{number}"

    def numbers(self, sources: Sequence[str]) -> set[int]:
        """Numbers of the episodes of this stream, out of all sources of a data set."""
        found = (re.fullmatch(rf".* {self.name}/(\d+)", one) for one in sources)
        return {int(one[1]) for one in found if one}

    def describe(self, folder: Path) -> None:
        """Write into a data set what the digest stands for.

        Raises:
            StorageError: The disk refused.
        """
        path = folder / "meta" / COLLECTED.format(self.name)
        if path.exists():
            return
        content = {
            **self.content,
            "git": git_state(Path(__file__).parent),
            "packages": package_versions(),
        }
        with storage_errors("write", path):
            replace_json(path, content)


def stream_of(
    options: CollectOptions, config: RunConfig, shares: Sequence[Share], experts: Sequence[Expert]
) -> Stream:
    """The stream of a command."""
    plain = to_plain(config)
    played = [
        {"name": expert.name, "identity": expert.identity, "share": one.share}
        for one, expert in zip(shares, experts, strict=True)
    ]
    worlds = {key: plain[key] for key in ("schemas", "env", "task", "robot")}
    worlds["schemas"] = {k: v for k, v in worlds["schemas"].items() if k != "learner"}
    return Stream(content={
        "experts": played,
        **{name: str(getattr(options, name)) for name in _DECIDING_OPTIONS},
        "seed": config.seed,
        "num_envs": config.num_envs,
        "worlds": worlds,
    })  # fmt: skip


@dataclass
class Tally:
    """Episodes of one expert."""

    name: str
    successes: int = 0
    returns: list[float] = field(default_factory=list[float])
    lengths: list[int] = field(default_factory=list[int])

    @property
    def count(self) -> int:
        """Episodes."""
        return len(self.lengths)

    def add(self, episode: Episode) -> None:
        """Count an episode."""
        self.successes += int(episode.success[-1])
        self.returns.append(float(episode.reward.sum(dtype=np.float64)))
        self.lengths.append(episode.num_steps)

    def line(self, width: int, *, control_dt: float, judged: bool) -> str:
        """Summary of its episodes."""
        if not self.count:
            return f"{self.name:<{width}} played none"
        low, high = wilson_interval(self.successes, self.count)
        rate = self.successes / self.count
        success = (
            f"{self.successes} of {self.count} succeeded, {format_percent(rate)} "
            f"(95 % interval {format_percent(low)} to {format_percent(high)})"
            if judged
            else f"{self.count} episodes, success is not judged"
        )
        spread = format_number(float(np.std(self.returns)))
        shortest, longest = (
            f"{n * control_dt:.2f}" for n in (min(self.lengths), max(self.lengths))
        )
        seconds = shortest if shortest == longest else f"{shortest} to {longest}"
        return (
            f"{self.name:<{width}} {success}; return {format_number(float(np.mean(self.returns)))} "
            f"(deviation {spread}); {seconds} s"
        )


def configure(options: CollectOptions, overrides: Sequence[str]) -> RunConfig:
    """Compose the envs; a run or a bundle brings its own unless a task or a robot is named.

    Raises:
        ConfigError: A choice, a key or a value is wrong.
    """
    keys = changed_keys(overrides)
    for key in keys:
        if key not in (*GROUPS, *_RUN_FIELDS) and not key.startswith(("env.", "task.", "robot.")):
            raise ConfigError(
                f"'{key}' changes nothing in a collection; what can be changed are its options "
                f"({', '.join(vars(options))}), {', '.join(_RUN_FIELDS)}, and fields of task, "
                "robot and env (task.<field>)"
            )
    found = [config_of(one.expert) for one in read_shares(options.expert)]
    trained = next((one for one in found if one is not None), None)
    if trained is None or set(keys) & set(GROUPS):
        return compose([*_DEFAULTS, *overrides]).config
    return from_plain(to_plain(trained), [*_DEFAULTS, "seed=0", *overrides])


def collect(options: CollectOptions, config: RunConfig) -> None:
    """Play and store until the data set holds what was asked for; says what came of it.

    Raises:
        ConfigError: Nobody can act as asked.
        DatasetError: The data set is damaged, of something else, or too few episodes succeeded.
        StorageError: The disk refused.
    """
    folder = _place(options)
    torch.set_num_threads(config.threads)
    env = make_env(
        config, num_envs=config.num_envs, device=run_device(config), seed=config.seed,
        evaluation=options.starts == "evaluation",
    )  # fmt: skip
    name = str(getattr(config.env, "id", "")) or component_of(config.task).name
    options = replace(options, words=options.words or name)
    shares = read_shares(options.expert)
    experts = [make_expert(one.expert, env, config) for one in shares]
    if options.only_successes and not env.spec.judges_success:
        raise ConfigError("only_successes was asked for, but nothing here says what a success is")
    stream = stream_of(options, config, shares, experts)
    names = [one.name for one in experts]
    with _opened(folder, spec_of(env.spec, state_widths(states_of(options, env)))) as writer:
        stream.describe(folder)
        for group in left_out(env.spec):
            print(f"{group} is left out: neither a vector nor images of 1 or 3 channels")
        rounds = Rounds(
            env, experts, Casting(shares), options, seed=config.seed, words=options.words
        )
        _Collection(writer, stream, rounds, names, options, env).run()


class _Collection:
    """Stores what rounds bring, until there is enough."""

    def __init__(
        self, writer: DatasetWriter, stream: Stream, rounds: Rounds, names: Sequence[str],
        options: CollectOptions, env: BatchEnv,
    ) -> None:  # fmt: skip
        self._writer, self._stream, self._rounds = writer, stream, rounds
        self._names, self._options, self._env = names, options, env
        self._stored = stream.numbers(writer.sources)
        self._before = len(self._stored)
        self._tallies = [Tally(name) for name in names]
        self._given_up = 0
        self._began = self._told = time.monotonic()

    def run(self) -> None:
        """Play to the end; Ctrl-C leaves every episode that has ended in the data set."""
        if self._before:
            print(f"{self._before} episodes of this command are there already")
        try:
            with _undisturbed():
                for attempts in self._attempts():
                    self._take(attempts)
                    self._progress()
        except KeyboardInterrupt:
            self._summary()
            print("every episode that had ended is stored; continue with: append=true")
            raise
        self._summary()
        if self._missing > 0:
            raise DatasetError(
                f"{self._played} episodes were played, as attempts allow, but "
                f"{len(self._stored)} of {self._options.episodes} are in {self._writer.folder}; "
                "take less noise or another expert, or allow more attempts (attempts=...)"
            )

    @property
    def _missing(self) -> int:
        return self._options.episodes - len(self._stored)

    @property
    def _played(self) -> int:
        """Episodes, those included in which the engine gave the env up."""
        return sum(one.count for one in self._tallies) + self._given_up

    def _attempts(self) -> Iterator[list[Attempt]]:
        """Rounds from the one in which the stream stopped."""
        count = self._env.spec.num_envs
        number = max(self._stored, default=0) // count
        while self._missing > 0 and self._played < self._options.most_attempts:
            before = sum(one < number * count for one in self._stored)
            wanted = self._options.episodes - before
            worlds = count if self._options.only_successes else min(count, wanted)
            yield from self._rounds.play(number, worlds)
            number += 1

    def _take(self, attempts: Sequence[Attempt]) -> None:
        """Count what ended in a step, and store what is to be kept of it at once."""
        kept: dict[int, Episode] = {}
        for one in attempts:
            if one.episode is None:
                self._given_up += 1
                continue
            self._tallies[one.expert].add(one.episode)
            if one.number in self._stored or len(kept) >= self._missing:
                continue
            if self._options.only_successes and not one.episode.success[-1]:
                continue
            source = self._stream.source(self._names[one.expert], one.number)
            kept[one.number] = replace(one.episode, source=source)
        self._writer.add(*kept.values())
        self._stored |= kept.keys()

    def _progress(self) -> None:
        now = time.monotonic()
        if now - self._told < _PROGRESS_INTERVAL:
            return
        self._told = now
        steps = sum(sum(one.lengths) for one in self._tallies)
        successes = sum(one.successes for one in self._tallies)
        judged = f"   {successes} of {self._played} succeeded"
        print(
            f"{len(self._stored):>6} of {self._options.episodes} episodes"
            f"{judged if self._env.spec.judges_success else ''}"
            f"   {steps / (now - self._began):,.0f} steps/s   {now - self._began:.0f} s",
            flush=True,
        )

    def _summary(self) -> None:
        spec = self._env.spec
        width = max(8, *(len(one.name) for one in self._tallies))
        for one in self._tallies if self._played else []:
            print(one.line(width, control_dt=spec.control_dt, judged=spec.judges_success))
        if self._given_up:
            print(f"{'left out':<{width}} {self._given_up}: the engine gave their envs up")
        held = len(self._writer.sources)
        if held:
            steps = self._writer.num_steps
            print(f"{self._writer.folder} holds {held:,} episodes, {steps:,} steps")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hear Ctrl-C, also where a shell's `&` had it ignored, and count envs given up in silence.

    Mostly they are of episodes that nobody looks at.
    """
    logger = logging.getLogger("sim.env")
    level = logger.level
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        signal.signal(signal.SIGINT, handler)


def _place(options: CollectOptions) -> Path:
    """Folder of the data set."""
    if not options.out:
        raise ConfigError("out is empty; say where the data set goes, as out=datasets/peg")
    folder = Path(options.out)
    if is_dataset(folder) and not options.append:
        raise DatasetError(
            f"{folder} is a data set already; continue it with append=true, or choose a new folder"
        )
    if not is_dataset(folder):
        check_free(folder)
    return folder


@contextmanager
def _opened(folder: Path, spec: DatasetSpec) -> Iterator[DatasetWriter]:
    """The data set; a new one that nothing came into does not stay."""
    new = not is_dataset(folder)
    with DatasetWriter.create(folder, spec) if new else DatasetWriter.append_to(folder) as writer:
        writer.spec.check_same(spec, str(folder), "what is to be collected")
        try:
            yield writer
        finally:
            if new and not writer.sources:
                shutil.rmtree(folder)
