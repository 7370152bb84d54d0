"""Policies that ship, each in a folder of its own; `catalog` finds them by name."""
