"""Run an exported policy with numpy and onnxruntime alone, as a robot computer does."""

import sys
from pathlib import Path

import numpy as np

from policies.bundle import load_bundle
from robot_rl.core.observation import RobotState

if __name__ == "__main__":
    # 1. Loading checks digests and replays recorded sequences; another robot's is refused.
    newest = max(Path("runs").glob("*/bundle"), key=lambda path: path.stat().st_mtime)
    runner = load_bundle(newest)
    robot = runner.spec.robot
    # 2. A driver would measure this: SI units, quaternions wxyz, one row per robot.
    fields = {name: np.zeros((1, width), np.float32) for name, width in robot.state_widths.items()}
    if "orientation_w" in fields:  # of a robot whose base moves
        fields["orientation_w"][:, 0] = 1.0
    goal = {
        name: np.zeros((1, width), np.float32) for name, width in runner.spec.goal_widths.items()
    }
    # 3. What training did around the policy: the pose to arm in, speeds, weight, delays, starts.
    print(runner.spec.caller)
    # 4. Once per control period: observe, run the network, turn its action into a command.
    clocks = runner.clocks()  # of a gait; other policies have none
    runner.reset()
    for _ in range(10):
        for name, clock in clocks.items():
            goal[name] = clock.value(goal)
            clock.tick()
        command = runner.act(RobotState(fields), goal)
        print(f"{robot.name}: {command}")
    assert "torch" not in sys.modules
