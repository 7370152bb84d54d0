"""How a data set of episodes lies on the disk: tables, the manifest, and what LeRobot reads."""
