"""Tasks: what is asked of a robot, one file each."""
