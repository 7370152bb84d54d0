"""The command `robot-rl`, and assembly of a run: imports every room, and no room imports it."""
