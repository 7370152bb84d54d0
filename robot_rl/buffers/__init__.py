"""Where collected experience waits to be learned from."""
