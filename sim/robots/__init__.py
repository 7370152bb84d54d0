"""Robots as MJCF of our own making, in primitive shapes: mechanism and sensors, no motors."""
