"""Measures the speed of this machine: `python -m scripts.bench --help`."""

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.command_line import exit_with_sentence
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import check_one_root, keep_freed_memory

_PARTS = ("physics", "env", "sim", "tasks", "learner")
"""Parts that `all` measures: a deployment needs ROS 2, minutes and an otherwise idle machine."""
_ABOUT = """Measures the speed of this machine, on one thread where nothing else is said.

  physics    the multirotor engine alone, beside the l2f package where it is installed
  env        the hover task with observation, reward, noise, history and resets
  sim        MuJoCo worlds on two threads: the task reach beside the bare engine, and HalfCheetah-v5
             beside Gymnasium's vector environments and envpool where it is installed
  tasks      every task, and the physics of every robot with joints, on one thread
  learner    collecting (act, step, store), updates of SAC, and the share of each in training; a
             sample of a full replay, and gradient steps, beside Stable-Baselines3 and SBX where
             they are installed
  all        everything above; the default
  warp       a control period of MuJoCo Warp on the CPU, captured as a graph and not
  soak       a million random world-steps of every task and robot: what is not a number, and
             what the engine gave up; the same command goes on
  gpu        thousands of worlds on a GPU: speed, updates as graphs and not, trainings, policies
             checked in MuJoCo's C engine, PPO of rsl_rl in the same worlds and mjlab's own training
             where they are installed, in stages of a few minutes; the same command does the next
  data       memory and speed of reading, converting and merging a data set of --gigabytes; or, with
             --corruptions, what becomes of data sets with files that are damaged
  deploy     a deployment over ROS 2 beside its bars: lateness, work, age of what is answered,
             stops; with --bundle the returns of a policy deployed and in its training environment

Contenders take turns and figures are medians, so that ratios hold on a busy machine too."""
_L2F_BAR = 8.0
"""Bar of the engine's speed in multiples of l2f's."""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line says."""
    options = _parser().parse_args(arguments)
    if options.part != "deploy" and options.bundle:
        raise ConfigError(f"--bundle is for the part deploy, got the part {options.part}")
    if options.part != "data" and options.corruptions is not None:
        raise ConfigError(f"--corruptions is for the part data, got the part {options.part}")
    if options.rounds < 1 or options.threads < 1 or min(options.num_envs) < 1:
        raise ConfigError("--rounds, --threads and --num-envs must be at least 1")
    check_one_root()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    import torch

    from scripts.bench.timing import describe_machine, machine_lines

    torch.set_num_threads(1)
    machine = describe_machine(threads=1)
    print("\n".join(machine_lines(machine)), flush=True)
    record: dict[str, Any] = {"machine": machine, "rounds": options.rounds}
    for part in _PARTS if options.part == "all" else (options.part,):
        print(flush=True)
        record[part] = _MEASURE[part](options)
    if options.json is not None:
        from robot_rl.training.storage.durable import write_json

        write_json(options.json, record, what="the figures")
        print(f"\nwritten: {options.json}")


def _physics(options: argparse.Namespace) -> dict[str, float]:
    from scripts.bench.multirotor_physics import run

    speeds = run(
        64 if options.quick else 4096, rounds=options.rounds, l2f_python=options.l2f_python
    )
    if "l2f" in speeds:
        ratio = speeds["physics"] / speeds["l2f"]
        verdict = "reached" if ratio >= _L2F_BAR else "missed"
        print(f"bar of {_L2F_BAR:g} times l2f: {verdict} ({ratio:.1f})")
    else:
        print("install l2f with `pip install 'robot_rl[bench]'`, or name a Python that has it")
    return speeds


def _env(options: argparse.Namespace) -> list[dict[str, Any]]:
    from scripts.bench.worlds import measure_worlds

    sections = []
    steps = 2_000 if options.quick else 400_000
    for section in measure_worlds(options.num_envs, rounds=options.rounds, world_steps=steps):
        print("\n".join(section.lines()), flush=True)
        sections.append(section.record())
    return sections


def _sim(options: argparse.Namespace) -> list[dict[str, Any]]:
    from scripts.bench.simulation import measure_simulation

    records = []
    for section, bars in measure_simulation(
        rounds=options.rounds, threads=options.threads, quick=options.quick
    ):
        print("\n".join([*section.lines(), *(f"  {bar}" for bar in bars)]), flush=True)
        records.append({**section.record(), "bars": bars})
    return records


def _tasks(options: argparse.Namespace) -> list[dict[str, Any]]:
    from scripts.bench.tasks import measure_tasks

    sections = measure_tasks(rounds=options.rounds, quick=options.quick)
    for section in sections:
        print("\n".join(section.lines()), flush=True)
    return [section.record() for section in sections]


def _warp(options: argparse.Namespace) -> list[dict[str, Any]]:
    from scripts.bench.captured import measure_captured

    records = []
    for section in measure_captured(rounds=options.rounds, quick=options.quick):
        print("\n".join(section.lines()), flush=True)
        records.append(section.record())
    return records


def _soak(options: argparse.Namespace) -> dict[str, Any]:
    from scripts.bench.soak import soak_all

    steps = 1_000 if options.quick else options.world_steps
    return soak_all(options.tasks, steps, options.found, lambda line: print(line, flush=True))


def _learner(options: argparse.Namespace) -> dict[str, Any]:
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


def _updates(options: argparse.Namespace) -> list[dict[str, Any]]:
    from scripts.bench.updates import SIZES, Size, measure_updates

    records = []
    for size in [Size(batch=256, width=16, updates=2)] if options.quick else SIZES:
        section, bars = measure_updates(size, rounds=options.rounds, python=options.peers_python)
        print("\n".join([*section.lines(), *(f"  {bar}" for bar in bars)]), flush=True)
        records.append({**section.record(), "bars": bars})
    return records


def _replay_sampling(options: argparse.Namespace) -> list[dict[str, Any]]:
    from scripts.bench.replay_sampling import measure_sampling

    records = []
    for section, bar in measure_sampling(
        20_000 if options.quick else 1_000_000, (256, 8192), rounds=options.rounds,
        repeats=4 if options.quick else 50,
    ):  # fmt: skip
        print("\n".join([*section.lines(), f"  {bar}"]), flush=True)
        records.append({**section.record(), "bar": bar})
    return records


def _data(options: argparse.Namespace) -> dict[str, Any]:
    if options.corruptions is not None:
        from scripts.bench.datasets.corruptions import damage_many

        tally = damage_many(options.corruptions, options.scratch, seed=options.seed)
        print("\n".join([f"{options.corruptions:,} damaged files, seed {options.seed}",
                         *tally.lines(), *(f"fault: {one}" for one in tally.faults),
                         f"{len(tally.faults)} faults"]))  # fmt: skip
        return tally.record()
    from scripts.bench.datasets.streaming import measure_streaming

    done = measure_streaming(
        0.05 if options.quick else options.gigabytes, options.scratch,
        lambda line: print(line, flush=True), formats=tuple(options.formats),
    )  # fmt: skip
    return {"operations": done}


def _deploy(options: argparse.Namespace) -> dict[str, Any]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of its processes
    for number in (signal.SIGTERM, signal.SIGHUP):  # they end too, whatever ends this one
        signal.signal(number, signal.default_int_handler)
    from scripts.bench.deployment.loop_figures import Windows
    from scripts.bench.deployment.measure import DeploymentBench

    sizes: dict[str, Any] = {}
    if options.quick:
        sizes = {"windows": Windows(count=1, seconds=0.2), "presses": 2, "kills": 1}
    bench = DeploymentBench(
        bundles=options.bundle, episodes=options.episodes, seconds=options.seconds,
        times=not options.returns_only, patience=options.patience, domain=options.domain, **sizes,
    )  # fmt: skip
    return bench.measure(lambda line: print(line, flush=True))


def _gpu(options: argparse.Namespace) -> dict[str, Any]:
    from scripts.bench.gpu.plan import REQUIREMENTS

    if options.requirements:
        print("\n".join(REQUIREMENTS))
        return {"requirements": list(REQUIREMENTS)}
    from configs.builders import pick_device
    from scripts.bench.gpu.stages import GpuBench

    sizes: dict[str, Any] = {"num_envs": 4096}
    if options.quick:
        small = (
            "training.total_steps=64", "training.random_steps=32", "training.replay_capacity=64",
            "training.evaluation_episodes=4", "learner.batch_size=16",
        )  # fmt: skip
        sizes = {"num_envs": 8, "changes": small, "rounds": 1, "episodes": 4,
                 "batches": (16,)}  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGHUP):  # its trainings end too
        signal.signal(number, signal.default_int_handler)
    bench = GpuBench(
        device=str(pick_device(options.device)), folder=options.runs,
        seconds=60 * options.minutes, **sizes,
        mjlab_python=None if options.quick else _mjlab(options.mjlab_python),
    )  # fmt: skip
    if bench.next(lambda line: print(line, flush=True)):
        print(f"give the same command again for the next stage; figures: {options.runs}/gpu.json")
    else:
        print(f"all stages are done; figures: {options.runs}/gpu.json")
    return bench.record


def _mjlab(named: str | None) -> Path | None:
    """The Python that has mjlab: the named one, or that of `make adapters` if there is one."""
    python = Path(named) if named else Path(__file__).parents[2] / ".venv-adapters/bin/python"
    if named and not python.exists():
        raise ConfigError(f"--mjlab-python: there is no {python}")
    if not python.exists():
        print("mjlab is not beside it: `make adapters`, or name a Python that has it")
    return python if python.exists() else None


_MEASURE = {
    "physics": _physics, "env": _env, "sim": _sim, "tasks": _tasks, "learner": _learner,
    "warp": _warp, "soak": _soak, "data": _data, "deploy": _deploy, "gpu": _gpu,
}  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = [*_PARTS, "all", *(name for name in _MEASURE if name not in _PARTS)]
    parser.add_argument("part", nargs="?", default="all", choices=parts)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (5)")
    parser.add_argument(
        "--num-envs", type=int, nargs="+", default=[1024, 4096], help="worlds of env (1024 4096)"
    )
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of sim (2)")
    parser.add_argument(
        "--l2f-python", metavar="PYTHON", help="a Python that has l2f, if this one does not"
    )
    parser.add_argument(
        "--peers-python",
        metavar="PYTHON",
        help="a Python that has stable-baselines3 or sbx-rl, if this one does not",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing"
    )
    data = parser.add_argument_group("data")
    data.add_argument("--gigabytes", type=float, default=10.0, help="of the data set (10)")
    data.add_argument(
        "--formats", nargs="+", choices=["minari", "robomimic", "npz"], default=["minari"],
        help="of others, there and back (minari)",
    )  # fmt: skip
    data.add_argument(
        "--scratch", type=Path, default=Path("outputs/data"), metavar="FOLDER",
        help="where it lies meanwhile (outputs/data)",
    )  # fmt: skip
    data.add_argument(
        "--corruptions", type=int, metavar="N", help="damage small data sets so often instead"
    )
    data.add_argument("--seed", type=int, default=0, help="of the damage (0)")
    soak = parser.add_argument_group("soak")
    soak.add_argument("--tasks", nargs="+", default=[], help="these alone (all)")
    soak.add_argument("--world-steps", type=int, default=1_000_000, help="of each (1000000)")
    soak.add_argument(
        "--found", type=Path, default=Path("outputs/soak.json"), metavar="FILE",
        help="what was found so far (outputs/soak.json)",
    )  # fmt: skip
    gpu = parser.add_argument_group("gpu")
    gpu.add_argument(
        "--requirements", action="store_true", help="say what the machine needs, measure nothing"
    )
    gpu.add_argument("--device", default="cuda", help="where worlds and learner live (cuda)")
    gpu.add_argument(
        "--mjlab-python", metavar="PYTHON", help="a Python that has mjlab, if not .venv-adapters"
    )
    gpu.add_argument("--minutes", type=float, default=7.0, help="longest stage (7)")
    gpu.add_argument(
        "--runs", type=Path, default=Path("outputs/gpu"), help="results and runs (outputs/gpu)"
    )
    deploy = parser.add_argument_group("deploy")
    deploy.add_argument(
        "--bundle", type=Path, nargs="+", default=[], help="policies whose returns are compared"
    )
    deploy.add_argument("--episodes", type=int, default=50, help="pairs of each policy (50)")
    deploy.add_argument(
        "--seconds", type=float, default=0.0, help="longest episode [s]; 0 for the task's own (0)"
    )
    deploy.add_argument(
        "--returns-only", action="store_true", help="leave out what needs no trained policy"
    )
    deploy.add_argument(
        "--patience", type=float, default=1.0,
        help="factor on the times that the robot waits; more on a busy machine (1)",
    )  # fmt: skip
    deploy.add_argument(
        "--domain", type=int, default=77, help="ROS_DOMAIN_ID, one that nobody else has (77)"
    )
    return parser


if __name__ == "__main__":
    main()
