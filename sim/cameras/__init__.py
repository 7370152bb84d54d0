"""Cameras of simulated robots and tasks: how they are declared, drawn, and what arrives."""
