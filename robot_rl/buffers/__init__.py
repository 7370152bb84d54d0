"""Replay of collected experience."""
