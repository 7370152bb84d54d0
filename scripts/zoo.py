"""Writes the policies that ship; `python -m scripts.zoo --help` says more."""

import json
import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs.compose import compose, from_plain, to_plain
from policies.zoo.catalog import CARD, ROOT, ZooCard, read_card, zoo_names
from robot_rl.cli.api import TrainedRun, train
from robot_rl.cli.command_line import exit_with_sentence
from robot_rl.cli.components import open_teacher
from robot_rl.cli.evaluation import EvaluateOptions, run_trial
from robot_rl.cli.main import main as robot_rl_command
from robot_rl.cli.viewing import configure, make_player, record_episode
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.training.reporting.console import format_clock, format_percent
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import replace_file
from scripts.film_grid import write_film_grid
from sim.rendering.recording import EnvRecording
from sim.rendering.video import contact_sheet, render_video

_HELP = """Writes policies/zoo: trains each policy by its command, exports it, measures it.

usage: python -m scripts.zoo train <name> ...     train and write these
       python -m scripts.zoo add <name> <run>     write one that was trained by the same command
       python -m scripts.zoo measure <name> ...   measure these again, and write it into their cards
       python -m scripts.zoo page                 write the table of docs/zoo.md, and the pictures
       python -m scripts.zoo films                draw all of them moving, in one picture

names: {names}"""

_REPOSITORY = Path(__file__).resolve().parent.parent
PAGE, _IMAGES = _REPOSITORY / "docs" / "zoo.md", _REPOSITORY / "docs" / "images" / "zoo"
FILMS = _REPOSITORY / "docs" / "images" / "zoo.webp"
_BEGIN, _END = "<!-- table -->", "<!-- end of the table -->"
_EPISODES = 1000
_LARGEST = 2_000_000
"""Bytes of a policy with its card."""
_FREE = ("runs", "logging", "video", "profile", "device", "threads", "rank_timeout_seconds")
"""Fields of a run that may differ from those of the command: the result hangs on none of them."""


@dataclass(frozen=True)
class Entry:
    """A policy that ships."""

    title: str
    words: tuple[str, ...]
    """Of its training."""
    collected: tuple[str, ...] = ()
    """Words of `robot-rl collect`, for demonstrations that it learns from."""
    taught: tuple[str, ...] = ()
    """Words of the training of its teacher, or its base, which learns from the demonstrations."""

    @property
    def command(self) -> str:
        """Commands of the demonstrations and of the trainings, as one line of a shell."""
        commands = (
            ("robot-rl collect", self.collected), ("robot-rl train", self.taught),
            ("robot-rl train", self.words),
        )  # fmt: skip
        return " && ".join(f"{verb} {shlex.join(words)}" for verb, words in commands if words)


