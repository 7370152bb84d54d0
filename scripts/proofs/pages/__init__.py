"""Measurements of a proof, kept and shown."""
