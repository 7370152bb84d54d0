"""Races between learners: the same worlds, the same starts of evaluation, curves side by side."""
