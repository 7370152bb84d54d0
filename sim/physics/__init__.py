"""Physics engines: what a task reads is state and declared sensors, whichever engine runs."""
