"""Scripted controllers that know the whole truth: ceilings, and prior data for learners."""
