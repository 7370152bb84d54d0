"""UniLab's side of a race on the Go2, run by a Python that has UniLab and none of our packages.

`python -m scripts.races.beside_unilab` starts it; its page says what is set alike. Of UniLab no
file is changed. Two things are put in place before it starts: meshes that only a renderer sees,
which its first use would download, and its replay's path for MPS, which then runs on a processor.
"""

import importlib.metadata
import importlib.util
import json
import math
import platform
import re
import runpy
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

EPISODE_STEPS = 500
"""Ten seconds at 50 Hz."""
_EVALUATION_SEED = 20_000
_LOWEST_HEIGHT, _MAX_TILT = 0.14, 1.0
"""Below and beyond these a robot has fallen [m], [rad]: the bounds of our velocity task."""
_PACKAGES = ("unilab", "unisim-core", "mjbatch-uni", "mujoco", "torch", "numpy", "rsl-rl-lib")
_TETRAHEDRON = "v 0 0 0\nv .01 0 0\nv 0 .01 0\nv 0 0 .01\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"

_BODY = "asset_cfg: {_target_: SceneEntityCfg, name: robot, body_names: base}"


def _event(name: str, mode: str, parameters: str, more: str = "") -> str:
    return (
        f"++env.events.{name}={{func: unilab.envs.mdp.{name}, mode: {mode}, "
        f"params: {{{parameters}}}{more}}}"
    )


TASK = (
    "training.no_play=true",
    "++env.scene.entities.robot.geom_names=[FL,FR,RL,RR]",
    "env.max_episode_seconds=10.0",
    "env.commands.twist.resampling_time_range=[5.0,5.0]",
    "env.commands.twist.rel_standing_envs=0.1",
    "env.commands.twist.ranges.lin_vel_x=[-0.6,0.6]",
    "env.commands.twist.ranges.lin_vel_y=[-0.3,0.3]",
    "env.commands.twist.ranges.ang_vel_z=[-0.6,0.6]",
    *(
        f"env.events.reset_root_state_uniform.params.velocity_range.{axis}=[-0.3,0.3]"
        for axis in ("x", "y", "z", "roll", "pitch", "yaw")
    ),
    "++env.observations.policy.enable_corruption=true",
    *(
        f"++env.observations.policy.terms.{term}.noise="
        f"{{_target_: GaussianNoiseCfg, mean: 0.0, std: {deviation}}}"
        for term, deviation in (
            ("base_ang_vel", 0.05), ("projected_gravity", 0.01), ("joint_pos", 0.005),
            ("joint_vel", 0.2),
        )
    ),
    "++env.observations.critic.enable_corruption=false",
    _event(
        "randomize_rigid_body_mass", "reset",
        f"{_BODY}, mass_distribution_params: [-0.5, 2.0], operation: add, recompute_inertia: false",
    ),
    _event(
        "randomize_rigid_body_com", "reset",
        f"{_BODY}, com_range: {{x: [-0.02, 0.02], y: [-0.02, 0.02], z: [-0.02, 0.02]}}",
    ),
    _event(
        "geom_friction", "reset",
        "asset_cfg: {_target_: SceneEntityCfg, name: robot, geom_names: [FL, FR, RL, RR]}, "
        "ranges: [0.4, 1.0], operation: abs",
    ),
    _event(
        "push_by_setting_velocity", "interval",
        "velocity_range: {x: [-0.35, 0.35], y: [-0.35, 0.35], z: [0.0, 0.0], "
        "roll: [-0.3, 0.3], pitch: [-0.3, 0.3], yaw: [-0.3, 0.3]}",
        ", interval_range_s: [3.0, 6.0], is_global_time: false",
    ),
)  # fmt: skip
"""Our velocity task in the words of UniLab's configuration, as far as it has words for it.

A push of ours draws direction and speed, up to 0.5 m/s; these two axes have the same mean square.
"""

_SIGMA = tuple(f"reward.tracking_{kind}_vel.params.tracking_sigma=0.4" for kind in ("lin", "ang"))
"""FlashSAC's file for the Go2 gives a `std` of 0.632 that UniLab 1.5.2 refuses: its square."""


@dataclass(frozen=True)
class Entrant:
    """A learner of UniLab with its settings."""

    script: str
    """Of `unilab.scripts.train_*`."""
    settings: tuple[str, ...]
    off_policy: bool = True


