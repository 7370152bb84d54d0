"""The parts without the training: worlds, replay and learner in a loop of one's own."""

import robot_rl

if __name__ == "__main__":
    env = robot_rl.make_env("task=hover", num_envs=16)
    learner = robot_rl.make_learner(env, "learner=sac")
    replay = robot_rl.make_replay(env, learner, capacity=100_000)
    obs = env.reset(seed=0)
    for t in range(40):
        seen = {name: group.clone() for name, group in obs.items()}  # `step` overwrites them
        step = env.step(learner.act(seen, explore=True))
        replay.add(seen, step)
        learner.observe(step)
        obs = step.obs
        if t >= 20:
            metrics, _ = learner.update(replay.sample(learner.samples_per_update))
            print(t, {name: round(float(value), 3) for name, value in metrics.items()})
