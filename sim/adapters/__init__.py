"""Foreign environments as ours, and ours as foreign ones."""
