"""Progress on the terminal: one aligned line per interval, and a live bar where there is a screen.

A notebook has the bar too. Where standard output is not a terminal (a pipe, a file, a batch system)
there is no bar and no control character, only lines.
"""

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

_REPEAT_HEADER = 25
"""Lines after which the header is repeated, so that it is never far above."""

_LOSSES = {
    "critic": "train/critic_loss",
    "actor": "train/actor_loss",
    "temp": "train/temperature",
}
"""Metrics in the last columns, by title; a narrow terminal shows the first ones."""

_COLUMNS = {
    "steps": 7,
    "time": 7,
    "steps/s": 7,
    "collect/learn": 13,
    "ETA": 7,
    "return": 8,
    "success": 7,
}
"""Titles and widths in characters."""

_PHASES = {0.0: "offline", 1.0: "warm-up", 2.0: "online"}
"""Words for `train/phase`, behind the last column."""

_LOSS_WIDTH = 8
_EVALUATION_INDENT = 19
_BY_CONDITION = ("/success", "/return")
"""Ends of names of what was found under a change."""
_MOST_CHANGES = 4
"""Changes in a line; all are in the files."""


class _Bar(Protocol):
    def move(self, step: int, note: str) -> None: ...

    def stop(self) -> None: ...


class _TerminalBar:
    """Below the lines; gone when it stops."""

    def __init__(self, console: RichConsole, total: int, step: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=40),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            refresh_per_second=2,  # little traffic over ssh
            transient=True,
        )
        self._task = self._bar.add_task("training", total=total, completed=step, note="")
        self._bar.start()

    def move(self, step: int, note: str) -> None:
        self._bar.update(self._task, completed=step, note=note)

    def stop(self) -> None:
        self._bar.stop()


class _NotebookBar:
    """Above the lines, in HTML; it stays, as far as the training came."""

    def __init__(self, total: int, step: int) -> None:
        from IPython.display import display  # a notebook has it

        self._total = total
        self._handle: Any = display(self._drawn(step, ""), display_id=True)

    def move(self, step: int, note: str) -> None:
        self._handle.update(self._drawn(step, note))

    def stop(self) -> None:
        """Leave it as it is."""

    def _drawn(self, step: int, note: str) -> Any:
        from IPython.display import HTML

        share = step / max(1, self._total)
        bar = f'<progress value="{share:.4f}" style="width: 20em"></progress>'
        return HTML(f"training {bar} {format_percent(min(1.0, share))} {note}")


