"""The robot process's side of the wire."""
