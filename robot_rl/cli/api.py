"""robot_rl from Python; `import robot_rl` hands out all of these names.

    import robot_rl

    run = robot_rl.train("task=hover", total_steps=4e6)
    print(run.evaluate(episodes=100))
    run.film()
    runner = robot_rl.load_bundle(run.export())

A function takes the words of the command line beside its arguments: `train("task=reach",
"learner.gamma=0.98")` does what `robot-rl train task=reach learner.gamma=0.98` does.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from configs.builders import pick_device
from configs.compose import compose, from_plain
from configs.schema import RunConfig
from configs.schema import make_env as make_run_env
from policies.bundle import load_bundle
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.cli import components, evaluation, resume, session
from robot_rl.core.env import BatchEnv, EnvSpec
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunStatus
from sim.adapters.gymnasium_config import GymnasiumConfig

__all__ = [
    "Policy",
    "Report",
    "TrainedRun",
    "load_bundle",
    "load_run",
    "make_env",
    "make_learner",
    "make_replay",
    "train",
]

_TEST_SEED = evaluation.EvaluateOptions.seed
"""Starts of an evaluation: others than those that the best checkpoint was chosen on."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Result of an evaluation; printed, it is the table of `robot-rl evaluate`."""

    episodes: int
    success: float | None
    """Share of the episodes that succeeded; None where the environment judges none."""
    interval: tuple[float, float]
    """Of that share, 95 %."""
    mean_return: float
    return_interval: tuple[float, float]
    """Of that mean, 95 %."""
    return_deviation: float
    """Standard deviation of the returns of single episodes."""
    metrics: dict[str, float]
    """Means of what was measured at the end of episodes that lasted to their time limit."""
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Policy:
    """A trained policy as a function; whoever plays says where episodes begin."""

    def __init__(self, act: Callable[[Any], Any], module: nn.Module) -> None:
        """Take what acts, and the network, which may plan ahead; use `TrainedRun.policy`."""
        self._act, self._module = act, module

    def __call__(self, obs: Any) -> Any:
        """The action for an observation, a tensor for tensors and an array for arrays."""
        return self._act(obs)

    def begin(self, mask: NDArray[np.bool_] | None = None) -> None:
        """An episode begins: throw plans of the last one away, in all envs or in the masked (N,).

        Policies that answer each observation by itself need not be told.
        """
        rows = np.ones(1, dtype=np.bool_) if mask is None else np.asarray(mask)
        begin_episodes(self._module, torch.from_numpy(rows))


