"""Data sets on the command line: shown, converted and drawn."""