ENTRIES = {
    "crazyflie-hover": Entry(
        "recovers from a throw and holds its place", ("task=hover",),
    ),
    "crazyflie-hover-robust": Entry(
        "holds its place on any published Crazyflie, late, pushed and out of balance",
        ("experiment=hover_robust",),
    ),
    "crazyflie-tracking": Entry(
        "follows a lemniscate or a smooth curve", ("task=tracking",),
    ),
    "crazyflie-gates": Entry(
        "flies through five gates in their order", ("task=gates",),
    ),
    "crazyflie-landing": Entry(
        "comes down onto a pad and touches it softly", ("task=landing", "seed=1"),
    ),
    "x500-hover": Entry(
        "recovers from a throw and holds its place", ("task=hover", "robot=x500", "seed=2"),
    ),
    "x500-gates": Entry(
        "flies through five gates in their order",
        (
            "task=gates", "robot=x500", "training.total_steps=18000000",
            "learner.lr_schedule.decay=281250",
        ),
    ),
    "go2-stand-up": Entry(
        "gets up from wherever it came to lie and stands", ("task=stand_up", "seed=2"),
    ),
    "go2-clutter": Entry(
        "crosses a corridor with obstacles towards a point behind it",
        ("task=clutter", "training.total_steps=4000000", "seed=1"),
    ),
    "go2-motion": Entry(
        "follows a trot with its whole body", ("task=motion",),
    ),
    "g1-motion": Entry(
        "follows a squat with its whole body",
        ("task=motion", "robot=g1", "learner.precision=bf16"),
    ),
    "g1-stand-up": Entry(
        "gets up from its back or its front and stands",
        ("task=stand_up", "robot=g1", "learner=distill", "learner.teacher=runs/teachers"),
        collected=(
            "task=stand_up", "robot=g1", "num_envs=8", "episodes=23", "only_successes=true",
            "noise=0.01", "noise_seconds=inf", "starts=training", "states=true",
            "task.upright_starts=0", "task.episode_length=4.5", "task.calm=1.5",
            "task.height_tolerance=0.08", "task.randomization.payload=[0,0]",
            "task.randomization.link_mass=0", "task.randomization.stiffness=0",
            "task.randomization.damping=0", "out=datasets/ways",
        ),
        taught=(
            "task=stand_up", "robot=g1",
            "training.snapshots.data=datasets/ways", "learner.precision=bf16", "seed=1",
            "runs=runs/teachers",
        ),
    ),
    "go2-velocity": Entry(
        "walks as fast as asked in any direction and turns, pushed",
        (
            "experiment=velocity_gpu", "robot=go2", "device=cuda", "training.save_replay=false",
            "seed=1",
        ),
    ),
    "go2-rough": Entry(
        "walks as fast as asked over blocks, slopes, stairs and waves, blind",
        ("task=velocity_rough", "learner.precision=bf16"),
    ),
    "go1-velocity": Entry(
        "walks as fast as asked in any direction and turns, pushed",
        ("task=velocity", "robot=go1", "training.symmetry=augment", "learner.precision=bf16"),
    ),
    "g1-velocity": Entry(
        "walks on two feet as fast as asked in any direction and turns, pushed",
        (
            "task=velocity", "robot=g1", "num_envs=128", "training.symmetry=augment",
            "learner.batch_size=512", "learner.precision=bf16",
            "training.replay_capacity=1000000", "training.total_steps=7000000", "seed=1",
            "learner.lr_schedule.decay=218750", "learner.lr_schedule.end=0.05",
        ),
    ),
    "allegro-reorient": Entry(
        "turns a cube in the hand to one goal after the other",
        ("task=reorient", "learner.precision=bf16"),
    ),
    "panda-drawer": Entry(
        "opens a drawer by its handle",
        ("task=drawer", "training.prior.run=datasets/drawer"),
        ("task=drawer", "episodes=200", "out=datasets/drawer"),
    ),
    "panda-lift": Entry(
        "picks a cube up and holds it at a point",
        ("task=lift", "task.cube_low=[0.36,-0.17]", "task.cube_high=[0.58,0.17]",
         "training.prior.run=datasets/lift", "learner.precision=bf16", "seed=2"),
        ("task=lift", "task.cube_low=[0.36,-0.17]", "task.cube_high=[0.58,0.17]", "episodes=300",
         "out=datasets/lift"),
    ),
    "panda-peg": Entry(
        "puts a square peg into a hole",
        (
            "task=peg", "learner=residual", "learner.base.paths=[runs/clones]",
            "training.prior.run=datasets/peg", "seed=2",
        ),
        collected=(
            "task=peg", "task.kind=sparse", "episodes=50", "noise=0.03", "noise_seconds=2",
            "out=datasets/peg",
        ),
        taught=(
            "task=peg", "learner=bc", "task.kind=sparse", "task.reward.inserted=0.03",
            "learner.loss=nll", "learner.chunk_length=8", "learner.replan_interval=2",
            "training.demonstrations.data=datasets/peg", "training.total_steps=6_000",
            "learner.lr_schedule.decay=6_000", "runs=runs/clones",
        ),
    ),
    "panda-reach": Entry(
        "brings the hand to a point", ("task=reach", "robot=panda"),
    ),
    "ur5e-reach": Entry(
        "brings the flange to a point", ("task=reach", "robot=ur5e"),
    ),
}  # fmt: skip


def main(words: Sequence[str]) -> None:
    """Do what the command line says."""
    if not words or words[0] in ("-h", "--help"):
        print(_HELP.format(names=", ".join(ENTRIES)))
        return
    verb, *rest = words
    if verb == "train" and rest:
        entries = {name: _entry(name) for name in rest}  # a mistake is told before anything else
        for name, entry in entries.items():
            if entry.collected:
                robot_rl_command(("collect", *entry.collected, "append=true"))
            if entry.taught:
                train(*entry.taught, "video=false")
            add(name, train(*entry.words, "video=false"))
    elif verb == "add" and len(rest) == 2:
        add(rest[0], TrainedRun(rest[1]))
    elif verb == "measure" and rest:
        for name in {name: _entry(name) for name in rest}:
            card = replace(read_card(name), **_measured(ROOT / name))
            _write_card(ROOT / name, card)
            print(f"{name}: success {card.success:.3f} of {card.episodes} episodes")
    elif verb == "page" and not rest:
        write_page()
    elif verb == "films" and not rest:
        write_films()
    else:
        got = " ".join(words)
        verbs = "train <name> ..., add <name> <run>, measure <name> ..., page or films"
        raise ConfigError(f"expected {verbs}, got '{got}'")


def add(name: str, run: TrainedRun) -> None:
    """Export the best policy of a run, measure it and write its card.

    Raises:
        ConfigError: There is no entry of this name, the run was trained otherwise, or the bundle
            is too large; the policy that ships stays.
    """
    entry, folder = _entry(name), ROOT.with_name(f".{name}")  # until it is whole
    refuse_other(entry, run)
    shutil.rmtree(folder, ignore_errors=True)
    run.export(folder)
    origin = json.loads((folder / "provenance.json").read_text())
    about = json.loads((run.path / "provenance.json").read_text())
    card = ZooCard(
        title=entry.title, task=origin["run"]["task"], robot=origin["run"]["robot"],
        sees=[*dict.fromkeys(term["term"] for term in origin["config"]["task"]["actor"])],
        steps=origin["checkpoint"]["step"],
        training=entry.command,
        training_seconds=round(_seconds(run), 1), processor=str(about["device"]),
        evaluation=f"robot-rl evaluate zoo:{name} episodes={_EPISODES} video=false",
        **_measured(folder),
        drawn=_drawn(origin["config"]["task"].get("randomization") or {}),
        commit=str(origin["git"]["commit"])[:12], date=str(about["started"])[:10],
    )  # fmt: skip
    _write_card(folder, card)
    shutil.rmtree(ROOT / name, ignore_errors=True)
    folder.rename(ROOT / name)
    print(f"{name}: success {card.success:.3f} of {card.episodes} episodes")


