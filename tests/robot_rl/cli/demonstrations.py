"""A small data set for the task hover: a hand that does the same to every observation."""

from pathlib import Path

import numpy as np
import torch

from configs.schema import make_env
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import DatasetWriter
from tests.compositions import composed


def write_demonstrations(folder: Path, count: int = 6, steps: int = 20) -> Path:
    """Episodes of hover, every action a fixed product of what was observed."""
    config = composed(("experiment=smoke",)).config
    device = torch.device("cpu")
    env = make_env(config, num_envs=count, device=device, seed=0, evaluation=False)
    size = env.spec.groups["actor"].shape[0]
    hand = 0.3 * torch.randn(size, 4, generator=torch.Generator().manual_seed(0))
    obs, seen, done = env.reset(seed=0), [], []
    for _ in range(steps):
        seen.append({name: group.clone() for name, group in obs.items()})
        step = env.step((seen[-1]["actor"] @ hand).clamp(-1, 1))
        done.append(step.action.clone())
        obs = step.obs
    seen.append({name: group.clone() for name, group in obs.items()})
    assert env.spec.robot is not None
    spec = DatasetSpec(
        groups={name: group.shape[0] for name, group in env.spec.groups.items()}, action_size=4,
        control_dt=env.spec.control_dt, robot=env.spec.robot.identity(),
    )  # fmt: skip
    last = np.arange(steps) == steps - 1
    with DatasetWriter.create(folder, spec) as writer:
        for i in range(count):
            writer.add(Episode(
                obs={n: np.stack([f[n][i].numpy() for f in seen]) for n in spec.groups},
                action=np.stack([a[i].numpy() for a in done]),
                reward=np.zeros(steps, np.float32), terminated=last & False, truncated=last,
                success=last, valid=last | True, intervened=last & False,
                policy_version=np.zeros(steps, np.int64),
                stamp_ns=np.zeros(steps + 1, np.int64), task="hover",
            ))  # fmt: skip
    env.close()
    return folder
