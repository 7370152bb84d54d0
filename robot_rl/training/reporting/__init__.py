"""Records of a run: metrics and their mirrors, the terminal, curves, statistics over runs."""
