"""One learner, and processes on any machines that collect for it."""
