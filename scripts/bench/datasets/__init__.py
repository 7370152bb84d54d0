"""Data sets that are larger than memory, and data sets that are damaged."""
