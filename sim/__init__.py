"""Simulation: physics engines, robots in them, tasks, and the environment that joins them."""
