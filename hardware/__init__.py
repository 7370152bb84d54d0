"""The wing for real robots: control loop, safety, controllers, drivers, ROS 2; see README.md."""
