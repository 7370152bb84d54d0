"""Pictures and films: recordings of worlds, drawn by MuJoCo in a process of its own."""
