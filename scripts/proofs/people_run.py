"""Trains on the twin of a robot, a person beside it or not: `python -m scripts.proofs.people_run`.

Everything is in one process and on a logical clock. A run that was stopped begins anew.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.process import check_one_root, keep_freed_memory

if TYPE_CHECKING:
    from configs.schema import RunConfig
    from robot_rl.core.env import EnvStep, Obs
    from robot_rl.core.learner import Learner
    from robot_rl.training.runs.run_folder import RunFolder
    from scripts.proofs.proving.people_settings import PeopleSettings

TRIALS = "trials.json"
"""File in a run's folder: success, length and end of every trial."""
_TRIAL_SEED, _PLAYED_SEED = 2**20, 2**21
"""Of starts that no training has drawn."""
_PLAYED_EPISODES = 20
_HELP = """Learns on the twin of a robot in one process, then lets the policy act alone.

usage: python -m scripts.proofs.people_run task=peg learner=... [option=value ...] [field=value ...]

options (defaults in brackets):
  person=false        a simulated person watches, takes over and gives back
  trials=100          episodes of the policy alone at the end
  played=             data set of 20 episodes that the policy plays at the end, each second one with
                      exploration, paid by the task's own reward: what fools a learned reward
  record_steps=500    steps of the robot between two records
  twin.<field>=       actions and rewards, as of robot-rl learn

learner=bc learns from training.demonstrations.data alone and does not move the robot meanwhile."""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Train and try what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` had it ignored
    check_one_root()
    keep_freed_memory()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from configs.builders import run_device
    from configs.compose import compose, read_options
    from robot_rl.cli.components import run_name
    from robot_rl.training.runs.provenance import collect_provenance
    from robot_rl.training.runs.run_folder import RunFolder
    from scripts.proofs.proving.people_settings import PeopleSettings, plain_people

    settings, rest = read_options(PeopleSettings, overrides)
    composition = compose(rest, beside_robots=True)
    config = replace(composition.config, device=str(run_device(composition.config)))
    plain = plain_people(settings, config)
    origin = collect_provenance(plain, seed=config.seed, device=config.device)
    name = run_name(config, composition.chosen)
    with RunFolder.create(config.runs, name, plain, origin) as run:
        _train(run, config, settings)


def _train(run: "RunFolder", config: "RunConfig", settings: "PeopleSettings") -> None:
    """Train, try, and say in the run's folder how it ended."""
    import torch

    from configs.schema import RewardConfig
    from robot_rl.cli.learning.lockstep import try_policy
    from robot_rl.cli.learning.twin_robot import TwinRobot
    from robot_rl.learners.cloning import CloningConfig
    from robot_rl.training.reporting.metrics import MetricLog
    from robot_rl.training.reporting.mirrors import open_sinks
    from robot_rl.training.runs.run_folder import RunState
    from robot_rl.training.storage.durable import replace_json

    torch.set_num_threads(config.threads)
    told = {"step": 0.0, "seconds": 0.0}

    def mark(state: RunState, reason: str = "") -> None:
        run.mark(
            state, step=int(told["step"]), total_steps=config.training.total_steps,
            seconds=told["seconds"], reason=reason,
        )  # fmt: skip

    sinks = open_sinks(
        config.logging, run.path, name=run.path.name, group=run.path.name,
        run_config=run.config(), resume_step=None,
    )  # fmt: skip
    with MetricLog(run.metrics_path, sinks) as metrics:

        def record(values: Mapping[str, float]) -> None:
            metrics.write(values)
            told.update(step=values["step"], seconds=values["seconds"])
            mark(RunState.RUNNING)

        try:
            clones = isinstance(config.learner, CloningConfig)
            learner = (_clone if clones else _learn)(run.path, config, settings, record)
            judged = replace(config, reward=RewardConfig())  # by the task's rule, never by a model
            with closing(TwinRobot(judged, settings.twin).lockstep_env(_TRIAL_SEED)) as env:
                found = try_policy(env, learner, settings.trials, _TRIAL_SEED)
            replace_json(run.path / TRIALS, [asdict(one) for one in found])
            if settings.played:
                _play(judged, settings, learner)
        except KeyboardInterrupt:
            mark(RunState.INTERRUPTED, "stopped by SIGINT")
            raise
        except BaseException as error:
            mark(RunState.FAILED, str(error).partition("\n")[0])
            raise
        mark(RunState.FINISHED)


def _learn(
    folder: Path, config: "RunConfig", settings: "PeopleSettings",
    record: Callable[[Mapping[str, float]], None],
) -> "Learner":  # fmt: skip
    """Learn on the robot; what it did is kept until the end only."""
    from hardware.teleop.simulated_person import PersonConfig
    from robot_rl.cli.learning.lockstep import LockstepLearning
    from robot_rl.cli.learning.twin_robot import RESPONSE

    with TemporaryDirectory(dir=folder) as experience:
        learning = LockstepLearning(
            config, settings.twin, folder, experience=Path(experience), record=record,
            person=PersonConfig(response=RESPONSE) if settings.person else None,
            record_steps=settings.record_steps,
        )  # fmt: skip
        with closing(learning):
            learning.run()
            return learning.learner


def _play(config: "RunConfig", settings: "PeopleSettings", learner: "Learner") -> None:
    """Let the policy play whole episodes under the task's own reward, and store them."""
    import torch

    from configs.schema import component_of
    from robot_rl.cli.learning.twin_robot import TwinRobot
    from robot_rl.cli.teleoperation.demonstrations import episode_of, episode_spec
    from robot_rl.core.seeding import derive_seed
    from robot_rl.datasets.writer import DatasetWriter

    robot = TwinRobot(config, replace(settings.twin, success_reward=None))
    task = component_of(config.task).name
    with closing(robot.lockstep_env(_PLAYED_SEED)) as env:
        dt = env.spec.control_dt
        with DatasetWriter.create(Path(settings.played), episode_spec(robot, env.spec)) as writer:
            for number in range(_PLAYED_EPISODES):
                obs = env.reset(seed=derive_seed(_PLAYED_SEED, f"played {number}"))
                learner.begin(torch.ones(1, dtype=torch.bool))
                steps: list[tuple[Obs, EnvStep]] = []
                while not (steps and bool(steps[-1][1].ended)):
                    with torch.no_grad():
                        step = env.step(learner.act(obs, explore=number % 2 == 1))
                    steps.append((obs, step))
                    obs = step.obs
                source = f"policy {config.seed}, episode {number}"
                writer.add(episode_of(steps, control_dt=dt, task=task, source=source))


def _clone(
    folder: Path, config: "RunConfig", settings: "PeopleSettings",
    record: Callable[[Mapping[str, float]], None],
) -> "Learner":  # fmt: skip
    """Imitate the demonstrations, the last network counts."""
    from robot_rl.cli.components import make_learner
    from robot_rl.cli.learning.twin_robot import TwinRobot
    from robot_rl.training.cloning_trainer import Cloner, CloningTrainer
    from robot_rl.training.demonstrations import read_demonstrations
    from robot_rl.training.storage.checkpoint import CheckpointStore

    with closing(TwinRobot(config, settings.twin).lockstep_env(config.seed)) as env:
        learner = cast(Cloner, make_learner(config, env.spec))
        told = config.training.demonstrations
        CloningTrainer(
            config.training, evaluation_env=env, learner=learner, record=record,
            demonstrations=read_demonstrations(
                Path(told.data), told, env.spec, learner.actor_groups,
                chunk_length=learner.chunk_length, seed=config.seed,
            ),
            checkpoints=CheckpointStore(folder / "checkpoints", keep_last=1),
            interval_seconds=config.logging.interval_seconds,
        ).run()  # fmt: skip
        return learner


if __name__ == "__main__":
    main()
