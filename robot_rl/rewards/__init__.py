"""Rewards that are learned or given as a function: success classifiers, and what they judge."""
