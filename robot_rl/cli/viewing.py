"""Agents that act while a person looks on, and what is shown of them: a page or a video."""

import os
import signal
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from configs.builders import run_device
from configs.catalog import GROUPS
from configs.compose import changed_keys, compose, from_plain, robot_description
from configs.schema import RunConfig, component_of, make_env
from policies.bundle import read_provenance
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.cli.learned_reward import with_reward
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import BundleError, ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.seeding import derive_seed
from robot_rl.rewards.env import (
    ClassifierJudge,
    LearnedRewardEnv,
    RewardConfig,
    StepJudge,
    ViceConfig,
)
from sim.env import SimEnv
from sim.experts import scripted_expert
from sim.rendering.player import Player
from sim.robots.joint_robot import PhysicsEngine

if TYPE_CHECKING:  # drawing is not for all
    from sim.rendering.recording import EnvRecording

_DEFAULTS = ("num_envs=4", "device=cpu")
SIMPLE = ("zero", "random", "scripted", "geometric")
"""Agents that need no training."""


def make_agent(name: str, env: SimEnv, *, seed: int) -> "ActingAgent":
    """An agent by its name, or the one in a bundle's folder.

    Raises:
        ConfigError: It is neither, or the task has no scripted expert or no multirotor.
        BundleError: The folder is no bundle, or it is damaged.
        SpecMismatchError: The bundle is for another robot or control period.
    """
    if name == "zero":
        return zero_agent(env.spec)
    if name == "random":
        return random_agent(env.spec, seed)
    if name == "scripted":
        return scripted_agent(env)
    if name == "geometric":
        return geometric_agent(env)
    if not Path(name).is_dir():
        told = unknown_name("agent", name, SIMPLE)
        raise ConfigError(f"{told}, or the folder of a bundle that export wrote")
    return policy_agent(BundlePolicy.load(Path(name), env, None))


@dataclass(frozen=True)
class ActingAgent:
    """An agent made of a function of the observation, groups (N, ...) -> actions (N, A).

    It acts in a `Player`, and as a policy in an evaluation.
    """

    function: Callable[[Obs], Tensor]
    start: Callable[[Tensor], None] = lambda mask: None
    """Told where episodes begin, (N,) bool."""

    @torch.no_grad()
    def act(self, obs: Obs) -> Tensor:
        """Actions, (N, A)."""
        return self.function(obs)

    def __call__(self, obs: Obs) -> Tensor:
        """Actions, (N, A)."""
        return self.act(obs)

    def begin(self, mask: Tensor) -> None:
        """Episodes begin in the masked envs."""
        self.start(mask)


def zero_agent(spec: EnvSpec) -> ActingAgent:
    """The middle of every action: rotors at half speed, joints at their default pose."""
    action = torch.zeros(spec.num_envs, spec.action_size, device=spec.device)
    return ActingAgent(lambda obs: action)


def random_agent(spec: EnvSpec, seed: int) -> ActingAgent:
    """Uniform in [-1, 1], anew in every step."""
    generator = torch.Generator(device=spec.device)
    generator.manual_seed(derive_seed(seed, "random agent"))
    shape = (spec.num_envs, spec.action_size)
    return ActingAgent(
        lambda obs: 2 * torch.rand(shape, generator=generator, device=spec.device) - 1
    )


def scripted_agent(env: SimEnv) -> ActingAgent:
    """Rules, which read the true state of the envs themselves."""
    expert = scripted_expert(env)
    return ActingAgent(lambda obs: expert.act())


def geometric_agent(env: SimEnv) -> ActingAgent:
    """A controller of multirotors that knows the plant as it is described, and what is measured.

    Raises:
        ConfigError: The robot is no multirotor.
    """
    from sim.robots.multirotor_expert import NominalController
    from sim.robots.multirotor_simulation import MultirotorSimulation

    if not isinstance(env.simulation, MultirotorSimulation):
        raise ConfigError(
            f"agent=geometric flies multirotors, got the robot '{env.simulation.robot.name}'; "
            "choose crazyflie or x500, or another agent"
        )
    controller = NominalController(env.simulation)
    return ActingAgent(lambda obs: controller.act(env.task.goal), controller.begin)