ENTRANTS: Mapping[str, Entrant] = {
    "ppo": Entrant(
        "rsl_rl",
        ("task=go2_joystick_flat/mujoco", "algo.max_iterations=1000", "algo.save_interval=5"),
        off_policy=False,
    ),
    "flashsac": Entrant(
        "flashsac",
        (
            "task=go2_joystick_flat/mujoco", "~reward.tracking_lin_vel.params.std",
            "~reward.tracking_ang_vel.params.std",
            "~env.observations.policy.terms.joint_pos.noise",
            "~env.observations.policy.terms.joint_vel.noise", *_SIGMA, "algo.save_interval=50",
        ),
    ),
    "sac_cpu": Entrant(
        "sac",
        (
            "task=go2_joystick_flat/base", "training.task_name=Go2JoystickFlat",
            "algo.num_envs=128", "algo.batch_size=256", "algo.replay_buffer_n=4096",
            "algo.updates_per_step=4", "algo.learning_starts=20", "algo.tau=0.05",
            "algo.actor_hidden_dim=256", "algo.critic_hidden_dim=256",
            "algo.max_iterations=100000", "algo.save_interval=500", "training.log_interval=50",
            "env.actions.joint_pos.scale=0.4", *_SIGMA, "reward.base_height.weight=-20.0",
            "reward.action_rate.weight=-0.02", "reward.similar_to_default.weight=-0.4",
            "reward.contact.weight=1.5",
        ),
    ),
}  # fmt: skip
"""`ppo` and `flashsac` are UniLab's files for this robot; it has none for SAC and this robot.

`sac_cpu` is UniLab's SAC with FlashSAC's rewards for the Go2, in sizes for a processor.
"""


def train(entrant: Entrant, folder: Path, changes: Sequence[str]) -> None:
    """Train into a new folder by UniLab's own command."""
    robot = _robot_folder()
    put_meshes(robot)
    if entrant.off_policy:
        _let_replay_use_a_processor()
    folder.mkdir(parents=True, exist_ok=True)
    module = f"unilab.scripts.train_{entrant.script}"
    sys.argv = [
        module, *overrides(entrant, robot), f"training.log_dir={folder}", *changes,
    ]  # fmt: skip
    (folder / "command.json").write_text(json.dumps(sys.argv))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def overrides(entrant: Entrant, robot: Path) -> list[str]:
    """Words for UniLab's command; its own path of the model holds in its repository alone."""
    return [*entrant.settings, *TASK, f"env.scene.model_file={robot / 'scene_flat.xml'}"]


def put_meshes(robot: Path) -> None:
    """Write a small tetrahedron for every mesh that is missing: no mesh of the model collides."""
    names = re.findall(r'file="(\w+\.obj)"', (robot / "go2.xml").read_text())
    (robot / "assets").mkdir(exist_ok=True)
    for path in (robot / "assets" / name for name in names):
        if not path.exists():
            path.write_text(_TETRAHEDRON)


def evaluate(entrant: Entrant, folder: Path, episodes: int, names: Sequence[str]) -> None:
    """Play an episode in each of several envs with every checkpoint; adds lines to a file."""
    torch.set_num_threads(1)
    put_meshes(_robot_folder())
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    told = {"python": platform.python_version(), "packages": versions}
    (folder / "versions.json").write_text(json.dumps(told))
    env, load = _worlds(entrant, episodes)
    for name in names:
        with torch.inference_mode(), (folder / "evaluations.jsonl").open("a") as file:
            found = _play(env, load(folder / name))
            file.write(json.dumps({"file": name, **found}) + "\n")
    env.close()


