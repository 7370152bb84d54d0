"""Train SAC on a Gymnasium environment, evaluate it, and use the policy in the environment."""

import gymnasium

import robot_rl

SMALL = ("training.random_steps=500", "learner.actor.hidden=[64,64]")

if __name__ == "__main__":
    # 1. An id, an environment, or a function that makes one; `total_steps=20_000` swings it up.
    run = robot_rl.train(*SMALL, env="Pendulum-v1", total_steps=2_000, quiet=True)
    print(run.evaluate(episodes=10))
    # 2. The policy takes the environment's own observations and gives actions for its `step`.
    env, policy = gymnasium.make("Pendulum-v1"), run.policy()
    observation, _ = env.reset(seed=0)
    policy.begin()  # an episode begins: some policies plan ahead
    observation, reward, *_ = env.step(policy(observation))
    print(reward)
    # 3. The same without torch, in a program of its own; run.film() writes a video.
    alone = robot_rl.load_policy(run.export())
    print(alone(observation))
