"""Learning from stored experience: what is added to the losses, and what tells how it goes."""
