"""One GPU with thousands of envs: speed, trainings, and their policies checked in C."""
