"""Train a policy from Python: what `robot-rl train task=hover ...` does."""

import sys

from configs.compose import compose
from robot_rl.cli.session import start

SMALL = (  # enough to see everything that a run leaves; leave it out for a policy that flies
    "num_envs=16", "training.total_steps=3200", "training.random_steps=160",
    "training.evaluation_interval=1600", "training.evaluation_episodes=4",
    "training.replay_capacity=3200", "learner.batch_size=16", "video=false",
)  # fmt: skip

if __name__ == "__main__":
    # 1. Names choose the parts; any field can be changed, and a misspelt one is refused.
    composition = compose(["task=hover", "learner=sac", *SMALL])
    print(f"steps of {composition.config.learner.batch_size} transitions")
    # 2. The run lies in runs/: checkpoints, metrics, curve, and the bundle for a robot.
    sys.exit(start(composition.config, composition.chosen))