def policy_agent(act: Callable[[Obs], Tensor]) -> ActingAgent:
    """A deterministic policy; one that remembers is told where episodes begin."""
    return ActingAgent(act, lambda mask: begin_episodes(act, mask))


def write_video(
    player: Player, path: Path, *, title: str, num_envs: int, seconds: float = 0.0, longest: float
) -> dict[str, str]:
    """Write a video of the first envs and draw their contact sheet; returns where each lies.

    Args:
        player: Plays on from where it is.
        path: The mp4 to write; the sheet lies beside it as a PNG.
        title: Written into both.
        num_envs: How many are seen; of fewer, all.
        seconds: Length of the video [s]; 0 for one episode, but `longest` at most.
        longest: Of a video whose length nobody chose [s].

    Raises:
        RenderUnavailableError: Nothing can be drawn on this machine.
        StorageError: A file cannot be written.
    """
    recording = record_episode(player, num_envs=num_envs, seconds=seconds, longest=longest)
    return draw_recording(recording, path, title=title)


def record_episode(
    player: Player, *, num_envs: int, seconds: float = 0.0, longest: float
) -> "EnvRecording":
    """Play on and remember the first envs; arguments as of `write_video`."""
    from sim.rendering.recording import record_envs

    length = seconds or min(player.env.task.episode_steps * player.control_dt, longest)
    seen = min(num_envs, player.env.spec.num_envs)
    return record_envs(player, envs=seen, seconds=length)


def draw_recording(recording: "EnvRecording", path: Path, *, title: str) -> dict[str, str]:
    """Draw a video and a contact sheet of a recording; as `write_video`."""
    from sim.rendering.video import contact_sheet, render_video

    return {
        "video": str(render_video(recording, path, title=title)),
        "contact sheet": str(contact_sheet(recording, path.with_suffix(".png"), title=title)),
    }


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Composed envs and their title."""

    config: RunConfig
    """Task, robot, number of envs, seed."""
    title: str
    """Task, robot and agent in a line."""


def configure(agent: str, overrides: Sequence[str]) -> Shown:
    """Compose the envs; a bundle brings its own unless a task or a robot is named.

    Raises:
        ConfigError: A choice, a key or a value is wrong, or these envs cannot be drawn.
    """
    if agent not in SIMPLE and Path(agent).is_dir():
        overrides = _beside_bundle(Path(agent), overrides)
    named = {key for key in changed_keys(overrides) if key in GROUPS}
    overrides = [*_DEFAULTS, *overrides]
    if agent in SIMPLE or named or not Path(agent).is_dir():
        config = compose(overrides).config
    else:
        config = config_of_bundle(Path(agent), overrides)
        if not any(key.startswith("reward.") for key in changed_keys(overrides)):
            config = replace(config, reward=RewardConfig())  # what it was trained by may be gone
    kind = component_of(config.env).name
    if kind != "sim":
        raise ConfigError(
            f"envs of env={kind} cannot be shown: only our own (env=sim) tell what is to be drawn"
        )
    task, robot = component_of(config.task).name, config.robot.spec.name
    who = agent if agent in SIMPLE else f"bundle {Path(agent).resolve().name}"
    return Shown(config=config, title=f"{task}, {robot}, {who}")


def _beside_bundle(bundle: Path, overrides: Sequence[str]) -> list[str]:
    """Words without the bundle's own task and robot; with both of them if another is named."""
    if not any(key in ("task", "robot") for key in changed_keys(overrides)):
        return list(overrides)
    try:
        own = config_of_bundle(bundle)
    except (BundleError, SpecMismatchError):  # all is named then
        return list(overrides)
    if own.robot is None:
        return list(overrides)
    brought = [f"task={component_of(own.task).name}", f"robot={own.robot.spec.name}"]
    further = [word for word in overrides if word not in brought]
    named = {key for key in changed_keys(further) if key in GROUPS}
    return [*(word for word in brought if named and word.partition("=")[0] not in named), *further]


