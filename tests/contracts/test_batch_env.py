"""The environment contract over every environment: a new one is one more `EnvCase`."""

import importlib.util
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from robot_rl.core.env import BatchEnv, GroupSpec
from sim.adapters.gymnasium_config import GymnasiumConfig, WorldEngine
from sim.adapters.gymnasium_env import GymnasiumEnv
from sim.adapters.gymnasium_make import make_gymnasium_env
from sim.cameras.config import AppearanceRandomization
from sim.robots.joint_robot import PhysicsEngine
from sim.robots.multirotor_robot import FlightAction
from tests.bases import based
from tests.contracts.batch_env import BatchEnvContract, EnvCase
from tests.fakes import LinearWorld, PointMass, ToyEnv
from tests.gymnasium_worlds import LIMIT, Drift
from tests.rewards import learned_env
from tests.sim.arms import STEPS, endless_reach, reach
from tests.sim.flying import endless_flight, flight, lift_limit
from tests.sim.hands import endless_handling, endless_turning, handling, turning
from tests.sim.legs import (
    climb,
    endless_climb,
    endless_follow,
    endless_get_up,
    endless_mount,
    endless_traverse,
    endless_walk,
    follow,
    get_up,
    mount,
    traverse,
    walk,
)
from tests.sim.pixels import STEPS as PIXEL_STEPS
from tests.sim.pixels import endless_with_camera, with_camera

IMAGES = {
    "actor": GroupSpec(shape=(5,)),
    "image/front": GroupSpec(shape=(4, 4, 3), dtype=torch.uint8),
    "image/stacked": GroupSpec(shape=(2, 3, 3, 1), dtype=torch.uint8, stack=2),
}
NAMED = LinearWorld(bound=0.8, action_size=3, reward_names=("first", "second"), groups=IMAGES)


def toy(dynamics: Any, limit: int) -> Any:
    def make(num_envs: int, seed: int, device: torch.device) -> BatchEnv:
        return ToyEnv(dynamics, num_envs, limit=limit, device=device, seed=seed)

    return make


def with_base(dynamics: Any, limit: int) -> Any:
    make_toy = toy(dynamics, limit)
    return lambda num_envs, seed, device: based(make_toy(num_envs, seed, device))


def with_learned_reward(dynamics: Any, limit: int) -> Any:
    make_toy = toy(dynamics, limit)
    return lambda num_envs, seed, device: learned_env(make_toy(num_envs, seed, device))


def endless(dynamics: Any) -> Any:
    dynamics = replace(dynamics, bound=1e9)
    return lambda num_envs, device: ToyEnv(dynamics, num_envs, limit=10**9, device=device)


def drifting(mode: AutoresetMode, kind: str = "box", **config: Any) -> Any:
    """The toy of `gymnasium_worlds.py` in one of the three ways of beginning anew."""

    def make(num_envs: int, seed: int, device: torch.device) -> BatchEnv:
        worlds = SyncVectorEnv([lambda: Drift(kind=kind)] * num_envs, autoreset_mode=mode)
        return GymnasiumEnv(worlds, GymnasiumConfig(**config), device=device, seed=seed)

    return make


def registered(name: str, limit: int, engine: WorldEngine = WorldEngine.gymnasium) -> Any:
    config = GymnasiumConfig(id=name, engine=engine, kwargs={"max_episode_steps": limit})
    return lambda num_envs, seed, device: make_gymnasium_env(
        config, num_envs=num_envs, device=device, seed=seed
    )


def planar(name: str, limit: int, **case: Any) -> EnvCase:
    """Gymnasium's world on our engine; those that never end by themselves have an endless copy."""
    make = registered(name, limit, WorldEngine.batch)
    if not case.get("terminates", True):
        case["endless"] = lambda num_envs, device: registered(name, 10**9, WorldEngine.batch)(
            num_envs, 0, device
        )
    return EnvCase(f"{name} in a batch", make, limit, noiseless=True, **case)


def with_twin(name: str, make: Any, endless: Any, limit: int = STEPS, **case: Any) -> Any:
    """A case, and the same without noise."""
    yield EnvCase(name, make(), limit, endless(), lift_limit, **case)
    yield EnvCase(
        f"{name} without noise", make(noise=False), limit, endless(noise=False), lift_limit,
        noiseless=True, twin=True, **case,
    )  # fmt: skip


