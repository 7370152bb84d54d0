"""Learning algorithms, one file each; they are handed their networks."""