def errors(physics: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Judge a moment.

    Args:
        physics: (N, >= 38): MuJoCo's time, positions (19) and velocities (18) of a Go2.
        goal: (N, 3): forward, lateral [m/s] and turning [rad/s] in the heading frame.

    Returns:
        Errors of the horizontal velocity, (N,) [m/s], and of the turning rate, (N,) [rad/s], and
        who has fallen, (N,) bool.
    """
    position, velocity = physics[:, 1:20], physics[:, 20:38]
    w, x, y, z = position[:, 3:7].unbind(-1)
    yaw = torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    forward = yaw.cos() * velocity[:, 0] + yaw.sin() * velocity[:, 1]
    left = yaw.cos() * velocity[:, 1] - yaw.sin() * velocity[:, 0]
    error = torch.hypot(forward - goal[:, 0], left - goal[:, 1])
    upright = 1 - 2 * (x * x + y * y)
    fallen = (position[:, 2] < _LOWEST_HEIGHT) | (upright < math.cos(_MAX_TILT))
    return error, (velocity[:, 5] - goal[:, 2]).abs(), fallen


def _play(env: Any, policy: Callable[[Any], Tensor]) -> dict[str, float]:
    obs, _ = env.reset(seed=_EVALUATION_SEED)
    error, turn_error = torch.zeros(env.num_envs), torch.zeros(env.num_envs)
    fallen = torch.zeros(env.num_envs, dtype=torch.bool)
    for _ in range(EPISODE_STEPS):
        goal = env.command_manager.get_command("twist").clone()
        state = env.step(policy(obs).float().contiguous())
        obs = state.obs
        now = errors(torch.from_numpy(env.get_physics_state_snapshot()), goal)
        error += now[0]
        turn_error += now[1]
        fallen |= now[2] | state.terminated
    error = torch.where(fallen, 1.0, error / EPISODE_STEPS)
    return {
        "error": float(error.mean()),
        "deviation": float(error.std()),
        "fallen": float(fallen.float().mean()),
        "turn_error": float(turn_error[~fallen].mean()) / EPISODE_STEPS,
        "episodes": env.num_envs,
    }


def _worlds(entrant: Entrant, count: int) -> tuple[Any, Callable[[Path], Callable[[Any], Tensor]]]:
    """The envs that a learner of UniLab trains in, and what loads its checkpoints."""
    from hydra import compose, initialize_config_dir
    from unilab.base.config_adapter import (  # pyright: ignore[reportMissingImports]
        create_env,
    )
    from unilab.training import ensure_registries  # pyright: ignore[reportMissingImports]

    robot = _robot_folder()
    group = entrant.script if entrant.off_policy else "ppo"
    folder = robot.parents[2] / "conf" / group
    with initialize_config_dir(str(folder), version_base="1.3"):
        # Twice as long, so that nobody is reset after the last step, before it is judged.
        config = compose("config", [*overrides(entrant, robot), "env.max_episode_seconds=20.0"])
    ensure_registries()
    scripts = importlib.import_module(
        f"unilab.scripts.train_{'offpolicy' if entrant.off_policy else entrant.script}"
    )
    changes = (
        scripts.build_offpolicy_env_cfg_override(group, config)
        if entrant.off_policy
        else scripts.build_ppo_env_cfg_override(config)
    )
    env = create_env(config, num_envs=count, env_cfg_override=changes)
    env.init_state()
    return env, (_off_policy if entrant.off_policy else _on_policy)(env, config, group)


def _off_policy(env: Any, config: Any, group: str) -> Callable[[Path], Callable[[Any], Tensor]]:
    from unilab.visualization.interactive_playback import (  # pyright: ignore[reportMissingImports]
        build_play_actor,
        extract_play_obs,
        resolve_play_obs_dims,
    )

    obs_dim, critic_obs_dim = resolve_play_obs_dims(env.obs_groups_spec)
    actor, *_ = build_play_actor(
        group, config, obs_dim=obs_dim, critic_obs_dim=critic_obs_dim,
        action_dim=env.action_space.shape[0], device="cpu",
    )  # fmt: skip

    def load(path: Path) -> Callable[[Any], Tensor]:
        actor.load_state_dict(torch.load(path, map_location="cpu", weights_only=False)["actor"])
        return lambda obs: actor.explore(extract_play_obs(obs), deterministic=True)

    return load


def _on_policy(env: Any, config: Any, group: str) -> Callable[[Path], Callable[[Any], Tensor]]:
    from rsl_rl.runners import OnPolicyRunner
    from unilab.rl.adapters.rsl_rl.vec_env import (  # pyright: ignore[reportMissingImports]
        RslRlVecEnvAdapter,
    )
    from unilab.training.run import algo_config_dict  # pyright: ignore[reportMissingImports]

    del group
    worlds = RslRlVecEnvAdapter(env, device="cpu")
    settings = {**algo_config_dict(config), "logger": "none"}
    runner = OnPolicyRunner(worlds, settings, log_dir=None, device="cpu")
    parts = {"actor": True, "critic": False, "optimizer": False, "iteration": False, "rnd": False}

    def load(path: Path) -> Callable[[Any], Tensor]:
        runner.load(str(path), load_cfg=parts)
        policy = runner.get_inference_policy(device="cpu")
        return lambda obs: policy(worlds.get_observations())

    return load


class _Processor(str):
    """A device that torch takes for the processor and UniLab's replay for MPS."""

    type = "mps"


class _Done:
    """An event of work that is finished when its call returns."""

    def record(self) -> None:
        """Nothing is awaited."""

    def query(self) -> bool:
        """True: it has happened."""
        return True

    def synchronize(self) -> None:
        """Nothing is awaited."""


class _TorchOfReplay(types.ModuleType):
    """Torch as the module of UniLab's replay sees it."""

    device = staticmethod(_Processor)
    mps = types.SimpleNamespace(
        Event=_Done, recommended_max_memory=lambda: 8 << 30, driver_allocated_memory=lambda: 0
    )
    backends = types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: True))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _let_replay_use_a_processor() -> None:
    """Replace one name of one module: without, UniLab refuses all devices but CUDA and MPS."""
    name = "unilab.rl.runtime.ipc.replay_pipelines.device"
    vars(importlib.import_module(name))["torch"] = _TorchOfReplay("torch")


def _robot_folder() -> Path:
    spec = importlib.util.find_spec("unilab")
    if spec is None or spec.origin is None:
        raise SystemExit("this Python has no unilab; install it with: pip install 'unilab[mujoco]'")
    return Path(spec.origin).parent / "assets" / "robots" / "go2"


if __name__ == "__main__":
    verb, name, place, *rest = sys.argv[1:]
    if verb == "train":
        train(ENTRANTS[name], Path(place).resolve(), rest)
    else:
        evaluate(ENTRANTS[name], Path(place).resolve(), int(rest[0]), rest[1:])
