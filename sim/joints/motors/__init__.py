"""How robots with joints are moved."""