def make_player(config: RunConfig, agent: str, *, evaluation: bool) -> Player:
    """Worlds and who acts in them."""
    torch.set_num_threads(config.threads)
    env = make_env(
        config, num_envs=config.num_envs, device=run_device(config), seed=config.seed,
        evaluation=evaluation,
    )  # fmt: skip
    assert isinstance(env, SimEnv)
    judged = with_reward(replace(config, reward=replace(config.reward, vice=ViceConfig())), env)
    judge = ShownReward(judged.judge) if isinstance(judged, LearnedRewardEnv) else None
    return Player(env, make_agent(agent, env, seed=config.seed), seed=config.seed, judge=judge)


class ShownReward:
    """A learned reward's words about the envs that a person looks at; nothing else changes."""

    def __init__(self, judge: StepJudge) -> None:
        self._judge = judge
        classifies = isinstance(judge, ClassifierJudge)
        self.names = ("probability", "success") if classifies else ("reward",)
        """Names of its values."""

    def judge(self, step: EnvStep) -> Tensor:
        """(N, J): of a classifier probability and decision by the k-of-m rule, else the reward."""
        value = self._judge.judge(step.next_obs)
        if value.probability is None:
            return value.reward[:, None]
        return torch.stack([value.probability, value.success.float()], dim=-1)

    def begin(self, mask: Tensor) -> None:
        """New episodes begin in the masked envs, (N,) bool."""
        self._judge.begin(mask)


def show(player: Player, title: str, port: int, *, opened: bool = False) -> None:
    """Serve the page and play until Ctrl-C.

    Args:
        opened: Open it in the browser, where there is a screen.

    Raises:
        ConfigError: The port is taken.
    """
    from sim.rendering.browser import BrowserViewer

    viewer = BrowserViewer(player, title=title, port=port)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` had it ignored
    try:
        print(
            f"{title}\nopen {viewer.address} in a browser of this machine; Ctrl-C ends it",
            flush=True,
        )
        if opened and _has_screen():
            webbrowser.open(viewer.address)
        viewer.run(until=lambda: False)
    except KeyboardInterrupt:
        print("closed")
    finally:
        viewer.close()


def _has_screen() -> bool:
    """Without one, a browser of the terminal would open."""
    return sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _anywhere(plain: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Overrides for what a training on a GPU asks of a machine, but those that are given."""
    found: dict[str, str] = {}
    if plain.get("device", "cpu") != "cpu":
        found["device"] = "auto"
    if (plain.get("robot") or {}).get("engine") == PhysicsEngine.warp.value:
        found["robot.engine"] = PhysicsEngine.batch.value
    given = {"robot.engine" if key == "robot" else key for key in changed_keys(overrides)}
    return [f"{key}={value}" for key, value in found.items() if key not in given]


def config_of_bundle(bundle: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Configuration of the run that a bundle was exported from, with overrides.

    Where it was trained on a GPU, its envs are those of any machine: robots with joints in MuJoCo's
    own engine, unless an override says otherwise.

    Raises:
        BundleError: The folder is no bundle, is damaged, or does not say it.
        SpecMismatchError: The robot has another version by now.
    """
    plain = read_provenance(bundle).get("config")
    if not isinstance(plain, dict):
        raise BundleError(
            f"{bundle} does not say which task it was trained for: provenance.json has no config; "
            "name them: task=... robot=..."
        )
    config = from_plain(plain, [*_anywhere(plain, overrides), *overrides])
    if config.robot is not None:
        trained = config.robot.spec
        described = robot_description(trained.name)
        if described is not None:
            trained.check_compatible(replace(trained, version=described.version))
    return config
