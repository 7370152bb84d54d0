"""Worlds of MuJoCo in C, stepped on CPU threads."""