CASES = (
    EnvCase(
        "linear", toy(LinearWorld(bound=0.8), 9), 9, endless(LinearWorld()), noiseless=True
    ),
    EnvCase("linear with a base", with_base(LinearWorld(bound=0.8), 9), 9, noiseless=True),
    EnvCase(
        "linear with a learned reward", with_learned_reward(LinearWorld(bound=0.8), 9), 9,
        noiseless=True,
    ),
    EnvCase("images", toy(NAMED, 8), 8, endless(NAMED), noiseless=True),
    EnvCase("point mass", toy(PointMass(axes=2), 40), 40, noiseless=True),
    *(
        case for name in ("hover", "tracking", "gates", "landing")
        for case in with_twin(name, partial(flight, name), partial(endless_flight, name), 12)
    ),
    EnvCase(
        "hover by body rates", flight("hover", action=FlightAction.body_rates), 12,
        endless_flight("hover", action=FlightAction.body_rates), lift_limit, full=True,
    ),
    EnvCase("gymnasium same step", drifting(AutoresetMode.SAME_STEP), LIMIT, resumable=False),
    EnvCase("gymnasium disabled", drifting(AutoresetMode.DISABLED), LIMIT, resumable=False),
    EnvCase(
        "gymnasium next step", drifting(AutoresetMode.NEXT_STEP), LIMIT, late=True, resumable=False
    ),
    EnvCase(
        "gymnasium dict",
        drifting(
            AutoresetMode.SAME_STEP, "dict", metrics=["distance"], success=["is_success"],
            groups={"actor": ["place"], "critic": ["place", "inner/clock"]},
        ),
        LIMIT, resumable=False,
    ),
    EnvCase("gymnasium goal", drifting(AutoresetMode.SAME_STEP, "goal"), LIMIT, resumable=False),
    EnvCase("Hopper-v5", registered("Hopper-v5", 20), 20, resumable=False),
    planar("HalfCheetah-v5", 20, terminates=False, full=True),
    planar("Hopper-v5", 40),
    planar("InvertedPendulum-v5", 10, full=True),
    planar("Swimmer-v5", 20, terminates=False),
    planar("Walker2d-v5", 30, full=True),
    EnvCase(
        "Pendulum-v1", registered("Pendulum-v1", 20), 20, terminates=False, resumable=False,
        full=True,
    ),
)  # fmt: skip

QUICK = {
    "linear", "images", "hover without noise", "gymnasium same step", "gymnasium next step"
}  # fmt: skip
ON_THE_CPU_ONLY = (
    *(
        EnvCase(
            name, handling(name), STEPS, endless_handling(name), lift_limit, full=name != "lift"
        )
        for name in ("lift", "peg", "drawer")
    ),
    *with_twin("reach", reach, endless_reach),
    *with_twin("velocity", walk, endless_walk),
    *with_twin("motion", follow, endless_follow),
    *with_twin("clutter", traverse, endless_traverse),
    *with_twin("climb", mount, endless_mount),
    *with_twin("stand up", get_up, endless_get_up, terminates=False),
    *with_twin("velocity on hills", climb, endless_climb),
    *with_twin("reorient", turning, endless_turning),
)  # fmt: skip

LOOKS = AppearanceRandomization(
    camera_position=0.05, camera_rotation=0.05, brightness=0.3, light_position=0.2, colour=0.1
)
LOSSES = {"latency": 1, "period": 2, "dropout": 0.3, "black": 0.1, "noise": 5.0}
PIXELS = (
    EnvCase(
        "cart-pole with a camera", with_camera(), PIXEL_STEPS, endless_with_camera(), lift_limit,
        terminates=False, noiseless=True,
    ),
    EnvCase(
        "ball in cup with a camera that loses frames",
        with_camera(task="ball_in_cup", appearance=LOOKS, **LOSSES), PIXEL_STEPS,
        endless_with_camera(task="ball_in_cup", appearance=LOOKS, **LOSSES), lift_limit,
        terminates=False,
    ),
    EnvCase(
        "cart-pole on Warp with a camera", with_camera(engine=PhysicsEngine.warp), PIXEL_STEPS,
        endless_with_camera(engine=PhysicsEngine.warp), lift_limit, terminates=False, full=True,
    ),
)  # fmt: skip

_WARP = PhysicsEngine.warp
WARP_TASKS: Any = (
    ("reach", reach, endless_reach), ("velocity", walk, endless_walk),
    ("velocity on hills", climb, endless_climb), ("motion", follow, endless_follow),
    ("clutter", traverse, endless_traverse), ("climb", mount, endless_mount),
    ("stand up", get_up, endless_get_up),
    *((name, partial(handling, name), partial(endless_handling, name))
      for name in ("lift", "peg", "drawer")),
)  # fmt: skip
ON_WARP = (
    EnvCase(
        "velocity on Warp without noise", walk(noise=False, engine=_WARP), STEPS,
        endless_walk(noise=False, engine=_WARP), lift_limit, noiseless=True,
    ),
    EnvCase(
        "reach on Warp without noise", reach(noise=False, engine=_WARP), STEPS,
        endless_reach(noise=False, engine=_WARP), lift_limit, noiseless=True, full=True,
    ),
    *(
        EnvCase(
            f"{name} on Warp", make(engine=_WARP), STEPS, endless(engine=_WARP), lift_limit,
            terminates=name != "stand up", full=True,
        )
        for name, make, endless in WARP_TASKS
    ),
)  # fmt: skip


if importlib.util.find_spec("envpool"):  # tests/sim/adapters/test_envpool_env.py tells if not
    pooled = registered("Hopper-v5", 40, WorldEngine.envpool)
    ON_THE_CPU_ONLY += (EnvCase("Hopper-v5 of envpool", pooled, 40, late=True, resumable=False),)


class TestOnTheCPU(BatchEnvContract):
    cases = (
        *(replace(case, slow=case.name not in QUICK) for case in CASES),
        *ON_THE_CPU_ONLY,
        *ON_WARP,
        *PIXELS,
    )


@pytest.mark.gpu
class TestOnCUDA(BatchEnvContract):
    cases = (*CASES, *ON_WARP, PIXELS[-1])
    device = torch.device("cuda")
