"""What the robot process and its neighbours exchange without waiting for each other."""
