"""The viewer in the browser of this machine (viser, extra `ui`)."""
