"""Deployment: the processes around a robot, and the person's part of starting and stopping it."""
