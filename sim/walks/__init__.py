"""Recorded walks and their pictures."""
