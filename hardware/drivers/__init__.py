"""Doors to robots, one in each file; vendor SDKs each in the one file that wraps them."""
