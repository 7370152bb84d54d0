"""Recordings of a robot's topics: written, mended, and replayed through its policy."""
