"""UniLab's side of the race, run by the Python of its own environment, which lacks our packages."""

import json
import re
import runpy
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import psutil
import torch
import unilab  # pyright: ignore[reportMissingImports]

ROBOT = Path(unilab.__file__).parent / "assets" / "robots" / "go2"

_AXES = ("x", "y", "z", "roll", "pitch", "yaw")
_BODY = "asset_cfg: {_target_: SceneEntityCfg, name: robot, body_names: base}"


def _event(name: str, mode: str, parameters: str) -> str:
    return (
        f"++env.events.{name}={{func: unilab.envs.mdp.{name}, mode: {mode}, "
        f"params: {{{parameters}}}}}"
    )


TASK = (
    "training.no_play=true",
    f"env.scene.model_file={ROBOT / 'scene_flat.xml'}",
    "++env.scene.entities.robot.geom_names=[FL,FR,RL,RR]",
    "env.max_episode_seconds=10.0",
    "env.commands.twist.resampling_time_range=[5.0,5.0]",
    "env.commands.twist.rel_standing_envs=0.1",
    "env.commands.twist.ranges.lin_vel_x=[-0.6,0.6]",
    "env.commands.twist.ranges.lin_vel_y=[-0.3,0.3]",
    "env.commands.twist.ranges.ang_vel_z=[-0.6,0.6]",
    *(
        f"env.events.reset_root_state_uniform.params.velocity_range.{axis}=[-0.3,0.3]"
        for axis in _AXES
    ),
    "++env.observations.policy.enable_corruption=true",
    *(
        f"++env.observations.policy.terms.{term}.noise="
        f"{{_target_: GaussianNoiseCfg, mean: 0.0, std: {std}}}"
        for term, std in (
            ("base_ang_vel", 0.05),
            ("projected_gravity", 0.01),
            ("joint_pos", 0.005),
            ("joint_vel", 0.2),
        )
    ),
    "++env.observations.critic.enable_corruption=false",
    _event(
        "randomize_rigid_body_mass",
        "reset",
        f"{_BODY}, mass_distribution_params: [-0.5, 2.0], operation: add, recompute_inertia: false",
    ),
    _event(
        "randomize_rigid_body_com",
        "reset",
        f"{_BODY}, com_range: {{x: [-0.02, 0.02], y: [-0.02, 0.02], z: [-0.02, 0.02]}}",
    ),
    _event(
        "geom_friction",
        "reset",
        "asset_cfg: {_target_: SceneEntityCfg, name: robot, geom_names: [FL, FR, RL, RR]}, "
        "ranges: [0.4, 1.0], operation: abs",
    ),
    _event(
        "push_by_setting_velocity",
        "interval",
        "velocity_range: {x: [-0.35, 0.35], y: [-0.35, 0.35], z: [0.0, 0.0], "
        "roll: [-0.3, 0.3], pitch: [-0.3, 0.3], yaw: [-0.3, 0.3]}",
    )[:-1]
    + ", interval_range_s: [3.0, 6.0], is_global_time: false}",
)
"""Our velocity task in the words of UniLab's configuration, as far as it has words for it."""

OFF_POLICY = (
    "env.actions.joint_pos.scale=0.4",
    "~reward.tracking_lin_vel.params.std",
    "~reward.tracking_ang_vel.params.std",
    "reward.tracking_lin_vel.params.tracking_sigma=0.4",
    "reward.tracking_ang_vel.params.tracking_sigma=0.4",
)

ENTRANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ppo": (
        "rsl_rl",
        ("task=go2_joystick_flat/mujoco", "algo.max_iterations=1000", "algo.save_interval=5"),
    ),
    "flashsac": (
        "flashsac",
        (
            "task=go2_joystick_flat/mujoco",
            *OFF_POLICY[1:],
            "algo.save_interval=50",
            "algo.max_iterations=4000",
        ),
    ),
    "sac_cpu": (
        "sac",
        (
            "task=go2_joystick_flat/base",
            "training.task_name=Go2JoystickFlat",
            "algo.num_envs=128",
            "algo.batch_size=256",
            "algo.replay_buffer_n=4096",
            "algo.updates_per_step=4",
            "algo.learning_starts=20",
            "algo.tau=0.05",
            "algo.actor_hidden_dim=256",
            "algo.critic_hidden_dim=256",
            "algo.max_iterations=100000",
            "algo.save_interval=500",
            "training.log_interval=50",
            "env.actions.joint_pos.scale=0.4",
            "reward.tracking_lin_vel.params.tracking_sigma=0.4",
            "reward.tracking_ang_vel.params.tracking_sigma=0.4",
            "reward.base_height.weight=-20.0",
            "reward.action_rate.weight=-0.02",
            "reward.similar_to_default.weight=-0.4",
            "reward.contact.weight=1.5",
        ),
    ),
}


class _Cpu(str):
    type = "mps"
    index = None


class _Done:
    def record(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class _TorchOfReplay(types.ModuleType):
    mps = types.SimpleNamespace(
        Event=_Done,
        recommended_max_memory=lambda: 8 << 30,
        driver_allocated_memory=lambda: 0,
    )
    backends = types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: True))
    device = staticmethod(_Cpu)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def allow_cpu() -> None:
    """Let UniLab's replay take its path for MPS on the processor."""
    from unilab.rl.runtime.ipc.replay_pipelines import (  # pyright: ignore[reportMissingImports]
        device,
    )

    device.torch = _TorchOfReplay("torch")


def put_meshes() -> None:
    names = re.findall(r'file="(\w+\.obj)"', (ROBOT / "go2.xml").read_text())
    folder = ROBOT / "assets"
    folder.mkdir(exist_ok=True)
    for name in names:
        if not (folder / name).exists():
            (folder / name).write_text(
                "v 0 0 0\nv .01 0 0\nv 0 .01 0\nv 0 0 .01\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
            )


def _watch(folder: Path) -> None:
    me, seen = psutil.Process(), set()
    with (folder / "times.jsonl").open("a") as file:
        while True:
            for path in [*folder.glob("*tfevents*"), *folder.glob("model_*.pt")]:
                if path.name in seen:
                    continue
                seen.add(path.name)
                cpu = 0.0
                for one in [me, *me.children(recursive=True)]:
                    try:
                        t = one.cpu_times()
                    except psutil.Error:
                        continue
                    cpu += t.user + t.system
                line = {"file": path.name, "time": time.time(), "cpu": cpu}
                file.write(json.dumps(line) + "\n")
                file.flush()
            time.sleep(0.5)


def train(entrant: str, folder: Path, changes: list[str]) -> None:
    script, own = ENTRANTS[entrant]
    folder.mkdir(parents=True)
    put_meshes()
    if script != "rsl_rl":
        allow_cpu()
    threading.Thread(target=_watch, args=(folder,), daemon=True).start()
    module = f"unilab.scripts.train_{script}"
    sys.argv = [module, *own, *TASK, f"training.log_dir={folder}", *changes]
    (folder / "command.json").write_text(json.dumps(sys.argv))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    train(sys.argv[2], Path(sys.argv[3]).resolve(), sys.argv[4:])
