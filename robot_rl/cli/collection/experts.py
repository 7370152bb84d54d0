"""Options of a collection, the experts that act in it, and the episodes that each of them plays."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.compose import from_plain, to_plain
from configs.schema import RunConfig
from policies.networks.images import ImageEncoderKind
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.cli.components import load_policy, seen_groups
from robot_rl.cli.viewing import (
    config_of_bundle,
    policy_agent,
    random_agent,
    scripted_agent,
    zero_agent,
)
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.training.runs.run_folder import RunFolder
from sim.env import SimEnv
from sim.rendering.player import Agent

SIMPLE = ("scripted", "random", "zero")
"""Experts that need no folder."""


@dataclass(kw_only=True)
class CollectOptions:
    """Options of the command beside the fields of a run."""

    out: str = ""
    """Folder of the data set."""
    expert: str = "scripted"
    """scripted, random, zero, the folder of a run, of one of its checkpoints or of a bundle; or
    several with shares, as scripted:0.5,random:0.5."""
    episodes: int = 50
    """That are to be in the data set by this command, those of before included."""
    only_successes: bool = False
    """Leave out episodes that did not meet the task's success rule."""
    attempts: int = 0
    """Episodes to play at most for successes; 0 for ten times as many as are wanted."""
    noise: float = 0.1
    """Standard deviation of the Gaussian noise on actions; random actions have enough of their
    own."""
    bursts: float = 0.0
    """Chance per step that a random action begins, which is held for `burst_steps`."""
    burst_steps: int = 5
    """Control steps that such an action is held."""
    noise_seconds: float = 1.0
    """Time from an episode's beginning in which actions are disturbed [s]; inf for all of it."""
    starts: str = "evaluation"
    """evaluation or training: where episodes begin."""
    states: bool = False
    """Store the states of the simulation too, for training.snapshots."""
    words: str = ""
    """Task in words, stored with every episode; the task's name if empty."""
    append: bool = False
    """Go on with the data set if it exists."""

    def __post_init__(self) -> None:
        for name, lowest in (("episodes", 1), ("attempts", 0), ("burst_steps", 1)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise must be 0 or more, got {self.noise:g}")
        if not 0 <= self.bursts <= 1:
            raise ConfigError(f"bursts must lie in [0, 1], got {self.bursts:g}")
        if not self.noise_seconds >= 0:
            raise ConfigError(f"noise_seconds must be 0 or more, got {self.noise_seconds:g}")
        if self.starts not in ("evaluation", "training"):
            raise ConfigError(f"starts must be evaluation or training, got '{self.starts}'")
        read_shares(self.expert)

    @property
    def most_attempts(self) -> int:
        """Episodes to play at most."""
        return self.attempts or 10 * self.episodes


@dataclass(frozen=True)
class Share:
    """A part of the episodes."""

    expert: str
    """Expert that plays them."""
    share: float


def read_shares(text: str) -> list[Share]:
    """Experts and the share of the episodes that each plays.

    Args:
        text: A single name, or names with shares: `scripted:0.5,random:0.5`.

    Raises:
        ConfigError: A share is missing, or they are not of one whole.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and _share(parts[0]) is None:
        return [Share(_named(parts[0], text), 1.0)]
    found: list[Share] = []
    for part in parts:
        share = _share(part)
        if share is None:
            raise ConfigError(
                f"expert '{text}': '{part}' has no share; expected a number above 0 behind a colon "
                "for each, as scripted:0.5,random:0.5"
            )
        found.append(Share(_named(part.rpartition(":")[0], text), share))
    total = sum(one.share for one in found)
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"the shares of expert '{text}' add up to {total:g}; expected 1")
    if len({one.expert for one in found}) < len(found):
        raise ConfigError(f"expert '{text}' names one twice; expected each once")
    return found


def quoted(arguments: Sequence[str]) -> list[str]:
    """A command line whose experts may have commas, which would else ask for a sweep."""
    return [
        f'expert="{text.partition("=")[2]}"'
        if text.startswith("expert=") and not text.startswith(('expert="', "expert='"))
        else text
        for text in arguments
    ]


def _share(part: str) -> float | None:
    name, colon, number = part.rpartition(":")
    try:
        share = float(number) if colon and name else 0.0
    except ValueError:
        return None
    return share if 0 < share < math.inf else None


def _named(name: str, text: str) -> str:
    if not name:
        raise ConfigError(f"expert '{text}' names nobody; expected scripted, random, zero, or a "
                          "folder")  # fmt: skip
    return name


@dataclass(frozen=True, kw_only=True)
class Expert:
    """One who acts."""

    name: str
    """As it is stored with every episode."""
    identity: str
    """Digest of its weights, by which it differs from others of this name."""
    disturbed: bool
    """False where actions are random anyway."""
    make: Callable[[int], Agent]
    """By the seed of a round."""


def make_expert(name: str, env: BatchEnv, config: RunConfig) -> Expert:
    """An expert by its name, or by the folder of a run, a checkpoint or a bundle.

    Raises:
        ConfigError: It is none of these, or cannot act in these envs.
        BundleError: The bundle is damaged.
        CheckpointError: There is no such checkpoint, or it is damaged.
        SpecMismatchError: The policy is for another robot or observation.
    """
    if name == "random":
        return Expert(name=name, identity="", disturbed=False,
                      make=lambda seed: random_agent(env.spec, seed))  # fmt: skip
    if name == "zero":
        return _lasting(name, "", zero_agent(env.spec))
    if name == "scripted":
        return _lasting(name, "", scripted_agent(_own(env, "a scripted expert")))
    path = Path(name)
    if not path.is_dir():
        told = unknown_name("expert", name, SIMPLE)
        raise ConfigError(f"{told}, or the folder of a run, of a checkpoint or of a bundle")
    if (path / "spec.json").is_file():
        worlds = _own(env, "a bundle")
        own = config_of(name)
        assert own is not None
        _check_alike(own, config, path)
        policy = BundlePolicy.load(path, worlds, None)
        digest = hashlib.sha256((path / "policy.onnx").read_bytes()).hexdigest()
        return _lasting(f"bundle of {_run_of(path.resolve()).name}", digest, policy_agent(policy))
    return _trained(path, env, config)


def config_of(name: str) -> RunConfig | None:
    """Configuration of the run that an expert is from; None of those that are from none.

    Raises:
        ConfigError: The folder is of no run.
        BundleError: The bundle does not say it.
    """
    path = Path(name)
    if name in SIMPLE or not path.is_dir():
        return None
    if (path / "spec.json").is_file():
        return config_of_bundle(path)
    return from_plain(RunFolder.open(_run_of(path)).config())


class Casting:
    """Assignment of episodes to experts, as near to the shares as whole episodes allow."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self._shares = [one.share for one in shares]
        self._counts = [0] * len(shares)
        self._cast: list[int] = []

    def of(self, first: int, count: int) -> list[int]:
        """Number of the expert of each episode from `first` on."""
        while len(self._cast) < first + count:
            played = len(self._cast) + 1
            owed = [s * played - c for s, c in zip(self._shares, self._counts, strict=True)]
            chosen = owed.index(max(owed))
            self._counts[chosen] += 1
            self._cast.append(chosen)
        return self._cast[first : first + count]


def _trained(path: Path, env: BatchEnv, config: RunConfig) -> Expert:
    """A policy out of a run: its best checkpoint, or the one that was named."""
    run = RunFolder.open(_run_of(path))
    own = from_plain(run.config())
    _check_alike(own, config, run.path)
    which = "best" if path == run.path else str(path)
    policy = load_policy(run, own, env.spec, which)
    found = hashlib.sha256()
    for key, value in policy.module.state_dict().items():
        found.update(key.encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    agent = policy_agent(policy.module.to(env.spec.device))
    return _lasting(f"{run.path.resolve().name} at step {policy.step}", found.hexdigest(), agent)


def _sees_images(run: RunConfig) -> bool:
    images = getattr(run.learner, "images", None)
    return images is not None and images.encoder is not ImageEncoderKind.none


def _check_alike(run: RunConfig, config: RunConfig, path: Path) -> None:
    """Refuse a policy that would see or move something else than it was trained with."""
    one, two = to_plain(run), to_plain(config)
    names = ["env", "robot.spec", "robot.action", "task.actor", "task.action",
             "robot.physics_dt", "robot.decimation", "robot.limit_target_speed"]  # fmt: skip
    if _sees_images(run):
        names += ["robot.cameras"]
    else:
        for plain in (one, two):  # whatever is drawn beside what it sees
            for field in ("cameras", "renderer"):
                plain["env"].pop(field, None)
    if seen_groups(run) != ("actor",):  # what a critic sees are parts of ranges, too
        names += ["task.critic", "task.randomization"]
    for name in names:
        group, _, field = name.partition(".")
        theirs, ours = (
            (plain[group] or {}).get(field) if field else plain[group] for plain in (one, two)
        )
        if theirs != ours:
            raise SpecMismatchError(
                f"the policy of {path} was trained with another {name} than these envs have; leave "
                f"{'env' if group == 'env' else 'task and robot'} out, and its own are taken"
            )
    if run.robot is None or config.robot is None:
        return
    theirs, ours = (one.robot.action_map(one.task).to_dict() for one in (run, config))
    if theirs != ours:
        raise SpecMismatchError(
            f"an action of the policy of {path} moves the robot otherwise: {theirs}, and here "
            f"{ours}; leave task and robot out, and its own are taken"
        )


def _run_of(path: Path) -> Path:
    """Folder of the run that a checkpoint or a bundle lies in."""
    if path.parent.name == "checkpoints":
        return path.parent.parent
    return path.parent if (path / "spec.json").is_file() else path


def _own(env: BatchEnv, who: str) -> SimEnv:
    if not isinstance(env, SimEnv):
        raise ConfigError(
            f"{who} acts in envs of our own (env=sim) only; elsewhere take random, zero, or the "
            "folder of a run"
        )
    return env


def _lasting(name: str, identity: str, agent: Agent) -> Expert:
    """One that begins every round alike."""
    return Expert(name=name, identity=identity, disturbed=True, make=lambda _: agent)
