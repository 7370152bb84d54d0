"""Choices in YAML over typed schemas in Python; imported by `robot_rl.cli` and the scripts only."""
