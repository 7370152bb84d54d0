"""Agents that act while a person looks on, and what is shown of them: a page or a video."""

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from configs.builders import run_device
from configs.catalog import GROUPS
from configs.compose import changed_keys, compose, from_plain
from configs.schema import RunConfig, component_of, make_env
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import BundleError, ConfigError, unknown_name
from robot_rl.core.seeding import derive_seed
from sim.env import SimEnv
from sim.experts.catalog import Expert, scripted_expert
from sim.viewing.player import Agent, Player

_DEFAULTS = ("num_envs=4", "device=cpu")
SIMPLE = ("zero", "random", "scripted")
"""Agents that need no training."""


def make_agent(name: str, env: SimEnv, *, seed: int) -> Agent:
    """An agent by its name, or the one in a bundle's folder.

    Raises:
        ConfigError: It is neither, or the task has no scripted expert.
        BundleError: The folder is no bundle, or it is damaged.
        SpecMismatchError: The bundle is for another robot or control period.
    """
    if name == "zero":
        return ZeroAgent(env.spec)
    if name == "random":
        return RandomAgent(env.spec, seed)
    if name == "scripted":
        return ScriptedAgent(scripted_expert(env))
    if not Path(name).is_dir():
        told = unknown_name("agent", name, SIMPLE)
        raise ConfigError(f"{told}, or the folder of a bundle that export wrote")
    return BundleAgent(BundlePolicy.load(Path(name), env, None))


class ZeroAgent:
    """The middle of every action: rotors at half speed, joints at their default pose."""

    def __init__(self, spec: EnvSpec) -> None:
        """Make the action once."""
        self._action = torch.zeros(spec.num_envs, spec.action_size, device=spec.device)

    def act(self, obs: Obs) -> Tensor:
        """Zero."""
        return self._action

    def begin(self, mask: Tensor) -> None:
        """Nothing is remembered."""


class RandomAgent:
    """Uniform in [-1, 1], anew in every step."""

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        """Seed the stream."""
        self._spec = spec
        self._generator = torch.Generator(device=spec.device)
        self._generator.manual_seed(derive_seed(seed, "random agent"))

    def act(self, obs: Obs) -> Tensor:
        """Anything."""
        spec = self._spec
        shape = (spec.num_envs, spec.action_size)
        return 2 * torch.rand(shape, generator=self._generator, device=spec.device) - 1

    def begin(self, mask: Tensor) -> None:
        """The stream goes on."""


class ScriptedAgent:
    """Rules over the true state of the worlds."""

    def __init__(self, expert: Expert) -> None:
        """Hold the rules."""
        self._expert = expert

    def act(self, obs: Obs) -> Tensor:
        """Action of the rules, which read the state of the envs themselves."""
        return self._expert.act()

    def begin(self, mask: Tensor) -> None:
        """Nothing is remembered."""


class PolicyAgent:
    """A deterministic policy."""

    def __init__(self, act: Callable[[Obs], Tensor]) -> None:
        """Hold the policy, groups (N, ...) -> (N, A)."""
        self._act = act

    @torch.no_grad()
    def act(self, obs: Obs) -> Tensor:
        """Action of the policy."""
        return self._act(obs)

    def begin(self, mask: Tensor) -> None:
        """Tell a policy that remembers."""
        begin_episodes(self._act, mask)


class BundleAgent:
    """A bundle, fed as on a robot."""

    def __init__(self, policy: BundlePolicy) -> None:
        """Hold the policy."""
        self._policy = policy

    def act(self, obs: Obs) -> Tensor:
        """Action of the bundle, given the measured values."""
        return self._policy(obs)

    def begin(self, mask: Tensor) -> None:
        """Forget the episodes that ended."""
        self._policy.begin(mask)


def film(
    player: Player, path: Path, *, title: str, worlds: int, seconds: float = 0.0, longest: float
) -> dict[str, str]:
    """Film the first worlds and draw their contact sheet; returns where each lies.

    Args:
        player: Plays on from where it is.
        path: The mp4 to write; the sheet lies beside it as a PNG.
        title: Written into both.
        worlds: How many are seen; of fewer, all.
        seconds: Length of the film [s]; 0 for one episode, but `longest` at most.
        longest: Of a film whose length nobody chose [s].

    Raises:
        RenderUnavailableError: Nothing can be drawn on this machine.
        StorageError: A file cannot be written.
    """
    from sim.film.recording import record_worlds  # drawing is not for all
    from sim.film.worlds_film import contact_sheet, render_film

    length = seconds or min(player.env.task.episode_steps * player.control_dt, longest)
    seen = min(worlds, player.env.spec.num_envs)
    recording = record_worlds(player, worlds=seen, seconds=length)
    return {
        "video": str(render_film(recording, path, title=title)),
        "contact sheet": str(contact_sheet(recording, path.with_suffix(".png"), title=title)),
    }


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Composed envs and their title."""

    config: RunConfig
    """Task, robot, number of worlds, seed."""
    title: str
    """Task, robot and agent in a line."""


def configure(agent: str, overrides: Sequence[str]) -> Shown:
    """Compose the worlds; a bundle brings its own unless a task or a robot is named.

    Raises:
        ConfigError: A choice, a key or a value is wrong, or these worlds cannot be drawn.
    """
    named = {key for key in changed_keys(overrides) if key in GROUPS}
    overrides = [*_DEFAULTS, *overrides]
    if agent in SIMPLE or named or not Path(agent).is_dir():
        config = compose(overrides).config
    else:
        config = from_plain(_config_of(Path(agent)), overrides)
    kind = component_of(config.env).name
    if kind != "sim":
        raise ConfigError(
            f"worlds of env={kind} cannot be shown: only our own (env=sim) tell what is to be drawn"
        )
    task, robot = component_of(config.task).name, config.robot.spec.name
    who = agent if agent in SIMPLE else f"bundle {Path(agent).resolve().name}"
    return Shown(config=config, title=f"{task}, {robot}, {who}")


def make_player(config: RunConfig, agent: str, *, evaluation: bool) -> Player:
    """Worlds and who acts in them.

    Args:
        config: From `configure`.
        agent: See `make_agent`.
        evaluation: Begin at the task's evaluation starts.
    """
    torch.set_num_threads(config.threads)
    env = make_env(
        config, num_envs=config.num_envs, device=run_device(config), seed=config.seed,
        evaluation=evaluation,
    )  # fmt: skip
    assert isinstance(env, SimEnv)
    return Player(env, make_agent(agent, env, seed=config.seed), seed=config.seed)


def show(player: Player, title: str, port: int) -> None:
    """Open the page and play until Ctrl-C.

    Raises:
        ConfigError: The port is taken.
    """
    from sim.browser.viewer import BrowserViewer

    viewer = BrowserViewer(player, title=title, port=port)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` had it ignored
    try:
        print(
            f"{title}\nopen {viewer.address} in a browser of this machine; Ctrl-C ends it",
            flush=True,
        )
        viewer.run(until=lambda: False)
    except KeyboardInterrupt:
        print("closed")
    finally:
        viewer.close()


def _config_of(bundle: Path) -> dict[str, object]:
    """Configuration of the run that a bundle was exported from."""
    if not (bundle / "spec.json").is_file():
        raise BundleError(
            f"{bundle} is not a policy bundle: it has no spec.json; give the folder that export "
            "wrote"
        )
    try:
        return json.loads((bundle / "provenance.json").read_text())["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"{bundle} does not say which task it was trained for (provenance.json); name them: "
            "task=... robot=..."
        ) from error
