"""Parts that robot_rl is told of; it imports this module when one of them is asked for."""

from configs.schema import Component, register

from .task import ReachConfig, ReachTask

register(Component("task", "my_project_reach", ReachConfig, ReachTask))
