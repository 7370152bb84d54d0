"""What a run tells: metrics and their mirrors, the terminal, curves, statistics over runs."""
