"""Demonstrations in memory, and the loop that learns from them."""
