"""Let a simulated robot see: images as observation groups, and a picture of what is seen."""

from pathlib import Path

import torch

from configs.compose import compose
from configs.schema import make_env
from sim.rendering.video import write_png

if __name__ == "__main__":
    # 1. Any task, and the cameras that its robot or its scene declares.
    config = compose(["task=lift", "env.cameras=[wrist,front]"]).config
    env = make_env(config, num_envs=4, device=torch.device("cpu"), seed=0, evaluation=True)

    # 2. Every camera is a group: frames of the last three steps, the newest last, uint8.
    obs = env.reset(seed=0)
    for name, group in env.spec.groups.items():
        print(f"{name:<12} {tuple(obs[name].shape)} {group.dtype}")
    step = env.step(torch.zeros(4, env.spec.action_size))
    newest = [step.next_obs[f"image/{camera}"][:, -1] for camera in config.env.cameras]

    # 3. One column for each of the four envs.
    rows = [torch.cat(list(images), dim=1) for images in newest]
    write_png(Path("cameras.png"), torch.cat(rows).numpy())
    print("written: cameras.png")
