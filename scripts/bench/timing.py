"""Contenders that take turns, so that a busy machine slows all of them, and their table."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from robot_rl.training.runs.provenance import describe_device, package_versions

_SHOWN = ("torch", "warp-lang", "numpy")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Samples of one contender."""

    name: str
    samples: list[float]
    """One per round."""
    ratio: float
    """Median over the rounds of its sample divided by the reference's of the same round."""
    note: str = ""
    """Shown behind it."""

    @property
    def median(self) -> float:
        """Middle of the samples."""
        return statistics.median(self.samples)


@dataclass(frozen=True, kw_only=True)
class Section:
    """Contenders in one unit."""

    title: str
    unit: str
    rows: list[Measurement]
    """The first one is the reference of the ratios."""

    def median(self, name: str) -> float:
        """Median of a contender."""
        return next(row.median for row in self.rows if row.name == name)

    def lines(self) -> list[str]:
        """An aligned table."""
        head = ["", self.unit, "lowest", "highest", "ratio"]
        cells = [
            [r.name, digits(r.median), digits(min(r.samples)), digits(max(r.samples)),
             f"{r.ratio:.2f}"]
            for r in self.rows
        ]  # fmt: skip
        width = max(len(row[0]) for row in cells)
        notes = ["", *(row.note for row in self.rows)]
        body = [
            f"  {row[0]:<{width}}" + "".join(f"{c:>{max(10, len(h) + 2)}}" for c, h in pairs)
            for row, pairs in ((row, zip(row[1:], head[1:], strict=True)) for row in [head, *cells])
        ]
        return [self.title, *(f"{b}  {n}".rstrip() for b, n in zip(body, notes, strict=True))]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        rows = [{**asdict(row), "median": row.median} for row in self.rows]
        return {"title": self.title, "unit": self.unit, "rows": rows}


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Ratio of two contenders, and its bar."""

    ours: str
    """Who."""
    other: str
    """Compared with whom."""
    least: float | None
    """Least ratio of their speeds; None asks for nothing."""

    def verdict(self, section: Section) -> str:
        """One line; the ratio is the median over the rounds."""
        rows = {row.name: row for row in section.rows}
        pairs = zip(rows[self.ours].samples, rows[self.other].samples, strict=True)
        ratio = statistics.median(one / two for one, two in pairs)
        said = f"{self.ours} / {self.other}: {ratio:.2f}"
        if self.least is None:
            return said
        return f"{said}, bar {self.least:g}: {'reached' if ratio >= self.least else 'missed'}"


def interleave(
    title: str,
    unit: str,
    contenders: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    notes: Mapping[str, Callable[[float], str]] | None = None,
) -> Section:
    """Measure all contenders in turn, after one turn each that does not count.

    Args:
        title: Of the section.
        unit: Of what the contenders return.
        contenders: Each measures once.
        rounds: Turns of each.
        notes: By contender, from its median to what is said about it.
    """
    for measure in contenders.values():
        measure()
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            samples[name].append(measure())
    reference = next(iter(samples.values()))
    rows = [
        Measurement(
            name=name,
            samples=values,
            ratio=statistics.median(a / b for a, b in zip(values, reference, strict=True)),
            note=notes[name](statistics.median(values)) if notes and name in notes else "",
        )
        for name, values in samples.items()
    ]
    return Section(title=title, unit=unit, rows=rows)


def describe_machine(threads: int) -> dict[str, Any]:
    """Conditions that the figures depend on."""
    versions = package_versions()
    return {
        "processor": describe_device("cpu"),
        "processors": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "packages": {name: versions[name] for name in _SHOWN if name in versions},
        "load_average": os.getloadavg()[0],
    }


def machine_lines(machine: Mapping[str, Any]) -> Sequence[str]:
    """The machine on one line, and a warning if it has other things to do."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}"
    load = machine["load_average"]
    lines = [
        f"{machine['processor']}, {machine['processors']} processors, {threads}; python "
        f"{machine['python']}, {packages}; load average {load:.2f}"
    ]
    if load > 0.25 * (machine["processors"] or 1):
        lines.append("warning: the machine is busy; trust the ratios, not the absolute figures")
    return lines


def digits(value: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
