"""Measures the speed of this machine: `python -m scripts.bench --help`."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.process import check_one_root, keep_freed_memory

_PARTS = ("physics", "env", "sim", "tasks", "learner")
"""Parts that `all` measures: a deployment needs ROS 2, minutes and an otherwise idle machine."""
_HELP = """Measures the speed of this machine, on one thread where nothing else is said.

usage: python -m scripts.bench [<part>] [option=value ...]

  physics    the multirotor engine alone, beside the l2f package where it is installed
  env        the hover task with observation, reward, noise, history and resets
  sim        MuJoCo worlds on two threads: reach and velocity beside the bare engine, HalfCheetah-v5
             beside Gymnasium's vector environments and envpool where it is installed
  tasks      every task, and the physics of every robot with joints, on one thread
  learner    collecting (act, step, store), updates of SAC, and the share of each in training; a
             sample of a full replay, and gradient steps of SAC, RLPD, TD3 and FastSAC, beside
             Stable-Baselines3 and SBX where they are installed and have them
  all        everything above; the default
  warp       a control period of MuJoCo Warp on the CPU, captured as a graph and not
  vision     pictures of cameras by MuJoCo Warp's ray-caster and by GL, beside Gymnasium's renderer
  soak       a million random world-steps of every task and robot: what is not a number, and
             what the engine gave up; the same command goes on
  gpu        thousands of worlds on a GPU: speed, updates as graphs and not, trainings, policies
             checked in MuJoCo's C engine, PPO of rsl_rl in the same worlds and mjlab's own training
             where they are installed, in stages of a few minutes; the same command does the next
  growth     memory and time per row, env and line of a curve, at sizes that are ten times as large
  data       memory and speed of reading, converting and merging a data set of gigabytes=; or, with
             corruptions=, what becomes of data sets with files that are damaged
  deploy     a deployment over ROS 2 beside its bars: lateness, work, age of what is answered,
             stops; with bundle= the returns of a policy deployed and in its training environment
  endure     deployments of every robot at default options beside a training, again and again, then
             kills and suspensions of their processes; the same command goes on
  learn      robot-rl learn on the simulated peg robot with a simulated person for minutes=, with
             kills= of its processes, a console and the link: what was lost or mislabelled, what
             grew, the robot beside its limits

  led        an arm that is led back and forth at full stick for minutes= of simulated time: its
             joints beside their limits

