"""The page of a proof: bars, a table per training, other conditions beside them, and the origin."""

import math
import statistics
from collections.abc import Sequence

from robot_rl.training.reporting.console import format_clock, format_count, format_percent
from robot_rl.training.reporting.statistics import bootstrap_interval, iqm
from scripts.proofs.pages.record import GroupResult, ProofRecord, SeedResult, TrialResult
from scripts.proofs.pages.tables import bars_table, origin_table, present, show, table
from scripts.proofs.proving.plan import Column, Group, Proof


def write_page(proof: Proof, record: ProofRecord, *, picture: str | None) -> str:
    """Markdown of a proof.

    Args:
        proof: What was asked.
        record: What was measured.
        picture: File of the learning curves beside the page; None leaves it out.
    """
    bars = proof.bars(record)
    verdict = "PASS" if all(bar.passed for bar in bars) else "FAIL"
    parts = [
        f"# {proof.title}: {verdict}",
        "Written by `python -m scripts.proofs` from the measurements beside it "
        f"([{proof.name}.json]({proof.name}.json)).",
        proof.about,
        bars_table(bars),
    ]
    if proof.findings is not None:
        parts.append(proof.findings(record))
    for group in proof.groups:
        parts += _group_part(proof, group, record.groups[group.name])
    if proof.controller or len(proof.conditions) > 1:
        parts += ["## In comparison", _comparison(proof, record)]
    parts += ["## Conditions", _conditions(proof)]
    if picture is not None and proof.curve:
        parts += ["## Learning curves", f"![Learning curves over seeds]({picture})"]
    elif picture is not None:
        parts += ["## Seed by seed", f"![Every seed, IQM and 95 % interval]({picture})"]
    parts += ["## Origin", _origin(record)]
    return "\n\n".join(parts) + "\n"


def _group_part(proof: Proof, group: Group, result: GroupResult) -> list[str]:
    condition = group.trials[0]

    def trial(seed: SeedResult) -> TrialResult:
        return seed.trials[condition]

    columns = proof.columns
    head = ["seed", *(column.title for column in columns), "lost early", "training",
            "world-steps/s", "learner", "best at"]  # fmt: skip
    rows = [
        [
            str(seed.seed),
            *(_with_interval(column, trial(seed)) for column in columns),
            format_percent(trial(seed).ended),
            format_clock(seed.training_seconds),
            format_count(seed.steps_per_second),
            format_percent(seed.learner_share),
            format_count(seed.checkpoint_step),
        ]
        for seed in result.seeds
    ]
    rest = [""] * (len(head) - 1 - len(columns))
    for word, over in (("worst", _worst), ("mean", _mean), ("IQM (95 %)", _iqm)):
        cells = [over(column, [column.value(trial(s)) for s in result.seeds]) for column in columns]
        rows.append([f"**{word}**", *cells, *rest])
    return [
        f"## Trained: {group.name}",
        f"{group.about} Flown on: {condition}, {trial(result.seeds[0]).episodes} flights a seed.",
        table(head, rows),
        f"`{present(result.command)}` and so on; configuration `{result.config_sha256[:16]}` "
        "(sha256 without seed, folder, logging and video). `learner` is its share of the wall "
        "time, `best at` the world-step of the checkpoint that flew.",
    ]


def _with_interval(column: Column, trial: TrialResult) -> str:
    text = show(column.value(trial), column.unit)
    if column.title != "success":
        return text
    return f"{text} ({format_percent(trial.low)} to {format_percent(trial.high)})"


def _worst(column: Column, values: Sequence[float]) -> str:
    return show((min if column.higher_is_better else max)(values), column.unit)


def _mean(column: Column, values: Sequence[float]) -> str:
    return show(statistics.fmean(values), column.unit)


def _iqm(column: Column, values: Sequence[float]) -> str:
    middle = show(float(iqm(values)), column.unit)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return middle
    low, high = (show(float(end), column.unit) for end in bootstrap_interval(values))
    return f"{middle} ({low} to {high})"


def _comparison(proof: Proof, record: ProofRecord) -> str:
    """Conditions against everybody who flew them."""
    column = proof.columns[0]
    head = [f"{column.title}, mean (worst) over seeds", *(group.name for group in proof.groups)]
    head += [proof.controller.name] if proof.controller else []
    rows = []
    for condition in proof.conditions:
        cells = []
        for group in proof.groups:
            seeds = record.groups[group.name].seeds
            values = [
                column.value(one.trials[condition.name])
                for one in seeds
                if condition.name in one.trials
            ]
            shown = f"{_mean(column, values)} ({_worst(column, values)})" if values else ""
            cells.append(shown)
        if proof.controller:
            cells.append(_with_interval(column, record.expert[condition.name]))
        rows.append([condition.name, *cells])
    return table(head, rows)


def _conditions(proof: Proof) -> str:
    lines = []
    for one in proof.conditions:
        changes = f" Set: `{' '.join(one.overrides)}`." if one.overrides else ""
        lines.append(f"- **{one.name}**: {one.about}{changes}")
    if proof.controller:
        lines.append(f"- **{proof.controller.name}**: {proof.controller.about}")
    return "\n".join(lines)


def _origin(record: ProofRecord) -> str:
    commits = sorted({s.commit for group in record.groups.values() for s in group.seeds})
    flown = [("flown at commit", f"`{record.origin['git']}`")]
    return origin_table(record.origin, record.command, commits, record.overrides, flown)
