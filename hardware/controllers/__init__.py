"""Standard control laws of robots, one in each file, in numpy alone."""
