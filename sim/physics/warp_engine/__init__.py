"""MuJoCo Warp: worlds on the device of the learner."""
