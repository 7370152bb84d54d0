"""Tasks for robots with legs."""
