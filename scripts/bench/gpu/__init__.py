"""What one GPU does with thousands of worlds: speed, trainings, and their policies checked in C."""
