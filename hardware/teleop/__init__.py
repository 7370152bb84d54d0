"""Teleoperation: a person's intent becomes setpoints of the robot's loop, without torch."""
