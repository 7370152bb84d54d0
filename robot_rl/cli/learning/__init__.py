"""The processes of learning on a robot: learner, actor, and their supervisor."""
