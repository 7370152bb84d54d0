"""One seed a run, and from it a stream of its own for every purpose.

Two generators with equal seeds draw equal numbers: exploration would repeat the draws of the
starts, and the sensor noise of one run would be the starts of the next.
"""

import hashlib


def derive_seed(seed: int, purpose: str) -> int:
    """Seed of one stream, in [0, 2^63): equal for equal arguments, unrelated otherwise."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
