"""Learning on a robot: an environment over its process, resets, rewards."""
