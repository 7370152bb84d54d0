"""Robots that fly: how they are configured and simulated, and who knows how to fly them."""
