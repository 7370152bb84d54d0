"""The jobs of a sweep, and the run that came of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.compose import compose, expand
from configs.schema import RunConfig
from robot_rl.cli.run_lookup import asked_hash, newest_runs
from robot_rl.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a sweep."""

    number: int
    """Counted from 1."""
    overrides: tuple[str, ...]
    """What `scripts/train.py` is told."""
    name: str
    """What it is told and others are not, such as `seed=1 learner.n_step=3`."""
    config: RunConfig
    """The run that is asked for."""
    asked: str
    """Its `asked_hash`."""


def plan(overrides: Sequence[str]) -> list[Job]:
    """One job for every combination of the values of a sweep; all of them are composed.

    Raises:
        ConfigError: A job has a mistake, or two jobs ask for the same run.
    """
    rows = expand(overrides)
    varying = [len(set(column)) > 1 for column in zip(*rows, strict=True)]
    jobs: list[Job] = []
    seen: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        words = [text for text, varies in zip(row, varying, strict=True) if varies] or row
        config = compose(row).config
        job = Job(
            number=number,
            overrides=tuple(row),
            name=" ".join(words) or "defaults",
            config=config,
            asked=asked_hash(config),
        )
        if job.asked in seen:
            raise ConfigError(
                f"the sweep asks for the same run twice: {seen[job.asked]}, and {job.name}; "
                "expected every combination once"
            )
        seen[job.asked] = job.name
        jobs.append(job)
    return jobs


def runs_of(jobs: Sequence[Job]) -> dict[int, Path]:
    """The newest run that came of each job so far, by its number; jobs without one are absent."""
    newest = {folder: newest_runs(folder) for folder in {job.config.runs for job in jobs}}
    found = ((job.number, newest[job.config.runs].get(job.asked)) for job in jobs)
    return {number: run for number, run in found if run is not None}
