"""Contracts between the rooms of the house: robot, observation, action, environment, learner."""
