"""Laws for what flies."""
