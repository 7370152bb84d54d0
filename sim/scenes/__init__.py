"""What stands around robots: objects in MJCF, ground, and how it is looked at."""
