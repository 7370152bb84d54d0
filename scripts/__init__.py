"""Commands of the repository: benchmarks, proofs, races, baselines; no shipped package imports them."""
