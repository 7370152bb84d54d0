"""Updates by a compiled library on the CPU (docs/compiled.md)."""
