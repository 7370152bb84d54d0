"""Evaluate the newest run in envs that it was not trained in, and read the numbers."""

from robot_rl.cli.evaluation import EvaluateOptions, run_trial, trial_lines

if __name__ == "__main__":
    # 1. One episode in each env, without exploration; fields of the task may be changed.
    options = EvaluateOptions(run="latest", episodes=32, video=False)
    trial = run_trial(options, ["robot.plant=measured", "task.evaluation_start.attitude_deg=30"])
    # 2. What a person reads, and what a program does.
    print("\n".join(trial_lines(trial)))
    low, high = trial.result.success_interval
    print(f"success {trial.result.success_rate:.2f}, 95 % interval {low:.2f} to {high:.2f}")
