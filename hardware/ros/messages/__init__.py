"""Numbers of the loop as standard messages, and back."""
