"""Tasks for hands."""
