"""A robot and a task of our own for robot_rl."""
