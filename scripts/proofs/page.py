"""The page of a proof: bars, a table per training, other conditions beside them, and the origin."""

import math
import statistics
from collections.abc import Iterable, Sequence

from proofs.plan import Column, Group, Proof
from proofs.record import Bar, GroupResult, ProofRecord, SeedResult, TrialResult
from robot_rl.training.reporting.console import format_clock, format_count, format_percent
from robot_rl.training.reporting.statistics import bootstrap_interval, iqm


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
        "Written by `scripts/proof.py` from the measurements beside it "
        f"([{proof.name}.json]({proof.name}.json)).",
        proof.about,
        _table(["bar", "wanted", "measured", "verdict"], map(_bar_row, bars)),
    ]
    for group in proof.groups:
        parts += _group_part(proof, group, record.groups[group.name])
    if proof.expert or len(proof.conditions) > 1:
        parts += ["## In comparison", _comparison(proof, record)]
    parts += ["## Conditions", _conditions(proof)]
    if picture is not None:
        parts += ["## Learning curves", f"![Learning curves over seeds]({picture})"]
    parts += ["## Origin", _origin(record)]
    return "\n\n".join(parts) + "\n"


def _bar_row(bar: Bar) -> list[str]:
    sign = "at least" if bar.at_least else "at most"
    return [
        bar.what,
        f"{sign} {_show(bar.limit, bar.unit)}",
        _show(bar.value, bar.unit),
        "**PASS**" if bar.passed else "**FAIL**",
    ]


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
        _table(head, rows),
        f"`{result.command}` and so on; configuration `{result.config_sha256[:16]}` "
        "(sha256 without seed, folder, logging and video). `learner` is its share of the wall "
        "time, `best at` the world-step of the checkpoint that flew.",
    ]


def _with_interval(column: Column, trial: TrialResult) -> str:
    text = _show(column.value(trial), column.unit)
    if column.title != "success":
        return text
    return f"{text} ({format_percent(trial.low)} to {format_percent(trial.high)})"


def _worst(column: Column, values: Sequence[float]) -> str:
    return _show((min if column.higher_is_better else max)(values), column.unit)


def _mean(column: Column, values: Sequence[float]) -> str:
    return _show(statistics.fmean(values), column.unit)


def _iqm(column: Column, values: Sequence[float]) -> str:
    middle = _show(float(iqm(values)), column.unit)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return middle
    low, high = (_show(float(end), column.unit) for end in bootstrap_interval(values))
    return f"{middle} ({low} to {high})"


def _comparison(proof: Proof, record: ProofRecord) -> str:
    """Conditions against everybody who flew them."""
    column = proof.columns[0]
    head = [f"{column.title}, mean (worst) over seeds", *(group.name for group in proof.groups)]
    head += ["controller with full knowledge"] * proof.expert
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
        if proof.expert:
            cells.append(_with_interval(column, record.expert[condition.name]))
        rows.append([condition.name, *cells])
    return _table(head, rows)


def _conditions(proof: Proof) -> str:
    lines = []
    for one in proof.conditions:
        changes = f" Set: `{' '.join(one.overrides)}`." if one.overrides else ""
        lines.append(f"- **{one.name}**: {one.about}{changes}")
    if proof.expert:
        lines.append(
            "- **controller with full knowledge**: `sim/multirotors/multirotor_expert.py` on the "
            "true state, with the mass, inertia, rotor lag and disturbances of its own world, "
            "which no policy sees."
        )
    return "\n".join(lines)


def _origin(record: ProofRecord) -> str:
    origin = record.origin
    commits = sorted({s.commit for group in record.groups.values() for s in group.seeds})
    packages = ", ".join(f"{name} {version}" for name, version in origin["packages"].items())
    rows = [
        ("command", f"`{record.command}`"),
        ("date", origin["date"]),
        ("trained at commit", ", ".join(f"`{commit}`" for commit in commits)),
        ("flown at commit", f"`{origin['git']}`"),
        ("processor", f"{origin['processor']}, {origin['processors']} processors; "
                      f"{origin['jobs']} trainings at once, torch on one thread each"),
        ("load average before", f"{origin['load_average']:.2f}"),
        ("python", origin["python"]),
        ("packages", packages),
    ]  # fmt: skip
    notes = []
    if record.overrides:
        notes.append(f"Changed in every training: `{' '.join(record.overrides)}`.")
    if any(commit.endswith("+") for commit in [*commits, origin["git"]]):
        notes.append("A commit with + had changes in the work tree.")
    return "\n\n".join([_table(["", ""], rows), *notes])


def _show(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "-"
    if unit == "%":
        return format_percent(value)
    if unit == "s":
        return f"{value:.0f} s"
    return f"{value:.3f} {unit}" if unit else f"{value:g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in the source too."""
    lines = [list(head), *map(list, rows)]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
