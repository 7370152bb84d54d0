"""Learning from demonstrations alone."""
