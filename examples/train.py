"""Train a policy from Python: what `robot-rl train task=hover ...` does."""

import robot_rl

SMALL = (  # enough to see everything that a run leaves; leave it out for a policy that flies
    "num_envs=16", "training.random_steps=160", "training.evaluation_interval=1600",
    "training.evaluation_episodes=4", "training.replay_capacity=3200", "learner.batch_size=16",
    "video=false",
)  # fmt: skip

if __name__ == "__main__":
    # 1. Names choose the parts; any field can be changed, and a misspelt one is refused.
    run = robot_rl.train("task=hover", "learner=sac", *SMALL, total_steps=3200)
    # 2. The run lies in runs/: checkpoints, metrics, curve, and the bundle for a robot.
    print(run, run.metrics[-1]["step"])
    # 3. It goes on where it stands.
    run.resume(total_steps=4800)
