"""The page, the picture and the JSON of the race beside UniLab."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure

from robot_rl.training.reporting.console import format_count, format_percent
from robot_rl.training.reporting.curves import COLOURS, dress_axis, save_figure
from robot_rl.training.storage.durable import replace_file, storage_errors
from scripts.proofs.pages.results import write_json
from scripts.proofs.pages.tables import table
from scripts.races.unilab_curves import EntrantCurve, Point, first_reached

NAME = "unilab"
GOALS = (0.20, 0.15, 0.12)
"""Errors whose first appearance is told [m/s]."""
_TITLES = {
    "ours": "ours, SAC",
    "sac_cpu": "UniLab, SAC in sizes for a processor",
    "ppo": "UniLab, PPO as it is",
    "flashsac": "UniLab, FlashSAC as it is",
}
_SIDES = {
    "environment steps": ("steps", 1.0),
    "wall time of learning [min]": ("seconds", 60.0),
    "processor time of learning [min]": ("cpu_seconds", 60.0),
}


def write_report(curves: Mapping[str, EntrantCurve], folder: Path) -> None:
    """Write the three files.

    Raises:
        StorageError: The disk refused.
    """
    curves = {name: curves[name] for name in _TITLES if name in curves}
    content = {name: asdict(curve) for name, curve in curves.items()}
    write_json(folder / f"{NAME}.json", content, what="the results")
    _draw(curves, folder / f"{NAME}.png")
    page = folder / f"{NAME}.md"
    with storage_errors("write the page", page):
        replace_file(page, write_page(curves).encode())
    print(f"written: {page}")


def write_page(curves: Mapping[str, EntrantCurve]) -> str:
    """Markdown of the race, whose results and picture lie beside it."""
    parts = [
        "# UniLab beside SAC on the Go2",
        "Written by `python -m scripts.races.beside_unilab report` from the measurements beside it "
        f"([{NAME}.json]({NAME}.json)).",
        _ABOUT,
        table(_HEAD, [_row(name, curve.points) for name, curve in curves.items()]),
        f"![UniLab beside SAC: error over steps, wall time and processor time]({NAME}.png)",
        _SETTING.strip(),
        "## Origin",
        table(["", "started", "load", "processor", "versions", "configuration"],
              [_origin(name, curve) for name, curve in curves.items()]),
        f"{_RUN} All words of every command are in [{NAME}.json]({NAME}.json).",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


_HEAD = [
    "learner", "steps", "wall time", "processor time", "error at the end [m/s]", "falls",
    *(f"to {goal:.2f} m/s: steps, wall, processor" for goal in GOALS),
]  # fmt: skip


def _row(name: str, points: Sequence[Point]) -> list[str]:
    last = points[-1]
    cells = [_TITLES[name], format_count(last.steps), _minutes(last.seconds)]
    cells += [_minutes(last.cpu_seconds), f"{last.error:.3f}", format_percent(last.fallen)]
    for goal in GOALS:
        found = first_reached(points, goal)
        cells.append(
            f"{format_count(found.steps)}, {_minutes(found.seconds)}, "
            f"{_minutes(found.cpu_seconds)}" if found else "not reached"
        )  # fmt: skip
    return cells


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _origin(name: str, curve: EntrantCurve) -> list[str]:
    origin = curve.origin
    packages = ", ".join(f"{key} {value}" for key, value in origin["packages"].items())
    commit = f", commit `{origin['git']}`" if "git" in origin else ""
    return [
        _TITLES[name], origin["started"][:16], f"{origin['load_average']:.1f}", origin["device"],
        f"python {origin['python']}, {packages}",
        f"`{origin['config_sha256'][:16]}`, seed {origin['seed']}{commit}",
    ]  # fmt: skip


def _draw(curves: Mapping[str, EntrantCurve], path: Path) -> None:
    figure = Figure(figsize=(13.0, 3.6), dpi=120, layout="constrained")
    for axis, (over, (what, unit)) in zip(figure.subplots(1, len(_SIDES)), _SIDES.items(),
                                          strict=True):  # fmt: skip
        for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
            place = [getattr(point, what) / unit for point in curve.points]
            errors = [point.error for point in curve.points]
            axis.plot(place, errors, "o-", ms=3, lw=1.6, color=colour, label=_TITLES[name])
        for goal in GOALS:
            axis.axhline(goal, color="#777777", lw=0.8, ls="--")
        dress_axis(axis, "mean velocity error [m/s], falls with 1", over=over)
        axis.set_ylim(0.05, 0.75)
    figure.axes[0].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


_ABOUT = """\
UniLab (`pip install unilab`, Apache-2.0) teaches robots in MuJoCo. Its worlds run on processors, \
its learners on a GPU. Here all of it runs on processors. A Go2 walks on a flat \
floor as fast as it is asked, pushed now and then: forward within 0.6 m/s, sideways 0.3 m/s, \
turning 0.6 rad/s. Another goal comes every 5 s, and one in ten asks to stand. Episodes take 10 s \
at 50 Hz.

