"""Transitions of before, beside those of the run."""
