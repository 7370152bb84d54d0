"""Measurements of speed: contenders take turns, medians and ratios are told."""