The value is the mean distance between the base's and the asked-for horizontal velocity in the \
heading frame. An episode with a fall counts with 1 m/s. Every point is 128 episodes of the \
deterministic policy. A robot that only stands is at 0.33 m/s. There is one seed each, so small \
differences say nothing. Processor time is the fair axis where a machine is busy."""

_RUN = """\
Load is the mean load average of the machine meanwhile. How they were run: \
[learners](../learners.md#sac-beside-unilab)."""

_SETTING = """\
## What is alike

- Goals, their times, the share of standing, the episode's length and the control rate.
- The robot's masses and inertias: 15.2 kg, from the manufacturer's description.
- Noise of gyroscope, joint positions and velocities, by deviation. UniLab's gravity vector has \
0.01 of it, ours comes from an attitude with 0.01 rad.
- Ranges of the trunk's mass and centre, of the feet's friction and of the motors' gains.
- Pushes every 3 to 6 s of the same mean square, and the base's velocities at the start.
- What the actor lacks: the velocity of the base. Both critics see it.
- The judge: error and falls are computed from the engine's state by the same rule, with noise, \
draws and pushes as in training. UniLab's own bound of 60 degrees counts as a fall too.
- One thread of torch and the share of one processor for each training.

## What differs

| | ours | UniLab |
| --- | --- | --- |
| step of the physics | 5 ms, four per action | 10 ms, two per action |
| contacts | pyramidal cones, impratio 3 | elliptic cones, impratio 100 |
| joints | no damping, friction drawn up to 0.3 N m | damping 0.5, friction 0.2 N m |
| motors | gains 40 and 1, strength and delay drawn | gains 35 and 0.5 |
| scale of an action | 0.5 rad | 0.25 rad for PPO, 0.4 for the others |
| actor sees | three steps | one step |
| links' masses | drawn by 10 % | as they are |
| joints at the start | drawn by 0.1 rad | the default pose |
| reward | of our task | of its files for the Go2 |
| time | steps and updates alone | from its first log to a checkpoint |
| weight of falls | share of falls, on the mean of all episodes | episode by episode |
| envs | 128 | 128 for `sac_cpu`, 1,024 for the others |
| updates per step | 4 of 256 rows | 4 of 256 for `sac_cpu`, 2 of 2,048 for FlashSAC |

## What UniLab needed here

- **PPO** is its recipe for the Go2: 151 iterations of 1,024 envs, 3.7 million steps. Nothing is \
changed but the task. The clock stops it earlier.
- **FlashSAC** is its only off-policy recipe for the Go2 in MuJoCo. It is made for a GPU. Its \
file gives `std` to two rewards that ask for \
`tracking_sigma` and refuse it. We give the square.
- **SAC**: version 1.5.2 has no settings of it for the Go2. `sac_cpu` is its SAC with FlashSAC's \
rewards and scale of actions. Networks, envs and batches have about our sizes. These are ours, \
chosen once and not tuned: its authors may know better ones. Its own batches have 8,192 rows.
- Its off-policy learners refuse a computer without CUDA and MPS. The script lets their replay \
take its path for MPS on the processor, by one name of one module. No file of UniLab is changed.
- Meshes of the robot would be downloaded at first use. They are drawn and never touch anything. \
Small tetrahedra stand in for them.
"""
