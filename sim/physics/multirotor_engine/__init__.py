"""Worlds of multirotors in a Warp kernel of our own."""
