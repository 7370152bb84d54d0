"""Learners of other packages on our tasks, to compare with: PPO of rsl_rl, SAC of SB3."""
