"""What a run begins with: stored experience, another run's learner, and how both are watched."""
