"""When the loop runs, and how late."""
