"""Laws for arms."""
