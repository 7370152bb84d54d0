"""Training runs: what they leave on disk, what they show, and the loop that drives a learner."""
