"""Parts of `collect.py`: who acts, how actions are disturbed, and how a data set goes on."""
