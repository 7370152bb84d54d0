"""The policy's side of the wire."""
