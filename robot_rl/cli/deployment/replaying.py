"""A recording beside its replay: checked, compared, told, drawn."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.recording.bag import Bag, RecordingError
from hardware.recording.replay import (
    TOLERANCE,
    Comparison,
    Replay,
    ReplayedStep,
    action_names,
    observation_parts,
)
from policies.bundle import bundle_digest, load_bundle
from policies.runner import PolicySpec
from robot_rl.core.errors import ConfigError
from robot_rl.training.storage.durable import storage_errors


@dataclass(kw_only=True)
class ReplayOptions:
    """Options of `robot-rl replay`."""

    bag: str = ""
    """Folder of the recording."""
    bundle: str = ""
    """Folder of the policy."""
    force: bool = False
    """Run another bundle than the recorded one, too."""
    out: str = ""
    """Folder for a table and a plot; none if empty."""

    def __post_init__(self) -> None:
        if not self.bag:
            raise ConfigError("which recording? bag=<folder that robot-rl record wrote>")
        if not self.bundle:
            raise ConfigError("which policy? bundle=runs/<run>/bundle")


def replay(options: ReplayOptions) -> bool:
    """Replay, print what came of it, and return whether everything was the same.

    Raises:
        RobotRLError: The recording or the bundle cannot be read, or do not belong together.
    """
    runner = load_bundle(options.bundle, ramp=False)
    with Bag(Path(options.bag)) as bag:
        if not options.force:
            check_bundle(bag, options.bundle, runner.spec)
        tape = Replay(bag, runner)
        comparison = Comparison(runner.spec)
        table = _Table(Path(options.out), runner.spec) if options.out else None
        for step in tape.run():
            comparison.add(step)
            if table is not None:
                table.add(step)
    for line in report(tape, comparison):
        print(line)
    if table is not None:
        for path in table.finish():
            print(f"wrote {path}")
    return comparison.same


def check_bundle(bag: Bag, bundle: str, spec: PolicySpec) -> None:
    """Refuse a recording of another robot or policy.

    Raises:
        RecordingError: It is one.
    """
    robot, digest = bag.about.get("robot"), bag.about.get("bundle_digest")
    if robot is None or digest is None:
        raise RecordingError(
            f"{bag.folder} does not say of which policy it is; robot-rl record writes that. "
            "force=true replays it nevertheless"
        )
    if robot != spec.robot.name:
        raise RecordingError(
            f"{bag.folder} is a recording of the robot '{robot}', but {bundle} is for "
            f"'{spec.robot.name}'"
        )
    if digest != (here := bundle_digest(bundle)):
        raise RecordingError(
            f"{bag.folder} is a recording of another policy: its bundle has the SHA-256 "
            f"{digest[:12]}, {bundle} has {here[:12]}. force=true replays it nevertheless"
        )


def report(tape: Replay, comparison: Comparison) -> Iterator[str]:
    """Lines for a terminal."""
    skipped = len(tape.steps) - comparison.steps - comparison.filling
    many = "" if comparison.episodes == 1 else "s"
    yield (
        f"{len(tape.steps)} steps, {comparison.episodes} episode{many}; compared {comparison.steps}"
    )
    for count, why in (
        (comparison.waiting, "began an episode that did not go on: the policy was not in charge"),
        (tape.missing, "used a message that was not recorded"),
        (skipped - tape.missing, "follow a gap, and a recurrent policy needs an episode's start"),
        (comparison.filling, "only fill histories again, after a gap or a late start"),
        (comparison.without_command, "were compared without their command: it was not recorded"),
    ):
        if count:
            yield f"  {count} steps {why}"
    if not comparison.steps:
        yield "NOTHING could be compared: start the recorder before the policy"
        return
    yield from _largest(comparison.largest)
    if comparison.same:
        yield f"the same: no difference above {TOLERANCE:g}"
    elif comparison.first is not None:
        yield (
            f"DIFFERENT in {comparison.differing} steps, first in step "
            f"{comparison.first.recorded.number} (allowed: {TOLERANCE:g})"
        )


def _largest(largest: Mapping[str, float]) -> Iterator[str]:
    """One line for each kind of number, with every term or joint that differs."""
    kinds: dict[str, dict[str, float]] = {}
    for name, value in largest.items():
        kind, _, what = name.partition("/")
        kinds.setdefault(kind, {})[what] = value
    for kind, values in kinds.items():
        apart = [f"{what} {value:.2g}" for what, value in values.items() if value > 0]
        told = ", ".join(apart) or f"0 in all {len(values)}"
        yield f"largest difference of {kind}: {told}"


class _Table:
    """Every replayed step as a row of steps.csv, and all of them as a picture."""

    def __init__(self, folder: Path, spec: PolicySpec) -> None:
        with storage_errors("write the replay", folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._spec = folder, spec
        self._steps: list[ReplayedStep] = []

    def add(self, step: ReplayedStep) -> None:
        self._steps.append(step)

    def finish(self) -> list[Path]:
        """Write both, no picture of no steps; returns what was written."""
        rows, picture = self._folder / "steps.csv", self._folder / "replay.png"
        with storage_errors("write the replay", self._folder):
            with rows.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(self._header())
                writer.writerows(self._row(step) for step in self._steps)
            if not self._steps:
                return [rows]
            self._draw(picture)
        return [rows, picture]

    def _header(self) -> list[str]:
        terms = [
            f"observation/{name}[{i}]"
            for name, part in observation_parts(self._spec)
            for i in range(part.stop - part.start)
        ]
        names = action_names(self._spec)
        actions = [
            names[i] if i < len(names) else str(i) for i in range(self._spec.action_map.size)
        ]
        columns = [*terms, *(f"action/{name}" for name in actions)]
        return ["time", "step", "starts", "compared", *columns, *(f"replayed/{c}" for c in columns)]

    def _row(self, step: ReplayedStep) -> list[float]:
        then, begin = step.recorded, self._steps[0].stamp
        return [
            (step.stamp - begin) * 1e-9, then.number, int(then.starts), int(step.compared),
            *then.observation, *then.action, *step.observation, *step.action,
        ]  # fmt: skip

    def _draw(self, path: Path) -> None:
        """A panel for each term's newest frame, and one for the action."""
        from matplotlib.figure import Figure

        parts = [
            (name, slice(part.stop - width, part.stop))
            for (name, part), width in zip(
                observation_parts(self._spec), self._spec.widths, strict=True
            )
        ]
        times = [(step.stamp - self._steps[0].stamp) * 1e-9 for step in self._steps]
        figure = Figure(figsize=(10, 1.6 * (len(parts) + 1)), layout="constrained")
        axes = np.ravel(figure.subplots(len(parts) + 1, 1, sharex=True))
        for axis, (name, part) in zip(axes, [*parts, ("action", slice(None))], strict=True):
            what = "action" if name == "action" and part == slice(None) else "observation"
            then = np.array([getattr(step.recorded, what)[part] for step in self._steps])
            now = np.array([getattr(step, what)[part] for step in self._steps])
            lines = axis.plot(times, then, linewidth=0.8)
            for line, values in zip(lines, now.T, strict=True):
                axis.plot(times, values, ".", markersize=2, color=line.get_color())
            axis.set_ylabel(name, rotation=0, ha="right", fontsize=7)
        axes[-1].set_xlabel("time [s]; lines: recorded, dots: replayed")
        figure.savefig(path, dpi=110)
