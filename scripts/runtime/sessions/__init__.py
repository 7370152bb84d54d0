"""A session of training, from asking for it to what follows it."""
