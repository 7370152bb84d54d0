"""The wing for real robots: not built yet, see README.md."""
