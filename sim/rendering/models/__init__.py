"""MuJoCo models (MJCF), all of primitive shapes: no mesh files are needed."""
