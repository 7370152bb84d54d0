"""Evaluate the newest run in envs that it was not trained in, and read the numbers."""

import robot_rl

if __name__ == "__main__":
    run = robot_rl.load_run("latest")
    # 1. One episode in each env, without exploration; fields of the task may be changed.
    report = run.evaluate(
        "robot.plant=measured", "task.evaluation_start.attitude_deg=30", episodes=32
    )
    # 2. What a person reads, and what a program does.
    print(report)
    low, high = report.interval
    print(f"success {report.success:.2f}, 95 % interval {low:.2f} to {high:.2f}")
