"""Robots with joints: how they are configured, simulated, moved and randomised."""
