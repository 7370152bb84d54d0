"""Tasks for robots that fly."""
