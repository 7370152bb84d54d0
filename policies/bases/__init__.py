"""Base policies, learned from demonstrations; those that plan give chunks of actions."""
