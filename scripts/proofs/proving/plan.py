"""Parts of a proof: trainings, conditions that their policies are flown under, bars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.core.errors import ConfigError
from scripts.proofs.pages.record import ProofRecord, TrialResult
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.flights import Condition, Controller, fly_policy
from scripts.proofs.proving.stages import Preparation
from scripts.proofs.proving.training import TrainingJob


@dataclass(frozen=True, kw_only=True)
class Group:
    """Several seeds of the same training."""

    name: str
    about: str
    """For the page, one sentence."""
    overrides: tuple[str, ...]
    """Overrides of the training; `{runs}` stands for the folder of all runs."""
    seeds: int
    """Number of them by default."""
    trials: tuple[str, ...]
    """Conditions that its policies fly; the first is the one of its table."""
    script: str = "train"
    """Trainer: `train`, or one of `OWN_TRAINERS`."""
    bears_bars: bool = False
    """Its number of seeds is what a person chooses; other groups keep at most theirs."""
    teacher: str = ""
    """Group, an earlier one, whose run of the same seed teaches, where it has fewer seeds its last
    one; empty for none."""
    teacher_field: str = "learner.teacher"
    """Field of the configuration that names the teacher's run; `training.start.run` begins with
    it."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A value of a trial in the tables."""

    title: str
    value: Callable[[TrialResult], float]
    unit: str = ""
    higher_is_better: bool = False
    """Says which seed is the worst."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A question, how it is answered, and the answer that is asked for."""

    name: str
    """Of the command and the files."""
    title: str
    about: str
    """Claim, for the page."""
    groups: tuple[Group, ...]
    conditions: tuple[Condition, ...]
    columns: tuple[Column, ...]
    """Values in the tables; the first one is compared over conditions."""
    curve: str
    """Metric of the learning curves; empty draws the outcome of every seed instead."""
    bars: Callable[[ProofRecord], list[Bar]]
    controller: Controller | None = None
    """Flown too, under every condition; they are made for recovery, not for tracking."""
    fly: Callable[..., tuple[TrialResult, int]] = fly_policy
    """Outcome of a run under a condition, and the step of the policy that flew; arguments as of
    `fly_policy`."""
    more_curves: tuple[str, ...] = ()
    """Metrics whose evaluations are kept beside those of the curve, to be judged."""
    findings: Callable[[ProofRecord], str] | None = None
    """Part of the page below the bars, in Markdown."""
    prepare: Callable[[Preparation], None] | None = None
    """Makes what its trainings begin with, in the folder of all runs; does nothing once it is
    there."""
    by_name_only: bool = False
    """Not part of `all`."""

    def condition(self, name: str) -> Condition:
        """A condition by its name."""
        return next(one for one in self.conditions if one.name == name)

    def jobs(
        self, *, seeds: int, overrides: Sequence[str], runs: Path
    ) -> dict[str, list[TrainingJob]]:
        """Trainings by group.

        Args:
            seeds: Number of seeds of the groups that bear the bars; 0 takes the proof's own.
            overrides: Changes to every training.
            runs: Folder of all runs.

        Raises:
            ConfigError: An override is wrong, or would change what the proof chooses itself.
        """
        refuse_chosen(overrides, "a proof")
        jobs: dict[str, list[TrainingJob]] = {}
        teachers = {group.teacher for group in self.groups}
        for group in self.groups:
            count = (
                group.seeds if not seeds else seeds if group.bears_bars else min(seeds, group.seeds)
            )
            jobs[group.name] = []
            own = [text.replace("{runs}", str(runs)) for text in group.overrides]
            for seed in range(count):
                known = jobs.get(group.teacher, [])
                after = known[min(seed, len(known) - 1)] if known else None
                taught = () if after is None else (f"{group.teacher_field}={after.runs}",)
                alone = runs / f"{self.name}_{group.name}s" / f"seed_{seed}"
                jobs[group.name].append(
                    TrainingJob(
                        label=f"{self.name}, {group.name}, seed {seed}",
                        overrides=(*own, *taught, *overrides),
                        seed=seed,
                        script=group.script,
                        # The newest run of a folder teaches: a teacher has one of its own.
                        runs=alone if group.name in teachers else runs,
                        after=after,
                    )
                )
            _ = jobs[group.name][0].config  # a mistake is told before anything is trained
        return jobs


def refuse_chosen(overrides: Sequence[str], what: str) -> None:
    """Refuse overrides of what a proof or a race chooses itself.

    Raises:
        ConfigError: There is one; the sentence names it and `what`.
    """
    keys = {text.partition("=")[0] for text in overrides}
    if chosen := keys & {"seed", "task", "runs", "video", "experiment", "env.id"}:
        raise ConfigError(
            f"{' and '.join(sorted(chosen))} cannot be changed in {what}, which chooses that "
            "itself; seeds=<number> says how many seeds are trained"
        )
