"""Figures of a deployment: every process is a real one, and they meet over real ROS 2."""
