"""Motions to follow: clips from files, clips made by script, and what a task compares with them."""
