"""Gymnasium's own MuJoCo worlds, all of them stepped at once on CPU threads."""
