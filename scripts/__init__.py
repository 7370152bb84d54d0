"""Benchmarks, proofs, races, baselines: of the repository only, imported by no shipped package."""
