"""A policy bundle as C99 for flight controllers: `source.py` writes it from its parts."""
