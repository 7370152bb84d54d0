"""Limits of commands, the last thing before the robot."""
