"""What runs in the robot process at a fixed rate: safety, limits, watch, clock and loop."""
