"""Cluttered corridors: how they are drawn, and the potential field that robots see in them."""
