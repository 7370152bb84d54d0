"""Robots behind ROS 2: standard messages, one node on either side, and the one import of rclpy."""
