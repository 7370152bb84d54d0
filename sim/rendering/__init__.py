"""Drawing of simulated envs: recordings, plots, videos, and a viewer in the browser."""