class Console:
    """Shows records as they are logged. Use it in a `with`, so that Ctrl-C leaves a clean screen.

    Reads from a record, where present: `time/steps_per_second`, `time/collect_fraction`,
    `time/learn_fraction` (of wall time, in [0, 1]), `rollout/return`, `rollout/success` (a rate in
    [0, 1]) and the losses. A record with `eval/...` in it gets a line for the evaluation.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        """Prepare for a stream, standard output by default; nothing is shown before `start`."""
        self._quiet = quiet
        self._stream = sys.stdout if stream is None else stream
        self._rich = RichConsole(file=self._stream) if self._stream.isatty() else None
        room = (self._rich.width - sum(_COLUMNS.values()) - 6) if self._rich else 1000
        self._losses = dict(list(_LOSSES.items())[: max(0, room // (_LOSS_WIDTH + 1))])
        self._widths = [*_COLUMNS.values(), *(_LOSS_WIDTH for _ in self._losses)]
        self._bar: _Bar | None = None
        self._in_notebook = stream is None and RichConsole(file=sys.stdout).is_jupyter
        self._lines = 0
        self._total_steps = 0
        self._origin = (0, 0.0)
        self._last = (0, 0.0)

    def start(
        self, total_steps: int, start_step: int, title: str, *, start_seconds: float = 0.0
    ) -> None:
        """Show the title and open the bar.

        Args:
            start_step: Steps already taken; more than 0 where a run is resumed.
            start_seconds: Wall time already spent [s].
        """
        self._total_steps = total_steps
        self._origin = self._last = (start_step, start_seconds)
        self._lines = 0
        self.message(title, style="bold")
        if start_step:
            taken, planned = format_count(start_step), format_count(total_steps)
            self.message(f"goes on from step {taken} of {planned}")
        if not self._quiet:
            self._guarded(lambda: self._open_bar(start_step))

    def _open_bar(self, step: int) -> None:
        if self._rich is not None:
            self._bar = _TerminalBar(self._rich, self._total_steps, step)
        elif self._in_notebook:
            self._bar = _NotebookBar(self._total_steps, step)

    def interval(self, record: Mapping[str, float]) -> None:
        """Show one record as a line and move the bar."""
        if self._lines % _REPEAT_HEADER == 0:
            self.message(self._row([*_COLUMNS, *self._losses]), style="dim")
        self._lines += 1
        step, seconds = int(record["step"]), record["seconds"]
        rate = record.get("time/steps_per_second", _rate(self._last, (step, seconds)))
        left = format_clock(self._seconds_left(step, seconds))
        self._last = (step, seconds)
        cells = [
            format_count(step),
            format_clock(seconds),
            format_count(rate),
            _split(record),
            left,
            format_number(record.get("rollout/return")),
            format_percent(record.get("rollout/success")),
            *(format_number(record.get(name)) for name in self._losses.values()),
        ]
        phase = _PHASES.get(record.get("train/phase", math.nan), "")
        self.message(f"{self._row(cells)}  {phase}".rstrip())
        self._show_evaluation(record)
        if self._bar is not None:
            bar = self._bar
            self._guarded(lambda: bar.move(step, f"{left} left"))

    def evaluation(self, record: Mapping[str, float]) -> None:
        """Show an evaluation that was made beside, after the line of its step."""
        self._show_evaluation(record, f"step {format_count(record['step'])}: ")

    def _show_evaluation(self, record: Mapping[str, float], of: str = "") -> None:
        """Show what an evaluation found, and on another line by condition, the worst first."""
        scores = {n.partition("/")[2]: v for n, v in record.items() if n.startswith("eval/")}
        # Bounds of intervals are for the files: a line has room for the figures.
        shown = {n: v for n, v in scores.items() if not n.endswith(("_low", "_high"))}
        by_condition = {n: v for n, v in shown.items() if n.endswith(_BY_CONDITION)}
        plain = [  # without what no episode measured
            f"{n} {_score(n, v)}"
            for n, v in shown.items() if n not in by_condition and not math.isnan(v)
        ]  # fmt: skip
        ordered = sorted(by_condition.items(), key=lambda one: one[1])
        changed = [f"{n.rpartition('/')[0]} {_score(n, v)}" for n, v in ordered[:_MOST_CHANGES]]
        if len(ordered) > _MOST_CHANGES:
            changed.append(f"{len(ordered) - _MOST_CHANGES} more")
        for title, before, texts in (("evaluation:", of, plain), ("changed:", "", changed)):
            if texts:
                text = before + ", ".join(texts)
                self.message(f"{title:>{_EVALUATION_INDENT}} {text}", style="bold")

    def message(self, text: str, *, style: str = "") -> None:
        """Show text, above the bar where there is one. `style` is rich's, for terminals only."""
        if self._quiet:
            return
        rich = self._rich
        if rich is None:
            self._guarded(lambda: print(text, file=self._stream, flush=True))
        else:
            self._guarded(lambda: rich.print(Text(text, style=style), soft_wrap=True))

    def finish(self, headline: str, summary: Mapping[str, str] | None = None) -> None:
        """Close the bar and show how it ended and where to look."""
        self.close()
        summary = summary or {}
        width = max(map(len, summary), default=0)
        self.message("")
        self.message(headline, style="bold")
        for word, text in summary.items():
            self.message(f"  {word:<{width}}  {text}")

    def log_handler(self) -> logging.Handler:
        """Handler that shows log records as messages, so that they do not tear the bar."""
        handler = _MessageHandler(self)
        handler.setLevel(logging.WARNING)
        return handler

    def close(self) -> None:
        """Close the bar; may be called at any time and again."""
        bar, self._bar = self._bar, None
        if bar is not None:
            self._guarded(bar.stop)

    def _guarded(self, show: Callable[[], None]) -> None:
        """Show something; without a reader or a terminal, training goes on in silence."""
        try:
            show()
        except OSError:  # BrokenPipeError of `... | head`, EIO of a terminal that was closed
            self._quiet = True

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _seconds_left(self, step: int, seconds: float) -> float:
        mean_rate = _rate(self._origin, (step, seconds))  # of this session: it jumps less
        return max(0, self._total_steps - step) / mean_rate if mean_rate > 0 else math.nan

    def _row(self, cells: Sequence[str]) -> str:
        return " ".join(f"{c:>{w}}" for c, w in zip(cells, self._widths, strict=True))


class _MessageHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.message(f"{record.levelname.lower()}: {self.format(record)}", style="yellow")


def format_count(number: float) -> str:
    """A count as people say it: 950, 12.5k, 1.02M."""
    if not math.isfinite(number):
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.9995 * size:
            scaled = number / size
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    return f"{number:.0f}"


def format_clock(seconds: float) -> str:
    """A duration [s] as hours:minutes:seconds, the hours only where there are any."""
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def format_number(number: float | None) -> str:
    """Three significant digits in at most eight characters; `-` for None."""
    if number is None:
        return "-"
    if not math.isfinite(number):
        return str(number)
    if number == 0:
        return "0"
    if not 1e-3 <= abs(number) < 1e5:
        return f"{number:.1e}"
    digits = max(0, 3 - len(str(int(abs(number)))))
    return f"{number:.{digits if abs(number) >= 1 else 4}f}"


def format_percent(rate: float | None) -> str:
    """A rate in [0, 1] as a percentage; `-` for None and NaN."""
    return "-" if rate is None or not math.isfinite(rate) else f"{100 * rate:.1f}%"


def aligned_rows(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Lines of a table, the first `left` columns to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines: list[str] = []
    for row in [titles, *rows]:
        cells = zip(row, widths, strict=True)
        aligned = [f"{c:<{w}}" if i < left else f"{c:>{w}}" for i, (c, w) in enumerate(cells)]
        lines.append("  ".join(aligned).rstrip())
    return lines


def _score(name: str, value: float) -> str:
    percent = name.startswith("success") or name.endswith(("/success", "worst_success"))
    return format_percent(value) if percent else format_number(value)


def _split(record: Mapping[str, float]) -> str:
    parts = [record.get(f"time/{part}_fraction") for part in ("collect", "learn")]
    return " / ".join("-" if part is None else f"{100 * part:.0f}%" for part in parts)


def _rate(before: tuple[int, float], now: tuple[int, float]) -> float:
    seconds = now[1] - before[1]
    return (now[0] - before[0]) / seconds if seconds > 0 else math.nan
