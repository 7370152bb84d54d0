"""Data sets of others as episodes of ours, and back."""
