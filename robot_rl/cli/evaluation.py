"""Evaluation of a trained policy: an episode in every env, its statistics, its files, its plot."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.builders import pick_device
from configs.compose import changed_keys, compose, from_plain, to_plain
from configs.schema import RunConfig, component_of, make_env
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.cli.command_line import missing_package
from robot_rl.cli.components import (
    TrainedPolicy,
    kept_base,
    load_policy,
    make_learner,
    run_path,
    with_base,
)
from robot_rl.cli.learned_reward import episode_augmenter, kept_reward, with_reward
from robot_rl.cli.viewing import (
    SIMPLE,
    ActingAgent,
    config_of_bundle,
    make_agent,
    make_player,
    write_video,
)
from robot_rl.core import quaternion
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, RobotRLError, unknown_name
from robot_rl.core.transition import Batch
from robot_rl.learners.sac import SAC
from robot_rl.training.evaluation import Evaluation, evaluate
from robot_rl.training.prior import open_prior
from robot_rl.training.reporting.console import format_number, format_percent
from robot_rl.training.reporting.statistics import calibrate
from robot_rl.training.runs.provenance import config_hash, git_state, package_versions
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.durable import replace_json, storage_errors
from robot_rl.training.trainer import VALIDATION_SEED
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.env import SimEnv


@dataclass(kw_only=True)
class EvaluateOptions:
    """Options of the command beside the fields of the run."""

    run: str = ""
    """Folder of the run, or `latest`; not needed with a bundle."""
    runs: str = "runs"
    """Folder of all runs, in which `latest` is looked for."""
    checkpoint: str = "best"
    """best, latest, or the folder of a checkpoint."""
    bundle: str = ""
    """Folder of a bundle to fly instead of the checkpoint."""
    agent: str = ""
    """zero, random, scripted or geometric: acts instead of the policy, in its envs."""
    episodes: int = 1000
    """N: episodes, one per env."""
    seed: int = 2_000_003
    """Chooses starts, goals, physical parameters and noise."""
    device: str = "cpu"
    """Device of the envs and the policy."""
    threads: int = 1
    """CPU threads of torch."""
    video: bool = True
    """Plot flights and render a video."""
    out: str = ""
    """Folder of the result."""
    robustness: bool = False
    """Play once more under each change that its robot has an axis for."""

    def __post_init__(self) -> None:
        for name, lowest in (("episodes", 1), ("threads", 1), ("seed", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if not self.run and not self.bundle and not self.agent:
            raise ConfigError(
                "run is empty; say which: run=runs/..., run=latest or bundle=..., or an agent that "
                f"needs none: task=reach agent={SIMPLE[0]}"
            )
        if self.out:  # said before anything is played
            _check_folder(Path(self.out))


def _check_folder(place: Path) -> None:
    for one in (place, *place.parents):
        try:
            is_file = one.exists() and not one.is_dir()
        except OSError as error:
            raise ConfigError(f"out={place} cannot be written: {error.strerror}") from error
        if is_file:
            raise ConfigError(f"out={place}: {one} is a file; expected a folder to write")


_FILMED, _LONGEST_FILM = 2, 10.0
"""Envs in the video of a bundle, and its longest time [s]."""
STATISTICS = ("mean", "median", "p95", "max")
"""Quantiles that are reported of a distribution."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Episodes that were played, and their results."""

    run: RunFolder | None
    """None for a bundle that lies in no run's folder, and for an agent in a task's envs."""
    config: RunConfig
    env: BatchEnv
    policy: TrainedPolicy | None
    """Of the run."""
    result: Evaluation
    tilt: Tensor | None
    """Lean at the start, (N,), [rad]; None for a fixed base and in foreign environments."""
    bundle: Path | None = None
    """The bundle that flew; None where torch did."""
    agent: str = ""
    """Acted instead of the policy."""
    bundle_difference: float = 0.0
    """Largest difference between an action of the bundle and one of torch."""

    @property
    def title(self) -> str:
        """Name of the run, of the bundle, or of task and robot."""
        if self.run is not None:
            return self.run.path.name
        if self.bundle is not None:
            return self.bundle.resolve().name
        assert self.config.robot is not None
        return f"{component_of(self.config.task).name}_{self.config.robot.spec.name}"

    @property
    def caption(self) -> str:
        """Title of plots: the run or the bundle, and what acted instead of its policy."""
        return f"{self.title}, agent {self.agent}" if self.agent else self.title

    @property
    def flown(self) -> str:
        """Agent, or folder of the bundle or the checkpoint, that acted."""
        if self.agent or self.bundle is not None:
            return self.agent or str(self.bundle)
        assert self.policy is not None
        return str(self.policy.checkpoint)

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Distribution of every final metric over the complete episodes."""
        complete = self.result.complete
        return {name: _describe(v[complete]) for name, v in self.result.metrics.items()}


def _describe(values: Tensor) -> dict[str, float]:
    values = values[values.isfinite()].double()
    if values.numel() == 0:
        return dict.fromkeys(STATISTICS, float("nan"))
    numbers = (values.mean(), values.quantile(0.5), values.quantile(0.95), values.max())
    return dict(zip(STATISTICS, map(float, numbers), strict=True))


def find_config(
    options: EvaluateOptions, overrides: Sequence[str]
) -> tuple[RunFolder | None, RunConfig]:
    """The run that is evaluated, and its config.

    The run is None for a bundle that lies in no run's folder, and for an agent in the envs of a
    task that the overrides choose.

    Raises:
        ConfigError: There is no such run or bundle, or an override is wrong.
    """
    if not options.run and not options.bundle:
        config = compose(overrides).config
        if (kind := component_of(config.env).name) != "sim":
            raise ConfigError(
                f"agent={options.agent} acts on robots of our own, in env=sim; got env={kind}"
            )
        return None, config
    bundle = Path(options.bundle) if options.bundle else None
    if bundle is not None and not bundle.is_dir():
        raise ConfigError(f"bundle '{bundle}' is not a folder; give the one that export wrote")
    if bundle is None or options.run:
        run = RunFolder.open(run_path(options.run, options.runs))
    elif (bundle.parent / "config.yaml").is_file():
        run = RunFolder.open(bundle.parent)
    else:
        return None, config_of_bundle(bundle, overrides)
    return run, from_plain(run.config(), overrides)


def check_plays(run: RunFolder, config: RunConfig) -> None:
    """Refuse a run whose policy cannot play in the envs of its task.

    Raises:
        ConfigError: Its actions displaced the end effector of a robot, or nothing says what they
            did there.
    """
    if not run.is_of_learn:
        return
    from robot_rl.cli.learning.bundling import robot_of  # the link: an extra

    if robot_of(run, config) is not None:
        raise ConfigError(
            f"{run.path} is a run of robot-rl learn whose policy displaces an end effector, and "
            "the envs of its task do not; evaluate it in the console of robot-rl learn "
            f"run={run.path}, or deploy it on a simulated robot: robot-rl export run={run.path}, "
            f"then robot-rl deploy bundle={run.bundle}"
        )


def run_trial(options: EvaluateOptions, overrides: Sequence[str]) -> Trial:
    """Play one episode per world."""
    if options.seed == VALIDATION_SEED:
        raise ConfigError(
            f"seed={VALIDATION_SEED} gives the starts that the best checkpoint was chosen on; "
            "take another seed for a test"
        )
    chosen = () if options.run or options.bundle else ("task", "robot", "env")
    for key in changed_keys(overrides):
        if key not in chosen and not key.startswith(("env.", "task.", "robot.")):
            raise ConfigError(
                f"'{key}' changes nothing in an evaluation; what can be changed are its options "
                f"({', '.join(asdict(options))}) and fields of the task and the robot "
                "(task.<field>, robot.<field>), or of a foreign environment (env.<field>)"
            )
    torch.set_num_threads(options.threads)
    bundle = Path(options.bundle) if options.bundle else None
    run, config = find_config(options, overrides)
    if run is not None and not options.agent:
        check_plays(run, config)
    env = make_env(
        config,
        num_envs=options.episodes,
        device=pick_device(options.device),
        seed=options.seed,
        evaluation=True,
    )
    policy = None
    if run is not None and not options.agent:
        policy = load_policy(run, config, env.spec, options.checkpoint)
    env.reset(seed=options.seed)  # `evaluate` begins at the same starts
    tilt = None
    if isinstance(env, SimEnv) and "orientation_w" in env.simulation.true_state.fields:
        tilt = quaternion.tilt(env.simulation.true_state.orientation_w)
    if options.agent:
        act = _agent_of(options, env)
        result = evaluate(env, act, seed=options.seed)
        return Trial(
            run=run, config=config, env=env, policy=None, result=result, tilt=tilt,
            bundle=bundle, agent=options.agent,
        )  # fmt: skip
    if bundle is None:
        assert policy is not None
        result = evaluate(env, policy.module, seed=options.seed)
        return Trial(run=run, config=config, env=env, policy=policy, result=result, tilt=tilt)
    if not isinstance(env, SimEnv):
        raise ConfigError(
            f"the bundle {bundle} comes from env={component_of(config.env).name}, and bundles are "
            "played in our own envs alone: evaluate the run without bundle=..."
        )
    flyer = BundlePolicy.load(bundle, env, policy.module if policy else None)
    result = evaluate(env, flyer, seed=options.seed, on_step=flyer.on_step)
    return Trial(
        run=run, config=config, env=env, policy=policy, result=result, tilt=tilt,
        bundle=bundle, bundle_difference=flyer.difference,
    )  # fmt: skip


def _agent_of(options: EvaluateOptions, env: BatchEnv) -> ActingAgent:
    if options.agent not in SIMPLE:
        raise ConfigError(unknown_name("agent", options.agent, SIMPLE))
    if not isinstance(env, SimEnv):
        raise ConfigError(f"agent={options.agent} acts on robots of our own; this one has none")
    return make_agent(options.agent, env, seed=options.seed)


def trial_lines(trial: Trial) -> list[str]:
    """Lines of a trial for the terminal."""
    result = trial.result
    low, high = result.success_interval
    done = int((result.terminated & result.success).sum())
    lost = int((result.terminated & ~result.success).sum())
    ended = f"terminated   {done + lost}" + (f" ({lost} lost)" if done else "")
    spread = format_number(float(result.returns.std(correction=0)))
    least, most = map(format_number, result.return_interval)
    interval = f"95 % interval {least} to {most}; " if result.returns.numel() > 1 else ""
    lines = [
        trial.flown,
        f"success      {format_percent(result.success_rate)} of {result.success.numel()} episodes "
        f"(95 % interval {format_percent(low)} to {format_percent(high)})"
        if trial.env.spec.judges_success
        else f"success      not judged by this environment; {result.success.numel()} episodes",
        f"{ended}   return {format_number(float(result.returns.mean()))} "
        f"({interval}deviation {spread})   "
        f"episode {float(result.seconds.mean()):.2f} s",
    ]
    if given_up := int(result.gave_up.sum()):
        lines.append(f"given up     {given_up}: their simulation diverged; they count as lost")
    if trial.statistics:
        lines.append(f"{'at the end [SI]':<16}" + "".join(f"{word:>10}" for word in STATISTICS))
    for name, values in trial.statistics.items():
        cells = "".join(f"{format_number(values[word]):>10}" for word in STATISTICS)
        lines.append(f"  {name:<14}{cells}")
    if trial.bundle is not None and trial.policy is not None:
        lines.append(f"actions of the bundle and of torch differ by {trial.bundle_difference:.1e}")
    return lines


def save_trial(trial: Trial, options: EvaluateOptions, overrides: Sequence[str]) -> dict[str, str]:
    """Write result, plot and, if asked, flights; returns where each lies.

    Raises:
        StorageError: The folder cannot be written.
    """
    folder = Path(options.out) if options.out else results_folder(trial, options)
    with storage_errors("write the evaluation", folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_json(folder / "result.json", _record(trial, options, overrides))
    found = {"result": str(folder / "result.json")}
    try:
        from robot_rl.cli.pictures import plot_evaluation  # matplotlib: not for all

        plot_evaluation(
            folder / "plot.png", trial.caption, trial.result, trial.tilt,
            judged=trial.env.spec.judges_success,
        )  # fmt: skip
        found["plot"] = str(folder / "plot.png")
    except ModuleNotFoundError as error:
        found["plot"] = f"none: {missing_package(error, 'the plot') or error}"
    if options.agent and options.video:
        found["video"] = f"none: robot-rl view agent={options.agent} shows it"
    elif options.video:
        found |= _film(folder, trial, options.seed)
    return found


def _film(folder: Path, trial: Trial, seed: int) -> dict[str, str]:
    """Flights and video, or why there are none."""
    try:
        if trial.policy is None:
            return _film_of_bundle(folder, trial, seed)
        policy = trial.policy.module
        if isinstance(trial.env, SimEnv):
            from robot_rl.cli.pictures import draw_policy  # matplotlib: not for all

            return draw_policy(folder, trial.config, trial.env, policy, seed=seed)
        if not isinstance(trial.config.env, GymnasiumConfig):
            return {"video": "none: worlds of this package are not filmed"}
        from sim.adapters.gymnasium_film import film_episode  # gymnasium: not for all

        return film_episode(folder, trial.config.env, policy, seed=seed)
    except ModuleNotFoundError as error:
        return {"video": f"none: {missing_package(error, 'the video') or error}"}
    except RobotRLError as error:
        return {"video": f"none: {error}"}


def _film_of_bundle(folder: Path, trial: Trial, seed: int) -> dict[str, str]:
    """A video of a few envs of their own: a bundle runs as many robots as it was loaded for."""
    config = replace(trial.config, num_envs=_FILMED, seed=seed, device="cpu")
    player = make_player(config, str(trial.bundle), evaluation=True)
    path = folder / "videos" / "episodes.mp4"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(player.env):
        return write_video(player, path, title=trial.title, num_envs=_FILMED, longest=_LONGEST_FILM)


def _record(trial: Trial, options: EvaluateOptions, overrides: Sequence[str]) -> dict[str, Any]:
    result, policy = trial.result, trial.policy
    low, high = result.success_interval
    config = to_plain(trial.config)
    return {
        "run": None if trial.run is None else trial.run.path.name,
        "checkpoint": None
        if policy is None
        else {"step": policy.step, "validation_score": policy.score},
        "bundle": None if trial.bundle is None else str(trial.bundle),
        "agent": trial.agent or None,
        "bundle_action_difference": trial.bundle_difference if trial.bundle and policy else None,
        "options": asdict(options),
        "overrides": list(overrides),
        "judges_success": trial.env.spec.judges_success,
        "success": {"rate": result.success_rate, "low": low, "high": high, "confidence": 0.95},
        "episodes": result.success.numel(),
        "terminated": int(result.terminated.sum()),
        "given_up": int(result.gave_up.sum()),
        "mean_return": float(result.returns.mean()),
        "return_interval": list(result.return_interval) if result.returns.numel() > 1 else None,
        "return_deviation": float(result.returns.std(correction=0)),
        "mean_episode_seconds": float(result.seconds.mean()),
        "metrics": finite(trial.statistics),
        "config_sha256": config_hash(config),
        "git": git_state(Path(__file__).parent),
        "packages": package_versions(),
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def results_folder(trial: Trial, options: EvaluateOptions, kind: str = "") -> Path:
    """A folder that does not exist yet: of the run, or of the bundle in `runs`.

    Args:
        kind: Part of its name; bundle or the checkpoint if empty.
    """
    kind = "_".join(filter(None, (trial.agent, kind)))
    kind = kind or ("bundle" if trial.bundle else Path(options.checkpoint).name)
    stem = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{kind}_{options.episodes}"
    if trial.run:
        root = trial.run.path / "evaluations"
    else:
        root = Path(options.runs) / "evaluations" / trial.title
    taken = sorted(root.glob(f"{stem}*"))
    return root / (f"{stem}_{len(taken) + 1}" if taken else stem)


def finite(statistics: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """JSON has no NaN: null where there was nothing to measure."""
    return {
        name: {word: value if value == value else None for word, value in values.items()}
        for name, values in statistics.items()
    }


def compare_critics(path: Path, which: str, data: str, parts: int) -> Iterator[str]:
    """Lines of a table.

    Args:
        path: Folder of the run.
        which: Its checkpoint: latest, best, or the folder of one.
        data: Stored steps; empty takes those that the run learned from.
        parts: Parts that every episode is cut into.

    Raises:
        ConfigError: The learner has no such critics, or there are no stored steps.
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    torch.set_num_threads(1)
    run = RunFolder.open(path)
    config = kept_reward(run, kept_base(run, from_plain(run.config())))
    stored = replace(config.training.prior, run=data or config.training.prior.run)
    if not stored.run:
        raise ConfigError(
            f"the run {run.path} learned from no stored steps; name some: data=<folder of a data "
            "set, or of a run with a saved replay>"
        )
    env = make_env(config, num_envs=1, device=pick_device("cpu"), seed=0, evaluation=False)
    augment = episode_augmenter(config, env.spec)
    env = with_base(config, with_reward(config, env))
    learner = make_learner(config, env.spec)
    if not isinstance(learner, SAC):
        raise ConfigError(
            f"learner={component_of(config.learner).name} has no critics that could be asked here; "
            "expected one of the family of SAC, such as sac, rlpd, residual, cql or h2o"
        )
    checkpoint = CheckpointStore(run.checkpoints, read_only=True).load(which)
    learner.load_state_dict(checkpoint.state["learner"])
    groups = (*learner.actor_groups, *learner.critic_groups)
    own = ReplayBuffer(
        env.spec, groups, capacity=learner.n_step, gamma=learner.gamma, n_step=learner.n_step,
        compile=learner.compile,
    )  # fmt: skip
    if env.spec.reward_weights:
        own.set_reward_weights(torch.tensor(env.spec.reward_weights))
    prior = open_prior(stored, own, env.spec, groups, seed=0, augment=augment)
    yield f"{run.path.name}, step {checkpoint.step:,}; {prior.sentence}"
    yield from _table(learner, prior.replay, parts)


def _table(learner: SAC, replay: ReplayBuffer, parts: int) -> Iterator[str]:
    scale = float(learner.reward_scale.scale(torch.ones(1)))

    @torch.no_grad()
    def value(batch: Batch) -> tuple[Tensor, Tensor]:
        """In the rewards' own size."""
        of = learner.values.expectation
        batch = batch if learner.images is None else learner.images.encoded(batch)
        action = batch.action[:, : learner.action_size]  # without a gripper that has its own critic
        stored = of(learner.critic(batch.obs, action))
        policy = of(learner.critic(batch.obs, learner.actor(batch.obs))).mean(0)
        return stored / scale, policy / scale

    names = ("of the episode", "rows", "return", "value", "of policy", "spread", "correlation")
    yield "  ".join(f"{name:>14}" for name in names)
    for one in calibrate(replay, value, parts=parts):
        cells = (
            f"{one.begin:.0%} to {one.end:.0%}", f"{one.rows:,}", f"{one.returned:.4g}",
            f"{one.stored:.4g}", f"{one.policy:.4g}", f"{one.disagreement:.3g}",
            f"{one.correlation:.2f}",
        )  # fmt: skip
        yield "  ".join(f"{cell:>14}" for cell in cells)
