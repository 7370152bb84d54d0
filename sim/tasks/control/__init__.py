"""Small tasks of control: benchmarks of learning from pixels that run on a CPU."""
