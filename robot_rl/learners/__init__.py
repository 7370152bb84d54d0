"""Learning algorithms, one file each; each builds its networks from its config."""
