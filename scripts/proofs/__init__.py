"""Learning proofs: what is trained, how it is flown, which bar it must pass, and the page of it."""