options (defaults in brackets):
  json=                 file of the figures
  rounds=5              turns of each contender
  num_envs=[1024,4096]  envs of env
  threads=2             CPU threads of sim
  l2f_python= peers_python=
                        a Python that has l2f, or stable-baselines3 and sbx-rl, if this has not
  quick=false           tiny sizes: shows that it works, measures nothing
  learner: cases=[] (sac, rlpd, td3, fast_sac: the gradient steps of these alone)
  data:   gigabytes=10 formats=[minari] (robomimic, npz) scratch=outputs/data
          corruptions=0 (damage small data sets so often instead) seed=0
  soak:   tasks=[] (all) world_steps=1000000 found=outputs/soak.json
  gpu:    requirements=false (say what the machine needs) launches=false (operations of an update
          that a graph launches at once, counted without a GPU) device=cuda mjlab_python=
          (.venv-adapters) minutes=7 (longest stage) runs=outputs/gpu
  deploy: bundle=[] (policies whose returns are compared, folders or zoo:<name>) episodes=50
          seconds=0 (longest episode [s]; 0 for the task's own) returns_only=false patience=1
          (factor on the times that the robot waits) domain=77 (ROS_DOMAIN_ID, one that nobody
          else has)
  endure: bundle=[] (instead of scripted policies of their robots) robots=[] (all) starts=20
          kills=60 freezes=30 endured=outputs/endure.json domain=77
  learn:  minutes=7 kills=30 seed=0 runs=outputs/learn
  led:    minutes=7 seed=0

Contenders take turns and figures are medians, so that ratios hold on a busy machine too.

examples:
  python -m scripts.bench sim rounds=9 json=sim.json
  python -m scripts.bench deploy bundle=[runs/<run>/bundle]"""
_L2F_BAR = 8.0
"""Bar of the engine's speed in multiples of l2f's."""


class DataFormat(Enum):
    """Formats of others, there and back."""

    minari = "minari"
    robomimic = "robomimic"
    npz = "npz"


class UpdateCase(Enum):
    """Learners whose gradient steps are measured."""

    sac = "sac"
    rlpd = "rlpd"
    td3 = "td3"
    fast_sac = "fast_sac"


@dataclass(kw_only=True)
class BenchOptions:
    """Options of the command; `_HELP` says what each means."""

    json: str = ""
    rounds: int = 5
    num_envs: list[int] = field(default_factory=lambda: [1024, 4096])
    threads: int = 2
    l2f_python: str = ""
    peers_python: str = ""
    quick: bool = False
    cases: list[UpdateCase] = field(default_factory=list[UpdateCase])
    gigabytes: float = 10.0
    formats: list[DataFormat] = field(default_factory=lambda: [DataFormat.minari])
    scratch: str = "outputs/data"
    corruptions: int | None = None
    seed: int = 0
    tasks: list[str] = field(default_factory=list[str])
    world_steps: int = 1_000_000
    found: str = "outputs/soak.json"
    requirements: bool = False
    launches: bool = False
    device: str = "cuda"
    mjlab_python: str = ""
    minutes: float = 7.0
    runs: str = ""
    bundle: list[str] = field(default_factory=list[str])
    episodes: int = 50
    seconds: float = 0.0
    returns_only: bool = False
    patience: float = 1.0
    domain: int = 77
    robots: list[str] = field(default_factory=list[str])
    starts: int = 20
    kills: int | None = None
    freezes: int = 30
    endured: str = "outputs/endure.json"

    def __post_init__(self) -> None:
        """Refuse what measures nothing."""
        counts = ("rounds", "threads", "world_steps", "episodes", "starts", "gigabytes", "minutes")
        for name in counts:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("kills", "freezes", "corruptions"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not self.num_envs or min(self.num_envs) < 1:
            raise ConfigError(f"num_envs must be counts of 1 or more, got {self.num_envs}")


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    from configs.compose import read_only_options

    words = [text for text in overrides if "=" not in text]
    options = read_only_options(BenchOptions, [text for text in overrides if "=" in text])
    part, *more = words or ["all"]
    if more or part not in (*_MEASURE, "all"):
        raise ConfigError(unknown_name("part", " ".join(words), ("all", *_MEASURE)))
    if part not in ("deploy", "endure") and options.bundle:
        raise ConfigError(f"bundle= is for the parts deploy and endure, got the part {part}")
    if part != "learner" and options.cases:
        raise ConfigError(f"cases= is for the part learner, got the part {part}")
    if part != "data" and options.corruptions is not None:
        raise ConfigError(f"corruptions= is for the part data, got the part {part}")
    check_one_root()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    import torch

    from scripts.bench.timing import describe_machine, machine_lines

    torch.set_num_threads(1)
    machine = describe_machine(threads=1)
    print("\n".join(machine_lines(machine)), flush=True)
    record: dict[str, Any] = {"machine": machine, "rounds": options.rounds}
    for name in _PARTS if part == "all" else (part,):
        print(flush=True)
        record[name] = _MEASURE[name](options)
    if options.json:
        from scripts.proofs.pages.results import write_json

        write_json(Path(options.json), record, what="the figures")
        print(f"\nwritten: {options.json}")


def _physics(options: BenchOptions) -> dict[str, float]:
    from scripts.bench.multirotor_physics import run

    speeds = run(
        64 if options.quick else 4096, rounds=options.rounds, l2f_python=options.l2f_python or None
    )
    if "l2f" in speeds:
        ratio = speeds["physics"] / speeds["l2f"]
        verdict = "reached" if ratio >= _L2F_BAR else "missed"
        print(f"bar of {_L2F_BAR:g} times l2f: {verdict} ({ratio:.1f})")
    else:
        print("install l2f with `pip install 'robot_rl[bench]'`, or name a Python that has it")
    return speeds


def _env(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.worlds import measure_worlds

    sections = []
    steps = 2_000 if options.quick else 400_000
    for section in measure_worlds(options.num_envs, rounds=options.rounds, world_steps=steps):
        print("\n".join(section.lines()), flush=True)
        sections.append(section.record())
    return sections


def _sim(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.simulation import measure_simulation

    records = []
    for section, bars in measure_simulation(
        rounds=options.rounds, threads=options.threads, quick=options.quick
    ):
        print("\n".join([*section.lines(), *(f"  {bar}" for bar in bars)]), flush=True)
        records.append({**section.record(), "bars": bars})
    return records


def _tasks(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.tasks import measure_tasks

    sections = measure_tasks(rounds=options.rounds, quick=options.quick)
    for section in sections:
        print("\n".join(section.lines()), flush=True)
    return [section.record() for section in sections]


def _warp(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.captured import measure_captured

    records = []
    for section in measure_captured(rounds=options.rounds, quick=options.quick):
        print("\n".join(section.lines()), flush=True)
        records.append(section.record())
    return records


def _vision(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.image_updates import measure_image_updates
    from scripts.bench.vision import measure_vision

    records = []
    for section in measure_vision(rounds=options.rounds, quick=options.quick):
        print("\n".join(section.lines()), flush=True)
        records.append(section.record())
    for section, verdict in measure_image_updates(rounds=options.rounds, quick=options.quick):
        print("\n".join([*section.lines(), verdict]), flush=True)
        records.append(section.record() | {"verdict": verdict})
    return records


def _soak(options: BenchOptions) -> dict[str, Any]:
    from scripts.bench.soak import soak_all

    steps = 1_000 if options.quick else options.world_steps
    return soak_all(options.tasks, steps, Path(options.found), lambda line: print(line, flush=True))


def _learner(options: BenchOptions) -> dict[str, Any]:
    if options.cases:
        return {"updates": _updates(options)}
    from scripts.bench.learning import LearningBench

    small = ("num_envs=64", "training.replay_capacity=3200") if options.quick else ()
    sections, notes = LearningBench(small).measure(
        (64, 256, 1024), rounds=options.rounds, repeats=4 if options.quick else 50
    )
    for section in sections:
        print("\n".join(section.lines()), flush=True)
    print("\n".join(notes))
    return {
        "sections": [section.record() for section in sections],
        "notes": notes,
        "replay": _replay_sampling(options),
        "updates": _updates(options),
    }


def _updates(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.update_cases import measure_cases

    records = []
    for section, bars in measure_cases(
        [case.value for case in options.cases or UpdateCase], rounds=options.rounds,
        python=options.peers_python or None, quick=options.quick,
    ):  # fmt: skip
        print("\n".join([*section.lines(), *(f"  {bar}" for bar in bars)]), flush=True)
        records.append({**section.record(), "bars": bars})
    return records


def _replay_sampling(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.replay_sampling import measure_sampling, measure_steps

    records = []
    for section, bar in measure_sampling(
        20_000 if options.quick else 1_000_000, (256, 8192), rounds=options.rounds,
        repeats=4 if options.quick else 50,
    ):  # fmt: skip
        print("\n".join([*section.lines(), f"  {bar}"]), flush=True)
        records.append({**section.record(), "bar": bar})
    for section in measure_steps(
        20_000 if options.quick else 200_000, (256, 1024), rounds=options.rounds,
        repeats=4 if options.quick else 50,
    ):  # fmt: skip
        print("\n".join(section.lines()), flush=True)
        records.append(section.record())
    return records


def _growth(options: BenchOptions) -> list[dict[str, Any]]:
    from scripts.bench.growth import measure_growth

    records = []
    for growth in measure_growth(quick=options.quick):
        print(growth.line(), flush=True)
        records.append(growth.record())
    return records


def _data(options: BenchOptions) -> dict[str, Any]:
    if options.corruptions is not None:
        from scripts.bench.datasets.corruptions import damage_many

        tally = damage_many(options.corruptions, Path(options.scratch), seed=options.seed)
        print("\n".join([f"{options.corruptions:,} damaged files, seed {options.seed}",
                         *tally.lines(), *(f"fault: {one}" for one in tally.faults),
                         f"{len(tally.faults)} faults"]))  # fmt: skip
        return tally.record()
    from scripts.bench.datasets.streaming import measure_streaming

    done = measure_streaming(
        0.05 if options.quick else options.gigabytes, Path(options.scratch),
        lambda line: print(line, flush=True), formats=tuple(one.value for one in options.formats),
    )  # fmt: skip
    return {"operations": done}


def _deploy(options: BenchOptions) -> dict[str, Any]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of its processes
    for number in (signal.SIGTERM, signal.SIGHUP):  # they end too, whatever ends this one
        signal.signal(number, signal.default_int_handler)
    from policies.zoo.catalog import bundle_folder
    from scripts.bench.deployment.loop_figures import Windows
    from scripts.bench.deployment.measure import DeploymentBench

    sizes: dict[str, Any] = {}
    if options.quick:
        sizes = {"windows": Windows(count=1, seconds=0.2), "presses": 2, "kills": 1}
    bench = DeploymentBench(
        bundles=[bundle_folder(path) for path in options.bundle], episodes=options.episodes,
        seconds=options.seconds, times=not options.returns_only, patience=options.patience,
        domain=options.domain, **sizes,
    )  # fmt: skip
    return bench.measure(lambda line: print(line, flush=True))


def _endure(options: BenchOptions) -> dict[str, Any]:
    from policies.zoo.catalog import bundle_folder
    from scripts.bench.deployment.endurance import Endurance
    from scripts.bench.deployment.scripted import SCRIPTED

    kills = 60 if options.kills is None else options.kills
    sizes: dict[str, Any] = {"starts": options.starts, "kills": kills, "freezes": options.freezes}
    if options.quick:
        sizes = {"starts": 1, "seconds": 1.0, "kills": 1, "freezes": 1}
    endurance = Endurance(
        robots=options.robots or tuple(SCRIPTED),
        bundles=[bundle_folder(one) for one in options.bundle],
        domain=options.domain, found=Path(options.endured), **sizes,
    )  # fmt: skip
    return endurance.measure(lambda line: print(line, flush=True))


def _learn(options: BenchOptions) -> dict[str, Any]:
    from scripts.bench.learning_endurance import LearningEndurance

    kills = 30 if options.kills is None else options.kills
    sizes: dict[str, Any] = {"minutes": options.minutes, "kills": kills}
    if options.quick:
        sizes = {"minutes": 0.2, "kills": 1}
    endurance = LearningEndurance(
        folder=Path(options.runs or "outputs/learn"), seed=options.seed, **sizes
    )
    return endurance.measure(lambda line: print(line, flush=True))


def _led(options: BenchOptions) -> dict[str, Any]:
    from scripts.bench.led_arm import LedArm

    minutes = 0.3 if options.quick else options.minutes
    return LedArm(minutes=minutes, seed=options.seed).measure(lambda line: print(line, flush=True))


def _gpu(options: BenchOptions) -> dict[str, Any]:
    from scripts.bench.gpu.plan import REQUIREMENTS

    if options.requirements:
        print("\n".join(REQUIREMENTS))
        return {"requirements": list(REQUIREMENTS)}
    if options.launches:
        from scripts.bench.gpu.launches import count_launches

        counted: dict[str, Any] = {}
        for preset, found in count_launches():
            counted[preset] = found
            told = ", ".join(f"{name} {count}" for name, count in found.items())
            print(f"  {preset:<10} {told}", flush=True)
        return {"launches": counted}
    from configs.builders import pick_device
    from scripts.bench.gpu.stages import GpuBench

    sizes: dict[str, Any] = {"num_envs": 4096}
    if options.quick:
        small = (
            "training.total_steps=64", "training.random_steps=32", "training.replay_capacity=64",
            "training.evaluation_episodes=4", "learner.batch_size=16",
        )  # fmt: skip
        sizes = {"num_envs": 8, "changes": small, "rounds": 1, "episodes": 4,
                 "batches": (16,), "preset_batch": 16}  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGHUP):  # its trainings end too
        signal.signal(number, signal.default_int_handler)
    bench = GpuBench(
        device=str(pick_device(options.device)), folder=Path(options.runs or "outputs/gpu"),
        seconds=60 * options.minutes, **sizes,
        mjlab_python=None if options.quick else _mjlab(options.mjlab_python),
    )  # fmt: skip
    if bench.next(lambda line: print(line, flush=True)):
        print(f"give the same command again for the next stage; figures: {bench.folder}/gpu.json")
    else:
        print(f"all stages are done; figures: {bench.folder}/gpu.json")
    return bench.record


def _mjlab(named: str) -> Path | None:
    """The Python that has mjlab: the named one, or that of `make adapters` if there is one."""
    python = Path(named) if named else Path(__file__).parents[2] / ".venv-adapters/bin/python"
    if named and not python.exists():
        raise ConfigError(f"mjlab_python: there is no {python}")
    if not python.exists():
        print("mjlab is not beside it: `make adapters`, or name a Python that has it")
    return python if python.exists() else None


_MEASURE = {
    "physics": _physics, "env": _env, "sim": _sim, "tasks": _tasks, "learner": _learner,
    "warp": _warp, "vision": _vision, "soak": _soak, "growth": _growth, "data": _data,
    "deploy": _deploy, "endure": _endure, "learn": _learn, "led": _led, "gpu": _gpu,
}  # fmt: skip


if __name__ == "__main__":
    main()
