"""A robot, its motors and its surroundings as one model of MuJoCo."""
