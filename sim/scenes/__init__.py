"""Surroundings of robots: objects in MJCF, ground, and its sensors."""
