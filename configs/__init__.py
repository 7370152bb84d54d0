"""Choices in YAML over typed schemas in Python; imported by the scripts only."""
