"""From a command line to worlds that are looked at."""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from configs.builders import run_device
from configs.catalog import GROUPS
from configs.compose import changed_keys, compose, from_plain
from configs.schema import RunConfig, component_of, make_env
from robot_rl.cli.viewing.agents import SIMPLE, make_agent
from robot_rl.core.errors import BundleError, ConfigError
from sim.env import SimEnv
from sim.viewing.player import Player

_DEFAULTS = ("num_envs=4", "device=cpu")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What was asked for."""

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
