"""The robot process at a fixed rate: safety, limits, monitors, clock and loop."""
