"""Looking at flights: recordings, plots and films."""
