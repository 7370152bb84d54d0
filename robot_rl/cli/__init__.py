"""The command `robot-rl` and what assembles a run: may import every room, and no room imports it."""
