"""Updates by a compiled library on the CPU (docs/learners/compiled.md)."""
