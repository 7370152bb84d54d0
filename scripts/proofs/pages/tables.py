"""Parts that the pages of proofs and races share: tables of bars, numbers, origin."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robot_rl.training.reporting.console import format_percent
from scripts.proofs.pages.results import Bar


def bars_table(bars: Sequence[Bar]) -> str:
    """Bars, and whether they hold."""
    return table(["bar", "wanted", "measured", "verdict"], map(_bar_row, bars))


def _bar_row(bar: Bar) -> list[str]:
    sign = "at least" if bar.at_least else "at most"
    return [
        bar.what,
        f"{sign} {show(bar.limit, bar.unit)}",
        show(bar.value, bar.unit),
        "**PASS**" if bar.passed else "**FAIL**",
    ]


_RENAMED = {
    "python scripts/proof.py": "python -m scripts.proofs",
    "python scripts/race.py": "python -m scripts.races",
    "python scripts/train_sb3.py": "python -m scripts.baselines.train_sb3",
    "python scripts/train_ppo.py": "python -m scripts.baselines.train_ppo",
}
"""Commands of results that are older than a new name -> what a reader types now."""


def present(command: str) -> str:
    """A recorded command as a reader types it now."""
    for old, new in _RENAMED.items():
        command = command.replace(old, new)
    return command


def origin_table(
    origin: Mapping[str, Any],
    command: str,
    commits: Sequence[str],
    overrides: Sequence[str],
    others: Sequence[tuple[str, str]] = (),
) -> str:
    """Origin of the numbers of a page.

    Args:
        origin: From `machine`, with `load_average` and `jobs`.
        command: What a person typed.
        commits: That the trainings ran with.
        overrides: Changes to every training.
        others: More rows, after the commits.
    """
    packages = ", ".join(f"{name} {version}" for name, version in origin["packages"].items())
    command = present(command)
    rows = [
        ("command", f"`{command}`"),
        ("date", origin["date"]),
        ("trained at commit", ", ".join(f"`{commit}`" for commit in commits)),
        *others,
        ("processor", f"{origin['processor']}, {origin['processors']} processors; "
                      f"{origin['jobs']} trainings at once, torch on one thread each"),
        ("load average before", f"{origin['load_average']:.2f}"),
        ("python", origin["python"]),
        ("packages", packages),
    ]  # fmt: skip
    notes = []
    if overrides:
        notes.append(f"Changed in every training: `{' '.join(overrides)}`.")
    if any(commit.endswith("+") for commit in [*commits, origin["git"]]):
        notes.append("A commit with + had changes in the work tree.")
    return "\n\n".join([table(["", ""], rows), *notes])


def show(value: float, unit: str) -> str:
    """A value with its unit; a dash where there is none."""
    if not math.isfinite(value):
        return "-"
    if unit == "%":
        return format_percent(value)
    if unit == "s":
        return f"{value:.0f} s"
    return f"{value:.3f} {unit}" if unit else f"{value:g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in the source too."""
    lines = [list(head), *map(list, rows)]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