class TrainedRun:
    """A run in its folder: what was trained, and what can be done with it."""

    def __init__(self, path: Path | str) -> None:
        """Open a folder that a training has written.

        Raises:
            ConfigError: It is none.
        """
        self._folder = RunFolder.open(path)

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self._folder.path

    @property
    def status(self) -> RunStatus:
        """Its state and how far it is."""
        return self._folder.status()

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Records of the training, a dictionary per interval."""
        return read_metrics(self._folder.metrics_path)

    @property
    def config(self) -> RunConfig:
        """All settings."""
        return from_plain(self._folder.config())

    def __repr__(self) -> str:
        status = self.status
        return f"TrainedRun({str(self.path)!r}, {status.state.value}, step {status.step:,})"

    def resume(self, *changes: str, total_steps: float | None = None) -> "TrainedRun":
        """Train on from the last checkpoint.

        Args:
            changes: Fields that may change on the way, such as `threads=2`.
            total_steps: New length of the whole run; None keeps the old one.

        Raises:
            ConfigError: A change does not fit what was trained so far.
        """
        words = [*changes, *_fields({"training.total_steps": total_steps})]
        resume.resume(str(self.path), words)
        return self

    def evaluate(
        self, *changes: str, episodes: int = 100, checkpoint: str = "best", seed: int = _TEST_SEED
    ) -> Report:
        """Play episodes that the policy was neither trained nor chosen on, without exploration.

        Args:
            changes: Fields of the task, robot or environment, such as `task.wind=2`.
            checkpoint: best, latest, or the folder of one.
            seed: Chooses starts, goals, physical parameters and noise.
        """
        trial = self._trial(changes, episodes, checkpoint, seed)
        with contextlib.closing(trial.env):
            result = trial.result
            judged = trial.env.spec.judges_success
            return Report(
                episodes=result.success.numel(),
                success=result.success_rate if judged else None,
                interval=result.success_interval,
                mean_return=float(result.returns.mean()),
                return_interval=result.return_interval,
                return_deviation=float(result.returns.std(correction=0)),
                metrics={name: values["mean"] for name, values in trial.statistics.items()},
                lines=tuple(evaluation.trial_lines(trial)),
            )

    def film(self, path: Path | str = "", *, checkpoint: str = "best", seed: int = 0) -> Path:
        """Write a video of the policy; returns its file.

        Args:
            path: File ending in .mp4; in the folder of the run if empty.

        Raises:
            ConfigError: The environment cannot be drawn.
        """
        target = Path(path) if str(path) else self.path / "videos" / f"film_{seed}.mp4"
        if target.suffix != ".mp4":
            raise ConfigError(f"film: expected a file that ends in .mp4, got {target}")
        config = self.config
        if isinstance(config.env, GymnasiumConfig):
            from sim.adapters.gymnasium_film import film_gymnasium  # draws: not for all

            return film_gymnasium(config.env, self._module(checkpoint), target, seed=seed)
        return self._film_worlds(config, target, checkpoint, seed)

    def export(self, path: Path | str = "", *, checkpoint: str = "best") -> Path:
        """Write the policy for programs without torch; returns the folder.

        `load_bundle` reads that of a robot, `load_policy` that of a Gymnasium environment.

        Raises:
            ConfigError: The policy of a Gymnasium environment sees images or a dictionary, or
                remembers.
            BundleError: The network cannot be exported, or `path` holds something else.
        """
        from robot_rl.cli.learning.bundling import export_policy  # onnx is an extra

        target = Path(path) if str(path) else self.path / "bundle"
        config = components.kept_base(self._folder, self.config)
        return export_policy(self._folder, config, checkpoint, target).path

    def policy(self, checkpoint: str = "best") -> "Policy":
        """The policy as a function.

        Of a Gymnasium environment it takes the environment's own observation and returns an action
        for its `step`. Of our tasks it takes observation groups (N, ...) and returns (N, A), in
        [-1, 1]: tensors for tensors, arrays for arrays. `Policy.begin` says where episodes begin.
        """
        module, config = self._module(checkpoint), self.config
        if isinstance(config.env, GymnasiumConfig):
            from sim.adapters.gymnasium_film import native_policy

            return Policy(native_policy(config.env, module), module)

        def act(obs: Mapping[str, Any]) -> Any:
            are_tensors = all(isinstance(group, Tensor) for group in obs.values())
            groups = {name: torch.as_tensor(group) for name, group in obs.items()}
            with torch.no_grad():
                action = module(groups)
            return action if are_tensors else action.cpu().numpy()

        return Policy(act, module)

    def _module(self, checkpoint: str) -> nn.Module:
        config = components.kept_base(self._folder, self.config)
        evaluation.check_plays(self._folder, config)
        env = make_run_env(config, num_envs=1, device=torch.device("cpu"), seed=0, evaluation=True)
        with contextlib.closing(env):
            return components.load_policy(self._folder, config, env.spec, checkpoint).module

    def _trial(
        self, changes: Sequence[str], episodes: int, checkpoint: str, seed: int
    ) -> evaluation.Trial:
        options = evaluation.EvaluateOptions(
            run=str(self.path), episodes=episodes, checkpoint=checkpoint, seed=seed, video=False
        )
        return evaluation.run_trial(options, changes)

    def _film_worlds(self, config: RunConfig, target: Path, checkpoint: str, seed: int) -> Path:
        from robot_rl.cli.pictures import FLIGHTS, draw_policy  # matplotlib: not for all

        evaluation.check_plays(self._folder, config)
        env = components.make_sim_env(
            config, num_envs=FLIGHTS, device=torch.device("cpu"), seed=seed, evaluation=True
        )
        with contextlib.closing(env), tempfile.TemporaryDirectory(prefix="film-") as folder:
            policy = components.load_policy(self._folder, config, env.spec, checkpoint).module
            found = draw_policy(Path(folder), config, env, policy, seed=seed)
            video = Path(found.get("video", "none"))
            if not video.is_file():
                why = found.get("video", "the task is not drawn")
                raise ConfigError(f"no film was made: {why}")
            target.parent.mkdir(parents=True, exist_ok=True)
            return Path(shutil.move(video, target))


def train(
    *choices: str,
    env: Any = None,
    total_steps: float | None = None,
    seed: int | None = None,
    num_envs: int | None = None,
    runs: Path | str | None = None,
    quiet: bool = False,
) -> TrainedRun:
    """Train a new run to its end; Ctrl-C saves it and returns what there is.

    Args:
        choices: Words of `robot-rl train`, such as `task=reach`, `learner=td3`, `learner.lr=1e-3`.
        env: A Gymnasium environment instead of a task of ours: its id, an environment, or a
            function that makes one. One that was made is copied for every world.
        total_steps: Length of the run, in steps of all worlds together.
        runs: Folder that the run's folder is made in; `runs` if None.
        quiet: Show no progress.

    Raises:
        ConfigError: A word is wrong; the message names the nearest right one.
    """
    words = [*_environment(env), *_checked(choices)]
    words += _fields({
        "training.total_steps": total_steps, "seed": seed, "num_envs": num_envs,
        "runs": None if runs is None else str(runs), "logging.quiet": True if quiet else None,
    })  # fmt: skip
    composition = compose(words)
    made: list[Path] = []
    session.start(composition.config, composition.chosen, made.append)
    if not made:
        raise ConfigError("robot_rl.train trains in one process; use torchrun with robot-rl train")
    return TrainedRun(made[0])


def load_run(path: Path | str = "latest", *, runs: Path | str = "runs") -> TrainedRun:
    """A run by its folder, or the newest one in `runs`.

    Raises:
        ConfigError: There is none.
    """
    return TrainedRun(components.run_path(str(path), str(runs)))


def make_env(
    *choices: str, env: Any = None, num_envs: int | None = None, seed: int | None = None,
    device: str | None = None,
) -> BatchEnv:  # fmt: skip
    """N worlds, reset: `step` takes actions (N, A) in [-1, 1] and gives true successors.

    Args:
        choices: Words of `robot-rl train` that choose task and robot, or change their fields.
        env: A Gymnasium environment, as of `train`.
        num_envs: N; None for what a word says, 1 where none does.
        seed: None for what a word says, 0 where none does.
        device: None for what a word says, `cpu` where none does.

    Raises:
        ConfigError: A word is wrong, there is no env, or there is no memory for so many.
    """
    defaults = _fields({"num_envs": 1, "seed": 0, "device": "cpu"})
    given = _fields({"num_envs": num_envs, "seed": seed, "device": device})
    config = compose([*_environment(env), *defaults, *_checked(choices), *given]).config
    made = make_run_env(
        config, num_envs=config.num_envs, device=pick_device(config.device), seed=config.seed,
        evaluation=False,
    )  # fmt: skip
    made.reset(seed=config.seed)
    return made


def make_learner(env: BatchEnv, *choices: str, seed: int | None = None) -> Learner:
    """An untrained learner for worlds that were made.

    Args:
        choices: Words of `robot-rl train`, such as `learner=sac` or `learner.gamma=0.98`.
        seed: Of its weights and noise; None for what a word says, 0 where none does.
    """
    _check_env(env)
    config = compose(["seed=0", *_checked(choices), *_fields({"seed": seed})]).config
    return components.make_learner(config, env.spec)


def make_replay(env: BatchEnv, learner: Learner, *, capacity: int, seed: int = 0) -> ReplayBuffer:
    """A replay of what a learner needs to learn from worlds.

    Args:
        capacity: Transitions kept.
    """
    _check_env(env)
    if isinstance(capacity, bool) or not isinstance(capacity, Integral):
        raise ConfigError(f"capacity must be a whole number of transitions, got {capacity!r}")
    replay = ReplayBuffer(
        env.spec, (*learner.actor_groups, *learner.critic_groups), capacity=int(capacity),
        gamma=learner.gamma, n_step=learner.n_step, chunks=learner.chunk_length > 0,
        interventions=learner.intervention_mask, returns=learner.monte_carlo_returns,
        compile=learner.compile, seed=seed,
    )  # fmt: skip
    if env.spec.reward_weights:
        replay.set_reward_weights(torch.tensor(env.spec.reward_weights))
    return replay


def _environment(env: Any) -> list[str]:
    """Words that choose a Gymnasium environment."""
    if env is None:
        return []
    if not isinstance(env, str):
        from sim.adapters.gymnasium_make import register

        env = register(env)
    return ["env=gymnasium", f"env.id={env}"]


def _check_env(env: Any) -> None:
    if not isinstance(getattr(env, "spec", None), EnvSpec):
        raise ConfigError(
            f"expected an environment that make_env made, or another BatchEnv, got {env!r}"
        )


def _checked(choices: Sequence[Any]) -> Sequence[str]:
    """Words of a call, which must be text."""
    for word in choices:
        if not isinstance(word, str):
            raise ConfigError(
                f"expected words such as 'task=reach' as arguments of their own, got {word!r}; an "
                "environment is env=..."
            )
    return choices


def _fields(values: dict[str, Any]) -> list[str]:
    """Words of the fields that were given."""
    return [f"{name}={value}" for name, value in values.items() if value is not None]
