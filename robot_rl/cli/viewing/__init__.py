"""Parts of `view.py`: agents, and what is done with them."""
