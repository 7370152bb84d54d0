"""Files on the disk: whole or not at all, hashed, and never pickled."""