def refuse_other(entry: Entry, run: TrainedRun) -> None:
    """Refuse a run of other settings than the entry's command has.

    Raises:
        ConfigError: It names the settings that differ.
    """
    wanted = to_plain(compose([*entry.words, "video=false"]).config)
    found = to_plain(from_plain(RunFolder.open(run.path).config()))  # fields that came since
    for config in (wanted, found):
        config["task"].pop("train_steps", None)  # proposed; training.total_steps was done
        if config["learner"].get("teacher"):
            config["task"].pop("critic")  # what the teacher sees; the student never does
    teachers = [config["learner"].get("teacher", "") for config in (wanted, found)]
    if teachers[0] and Path(teachers[1]).is_relative_to(teachers[0]):
        found["learner"]["teacher"] = teachers[0]  # the run found one in that folder
    other = sorted(
        field for field in wanted.keys() | found.keys()
        if field not in _FREE and wanted.get(field) != found.get(field)
    )  # fmt: skip
    if other:
        raise ConfigError(
            f"{run.path} was trained otherwise than `{entry.command}`: {', '.join(other)} differ"
        )


def _seconds(run: TrainedRun) -> float:
    """Time of a training, and of its teacher's."""
    teacher = RunFolder.open(run.path).config()["learner"].get("teacher")
    taught = _seconds(TrainedRun(open_teacher(teacher).path)) if teacher else 0.0
    return run.status.seconds + taught


def _measured(folder: Path) -> dict[str, Any]:
    """Fields of a card that tell how good a policy is."""
    options = EvaluateOptions(bundle=str(folder), episodes=_EPISODES, video=False)
    trial = run_trial(options, ())
    trial.env.close()
    return {
        "episodes": trial.result.success.numel(),
        "success": round(trial.result.success_rate, 6),
        "success_interval": [round(bound, 6) for bound in trial.result.success_interval],
        "metrics": {
            word: float(f"{values['mean']:.4g}")
            for word, values in trial.statistics.items()
            if math.isfinite(values["mean"])
        },
    }


def _write_card(folder: Path, card: ZooCard) -> None:
    replace_file(folder / CARD, (json.dumps(card.to_dict(), indent=2) + "\n").encode())
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > _LARGEST:
        raise ConfigError(f"{folder} has {size:,} bytes; expected at most {_LARGEST:,}")


def table() -> str:
    """Table in Markdown of all that ships."""
    rows = ["| name | what it does | success | training |", "| --- | --- | --- | --- |"]
    for name in zoo_names():
        card = read_card(name)
        low, high = (format_percent(bound) for bound in card.success_interval)
        rows.append(
            f"| `{name}` | {card.title} | {format_percent(card.success)} of {card.episodes:,} "
            f"({low} to {high}) | {format_clock(card.training_seconds)} |"
        )
    return "\n".join(rows)


def write_page() -> None:
    """Write the table between the marks of docs/zoo.md, and draw a contact sheet of each policy."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    replace_file(PAGE, f"{before}{_BEGIN}\n{table()}\n{_END}{after}".encode())
    for name in zoo_names():
        contact_sheet(_recording(name), _IMAGES / f"{name}.png", title=name)


def write_films() -> None:
    """Draw a film of each policy, and all of them in one moving picture."""
    with TemporaryDirectory() as folder:
        films = {
            name: render_video(
                _recording(name), Path(folder) / f"{name}.mp4", width=480, height=320, fps=30
            )
            for name in zoo_names()
        }
        write_film_grid(films, FILMS, width=192, height=128, fps=10)


def _recording(name: str) -> EnvRecording:
    shown = configure(str(ROOT / name), ["num_envs=2", "seed=2"])  # nobody falls
    player = make_player(shown.config, str(ROOT / name), evaluation=True)
    recording = record_episode(player, num_envs=1, longest=6.0)
    player.env.close()
    return recording


def _entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise ConfigError(unknown_name("policy", name, ENTRIES))
    return ENTRIES[name]


def _drawn(randomization: dict[str, Any]) -> dict[str, Any]:
    """Parameters that are drawn, without those that are off."""
    physical = {n: v for n, v in randomization.items() if n not in ("curriculum", "appearance")}
    off = ([], {}, None, 0, [0.0, 0.0], [1.0, 1.0])
    return {name: value for name, value in physical.items() if value not in off}


if __name__ == "__main__":
    with exit_with_sentence("python -m scripts.zoo"):
        main(sys.argv[1:])
