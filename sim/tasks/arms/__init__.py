"""Tasks for arms."""
