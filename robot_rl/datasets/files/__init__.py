"""Files of a data set of episodes: tables, the manifest, and those that LeRobot reads."""
